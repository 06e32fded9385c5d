"""`jp query`: evaluate expressions on an object."""

import click

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.jp.expressions import (
    ask,
    collect_expressions,
    describe_fault,
    read_input,
    read_text,
)
from lictor.errors import EvaluationError, SyntaxFaultError, UsageError
from lictor.raw import Json

_EXAMPLES = """\
# Evaluate a query
lictor jp query -i object.yaml 'request.object.metadata.name | truncate(@, `9`)'

# Evaluate several, also from files
lictor jp query -i object.yaml -q query-file-1 -q query-file-2 'metadata.name'

# Pipe the query in
cat query-file | lictor jp query -i object.yaml

# Pipe the object in
cat object.yaml | lictor jp query -q query-file"""


@click.command(cls=FlagCommand, arity=(0, None), examples=_EXAMPLES)
@click.option("-c", "--compact", is_flag=True, help="Print JSON without blanks and line breaks.")
@click.option("-i", "--input", "path", default="", help="Read the object from a JSON or YAML file.")
@slice_option("-q", "--query", "files", help="Read an expression from a file.")
@click.option("-u", "--unquoted", is_flag=True, help="Print a string without quotes.")
def query(
    *, arguments: tuple[str, ...], files: tuple[str, ...], path: str, compact: bool, unquoted: bool
) -> None:
    """Evaluate JMESPath expressions, with Kyverno's functions, on an object."""
    queries = collect_expressions(arguments, files)
    if not queries and not path:
        raise UsageError("at least one query or input object is required")
    value = read_input(read_text(path), path) if path else None
    if not queries:
        queries.append(ask("a jmespath expression"))
    # As with Kyverno: an empty object in the file asks for another one.
    if value is None:
        value = read_input(ask("input object"), "standard input")
    for text in queries:
        result = _evaluate(text, value)
        click.echo(f"# {text}")
        click.echo(_render(result, compact=compact, unquoted=unquoted))


def _evaluate(text: str, value: Json) -> Json:
    from lictor.lang.jmespath import compile_query

    try:
        return compile_query(text)(value)
    except SyntaxFaultError as error:
        shown = describe_fault(error, text)
        raise UsageError(f"failed to compile JMESPath: {text}, error: {shown}") from error
    except EvaluationError as error:
        raise EvaluationError(f"error evaluating JMESPath expression: {error}") from error


def _render(result: Json, *, compact: bool, unquoted: bool) -> str:
    from lictor.report.json_text import render_json

    if unquoted and isinstance(result, str):
        return result
    return render_json(result, indent=not compact)
