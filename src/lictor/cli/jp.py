"""`jp`: evaluates and parses JMESPath expressions, and lists functions."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from lictor.cli.flag_command import FlagCommand, WordText, slice_option
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.errors import EvaluationError, LoadError, SyntaxFaultError, UsageError
from lictor.core.load.yaml import decode_text, read_parts
from lictor.core.raw import Json, JsonObject
from lictor.core.report.json_text import render_json

_QUERY_EXAMPLES = """\
# Evaluate a query
lictor jp query -i object.yaml 'request.object.metadata.name | truncate(@, `9`)'

# Evaluate several, also from files
lictor jp query -i object.yaml -q query-file-1 -q query-file-2 'metadata.name'

# Pipe the query in
cat query-file | lictor jp query -i object.yaml

# Pipe the object in
cat object.yaml | lictor jp query -q query-file"""


@click.command(cls=FlagCommand, arity=(0, None), examples=_QUERY_EXAMPLES)
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
        queries.append(read_prompted("a jmespath expression"))
    # As in Kyverno: for an empty object in the file, another input is read.
    if value is None:
        value = read_input(read_prompted("input object"), "standard input")
    for text in queries:
        result = _evaluate(text, value)
        click.echo(f"# {text}")
        click.echo(_render(result, compact=compact, unquoted=unquoted))


def _evaluate(text: str, value: Json) -> Json:
    from lictor.core.lang.jmespath import compile_query

    try:
        return compile_query(text)(value)
    except SyntaxFaultError as error:
        shown = describe_fault(error, text)
        raise UsageError(f"failed to compile JMESPath: {text}, error: {shown}") from error
    except EvaluationError as error:
        raise EvaluationError(f"error evaluating JMESPath expression: {error}") from error


def _render(result: Json, *, compact: bool, unquoted: bool) -> str:
    from lictor.core.report.json_text import render_json

    if unquoted and isinstance(result, str):
        return result
    return render_json(result, indent=not compact)


_PARSE_EXAMPLES = """\
# Parse an expression
lictor jp parse 'request.object.metadata.name | truncate(@, `9`)'

# Parse expressions from files
lictor jp parse -f my-file-1 -f my-file-2

# Pipe it in
cat my-file | lictor jp parse"""


@click.command(cls=FlagCommand, arity=(0, None), examples=_PARSE_EXAMPLES)
@slice_option("-f", "--file", "files", help="Read an expression from a file.")
def parse(*, arguments: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Parse JMESPath expressions and show their trees."""
    from lictor.core.lang.jmespath import parse_query

    expressions = collect_expressions(arguments, files) or [read_prompted("a jmespath expression")]
    for expression in expressions:
        try:
            tree = parse_query(expression)
        except SyntaxFaultError as error:
            raise UsageError(describe_fault(error, expression)) from error
        click.echo(f"# {expression}")
        click.echo(render_tree(tree))


_FUNCTION_EXAMPLES = """\
# List functions
lictor jp function

# Describe one
lictor jp function truncate"""


def _list_functions() -> Iterable[str]:
    from lictor.core.lang.jmespath import FUNCTIONS

    return sorted(FUNCTIONS)


@click.command(
    cls=FlagCommand,
    arity=(0, None),
    argument_type=WordText(_list_functions),
    examples=_FUNCTION_EXAMPLES,
)
def function(*, arguments: tuple[str, ...]) -> None:
    """Describe functions: all of them, or the named ones."""
    from lictor.core.lang.jmespath import FUNCTIONS

    for entry in sorted(FUNCTIONS.values(), key=lambda entry: entry.signature):
        if not arguments or entry.name in arguments:
            click.echo(f"Name: {entry.name}\n  Signature: {entry.signature}")
            if entry.note:
                click.echo(f"  Note:      {entry.note}")
            click.echo()


def collect_expressions(arguments: Sequence[str], files: Sequence[str]) -> list[str]:
    """The expressions given by hand, then those in files."""
    return [*arguments, *(read_text(file) for file in files)]


def read_text(file: str) -> str:
    """A file's text; an error names the file."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise LoadError(f"failed open file {file}: no such file or directory") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LoadError(f"failed to read file {file}: {reason}") from error


def read_prompted(what: str) -> str:
    """Read standard input, after a message that names what is expected."""
    click.echo("Reading from terminal input.")
    click.echo(f"Enter {what} and hit Ctrl+D.")
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def read_input(text: str, source: str) -> Json:
    """Return the first document of a YAML or JSON text; null if there is none."""
    # Always as YAML: no kubectl takes part that would read JSON otherwise.
    first = next(read_parts(decode_text(text, source), source), None)
    if isinstance(first, LoadError):
        raise LoadError(f"error parsing input json: {first}") from first
    return None if first is None else first.body


def describe_fault(error: SyntaxFaultError, expression: str) -> str:
    """What is wrong, with a mark below the place."""
    text = error.text or expression
    start = text.rfind("\n", 0, error.position) + 1
    line = text[start:].split("\n", 1)[0]
    return f"{error.message}\n{line}\n{' ' * (error.position - start)}^"


_COMPARATORS = {"==": "tEQ", "!=": "tNE", "<": "tLT", "<=": "tLTE", ">": "tGT", ">=": "tGTE"}


def render_tree(node: JsonObject, indent: str = "") -> str:
    """A node with its value and children; ends in a newline.

    Children are not closed by separate braces, as in the output of similar tools.
    """
    lines = [f"{indent}{node['type']} {{\n"]
    if "value" in node:
        lines.append(f"{indent}  value: {_render_value(node)}\n")
    children = node.get("children")
    if children:
        lines.append(f"{indent}  children: {{\n")
        lines += [render_tree(child, f"{indent}    ") for child in children]
    lines.append(f"{indent}}}\n")
    return "".join(lines)


def _render_value(node: JsonObject) -> str:
    value: Json = node["value"]
    if node["type"] == "ASTComparator":
        return _COMPARATORS.get(str(value), str(value))
    return render_json(value)


jp = LazyGroup(
    name="jp",
    help="Work with JMESPath expressions: evaluate, parse, list functions.",
    lazy={
        "function": LazyCommand("lictor.cli.jp", "function", "Describe functions."),
        "parse": LazyCommand("lictor.cli.jp", "parse", "Parse expressions and show their tree."),
        "query": LazyCommand("lictor.cli.jp", "query", "Evaluate expressions."),
    },
    examples=(
        "# List functions\n"
        "lictor jp function\n\n"
        "# Evaluate a query\n"
        "lictor jp query -i object.yaml 'request.object.metadata.name | truncate(@, `9`)'\n\n"
        "# Parse an expression\n"
        "lictor jp parse 'request.object.metadata.name | truncate(@, `9`)'"
    ),
)
