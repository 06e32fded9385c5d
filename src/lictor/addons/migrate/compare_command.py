"""`compare`: runs another program of Kyverno's form on the same inputs, and lists differences."""

import shlex
import sys
from collections.abc import Iterator

import click
import msgspec

from lictor.addons.migrate.program_rows import (
    ProgramComparison,
    RowDifference,
    read_report_rows,
    read_table_rows,
    run_program,
)
from lictor.cli.flag_command import FlagCommand, PathText, format_option, slice_option
from lictor.core.errors import LictorError, UsageError
from lictor.core.raw import Json

_EXAMPLES = """\
# Compare with a kyverno binary of any version
lictor compare --with kyverno policies/ -r resources/

# Compare the results of test files
lictor compare --with ./kyverno-1.19.1 --test tests/"""
_COLUMNS = ("policy", "rule", "resource", "theirs", "ours")


@click.command(
    cls=FlagCommand,
    arity=(0, None),
    examples=_EXAMPLES,
    argument_type=PathText(),
    short_help="Compare results with those of another program.",
)
@click.option("--with", "program", default="", help="The other program, with its arguments.")
@slice_option("-r", "--resource", help="Path to resource files.")
@slice_option("-e", "--exception", help="Policy exceptions to consider.")
@slice_option("-s", "--set", help="Values of variables: NAME=VALUE.")
@click.option("-f", "--values-file", default="", help="File with values of variables.")
@click.option("-u", "--userinfo", default="", help="File with the user of the requests.")
@click.option("--test", "test_folder", default="", help="Run the test files of this folder.")
@click.option("--timeout", type=float, default=600.0, help="Seconds that each program may take.")
@format_option("text", "json")
def compare(
    arguments: tuple[str, ...],
    program: str,
    test_folder: str,
    timeout: float,
    form: str,
    **given: Json,
) -> None:
    """Run another command line on the same inputs, and list rows with different results.

    The other program takes the arguments of kyverno's `apply` and `test`: a kyverno binary of any
    version, or another lictor. Ends with 1 if a row differs.
    """
    other = shlex.split(program)
    if not other:
        raise UsageError("name the other program: --with PROGRAM")
    if bool(test_folder) == bool(arguments):
        raise UsageError("give either POLICIES and -r RESOURCES, or --test FOLDER")
    inputs = CompareInputs(arguments, test_folder, **given)
    found = compare_programs(other, inputs, timeout)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        for line in format_comparison(found):
            click.echo(line)
    raise SystemExit(1 if found.different else 0)


class CompareInputs(msgspec.Struct, frozen=True):
    """What both programs are given."""

    policies: tuple[str, ...] = ()
    test_folder: str = ""
    resource: tuple[str, ...] = ()
    exception: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    values_file: str = ""
    userinfo: str = ""

    def list_arguments(self) -> Iterator[str]:
        """The arguments, without the program."""
        if self.test_folder:
            yield from ("test", self.test_folder, "--remove-color")
            return
        yield from ("apply", *self.policies, "--policy-report")
        for name in ("resource", "exception", "set"):
            for value in getattr(self, name):
                yield from (f"--{name}", value)
        for flag, path in (("--values-file", self.values_file), ("--userinfo", self.userinfo)):
            if path:
                yield from (flag, path)


def compare_programs(other: list[str], inputs: CompareInputs, seconds: float) -> ProgramComparison:
    """Run both programs; raises LictorError if there is nothing to compare."""
    read = read_table_rows if inputs.test_folder else read_report_rows
    own = [sys.executable, "-P", "-m", "lictor"]
    theirs, ours = (
        read(run_program(program, inputs.list_arguments(), seconds)) for program in (other, own)
    )
    if not theirs and not ours:
        raise LictorError("neither program has results: no policy matches a resource")
    comparison = ProgramComparison()
    comparison.note_rows(theirs, ours)
    return comparison


def format_comparison(found: ProgramComparison) -> Iterator[str]:
    """A table of the differences, and the counts."""
    if found.differences:
        rows = [_COLUMNS, *(_list_cells(each) for each in found.differences)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        for row in rows:
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            yield "  ".join(cells).rstrip()
        hidden = found.different - len(found.differences)
        if hidden:
            yield f"... and {hidden} more"
        yield ""
    yield f"{found.compared} rows compared: {found.same} the same, {found.different} different"


def _list_cells(found: RowDifference) -> tuple[str, ...]:
    return tuple(getattr(found, name) for name in _COLUMNS)
