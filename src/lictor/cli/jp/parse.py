"""`jp parse`: show the tree of an expression."""

import click

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.jp.expressions import ask, collect_expressions, describe_fault
from lictor.cli.jp.tree import render_tree
from lictor.errors import SyntaxFaultError, UsageError

_EXAMPLES = """\
# Parse an expression
lictor jp parse 'request.object.metadata.name | truncate(@, `9`)'

# Parse expressions from files
lictor jp parse -f my-file-1 -f my-file-2

# Pipe it in
cat my-file | lictor jp parse"""


@click.command(cls=FlagCommand, arity=(0, None), examples=_EXAMPLES)
@slice_option("-f", "--file", "files", help="Read an expression from a file.")
def parse(*, arguments: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Parse JMESPath expressions and show their trees."""
    from lictor.lang.jmespath import parse_query

    expressions = collect_expressions(arguments, files) or [ask("a jmespath expression")]
    for expression in expressions:
        try:
            tree = parse_query(expression)
        except SyntaxFaultError as error:
            raise UsageError(describe_fault(error, expression)) from error
        click.echo(f"# {expression}")
        click.echo(render_tree(tree))
