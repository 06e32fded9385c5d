"""`lint`: checks policies, exceptions and test files for mistakes."""

import click

from lictor.cli.flag_command import FlagCommand
from lictor.release import VERSION

_FORMATS = ("text", "json", "sarif", "github")
_EXAMPLES = """\
# Check all policies and tests of a folder
lictor lint policies/

# Let warnings count as errors
lictor lint --strict policy.yaml

# Mark the lines of a pull request
lictor lint --format github policies/

# Check what is piped in
cat policy.yaml | lictor lint -"""


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    help="Output format: text, json, sarif or github.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
def lint(*, arguments: tuple[str, ...], form: str, strict: bool) -> int:
    """Check policies, exceptions, cleanup policies and test files for mistakes.

    Exits with 0 where there are no errors, with 1 where there are, and with 2 on a wrong call.
    """
    from lictor.lint.render import LintFormat, render_report
    from lictor.offline.lint_files import lint_paths

    report = lint_paths(arguments)
    click.echo(render_report(report, LintFormat(form), version=VERSION), nl=False)
    return 1 if report.errors or (strict and report.warnings) else 0
