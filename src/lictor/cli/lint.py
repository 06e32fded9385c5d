"""`lint`: checks policies, exceptions and test files for mistakes."""

import sys
from collections.abc import Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING

import click

from lictor.cli.cluster_options import count_noun
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.terminal import wants_color
from lictor.core.errors import UsageError
from lictor.core.release import VERSION

if TYPE_CHECKING:
    from lictor.cli.lint_files import FixedFile
    from lictor.core.raw import Json
    from lictor.lint.render import LintReport

_FORMATS = ("full", "text", "json", "sarif", "github", "gitlab")
_EXAMPLES = """\
# Check all policies and tests of a folder
lictor lint policies/

# Let warnings count as errors
lictor lint --strict policy.yaml

# Only some checks, by code, by the beginning of codes or by name
lictor lint --select LIC4,unknown-field --ignore LIC410 policies/

# Show the automatic fixes, then apply them
lictor lint --diff policies/
lictor lint --fix policies/

# Policies about custom resources: by the definitions in files, or by those of a cluster
lictor lint --crds crds/ policies/
lictor lint --cluster policies/

# Count the findings of each rule
lictor lint --statistics policies/

# Mark the lines of a pull request
lictor lint --format github policies/

# Check what is piped in
cat policy.yaml | lictor lint -"""


def _explain(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        from lictor.cli.rule import explain_rule

        click.echo(explain_rule(name), nl=False)
        context.exit()


@click.command(cls=FlagCommand, arity=(0, None), examples=_EXAMPLES)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="Output format; full with lines of the file on a terminal, else text.",
)
@slice_option("--select", "select", help="The checks that count, by code or name; ALL by default.")
@slice_option("--ignore", "ignore", help="Checks that do not count.")
@click.option("--fix", is_flag=True, help="Put right what can be, without changing a verdict.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: guesses, too.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; exits with 1 if any.")
@slice_option(
    "--crds", "crds", help="Files or folders with the CustomResourceDefinitions of custom kinds."
)
@click.option("--cluster", is_flag=True, help="Use the CustomResourceDefinitions of a cluster.")
@click.option("--kubeconfig", default="", help="Path to the kubeconfig file, with --cluster.")
@click.option("--context", default="", help="Context of the kubeconfig file, with --cluster.")
@click.option(
    "--explain",
    callback=_explain,
    is_eager=True,
    expose_value=False,
    help="Explain a rule by its code or name.",
)
@click.option("--statistics", is_flag=True, help="Only how often each check found something.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
def lint(  # noqa: PLR0913  (one for each option)
    *,
    arguments: tuple[str, ...],
    form: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    crds: tuple[str, ...],
    cluster: bool,
    kubeconfig: str,
    context: str,
    statistics: bool,
    strict: bool,
) -> int:
    """Check policies, exceptions, cleanup policies and test files for mistakes.

    Exits with 1 if there are errors. Settings come from the nearest lictor.toml or pyproject.toml;
    a comment ignores findings of its line: # lictor: ignore[LIC101]
    """
    if not arguments:
        raise UsageError("lint needs a path: a file, a folder, or - for standard input")
    from lictor.cli.lint_files import fix_paths, lint_paths, read_definitions
    from lictor.cli.lint_settings import choose_start, combine, find_lint_settings

    settings = find_lint_settings(choose_start(arguments))
    selection = combine(settings, select, ignore)
    definitions = read_definitions((*settings.crds, *crds))
    if cluster or kubeconfig or context:
        definitions += _read_cluster(kubeconfig, context, is_wanted=cluster)
    if diff or fix:
        report, fixed = fix_paths(arguments, selection, definitions, unsafe=unsafe_fixes)
        if diff:
            return _show_differences(fixed)
        _save(fixed)
    else:
        report = lint_paths(arguments, selection, definitions)
    _print_report(report, form, statistics=statistics)
    return 1 if report.errors or ((strict or settings.strict) and report.warnings) else 0


def _read_cluster(kubeconfig: str, context: str, *, is_wanted: bool) -> "tuple[Json, ...]":
    from lictor.cli.live_cluster import LiveCluster

    if not is_wanted:
        raise UsageError("--kubeconfig and --context select a cluster: add --cluster")
    with LiveCluster(kubeconfig, context) as cluster:
        return cluster.read_definitions()


def _print_report(report: "LintReport", form: str | None, *, statistics: bool) -> None:
    from lictor.lint.render import LintFormat, render_report, render_statistics

    if statistics:
        click.echo(render_statistics(report), nl=False)
        return
    chosen = LintFormat(form or ("full" if sys.stdout.isatty() else "text"))
    shown = render_report(report, chosen, version=VERSION, color=wants_color())
    click.echo(shown, nl=False, color=True)


def _save(fixed: "Sequence[FixedFile]") -> None:
    from lictor.cli.lint_files import save_fixed

    save_fixed(fixed)
    click.echo(f"{count_noun(len(fixed), 'file')} put right", err=True)


def _show_differences(fixed: "Sequence[FixedFile]") -> int:
    """As `diff -u` does, and with its exit code."""
    for file in fixed:
        before, after = (
            text.decode(errors="replace").splitlines(keepends=True)
            for text in (file.before, file.after)
        )
        lines = unified_diff(before, after, file.path, file.path)
        click.echo(
            "".join(line if line.endswith("\n") else f"{line}\n" for line in lines), nl=False
        )
    return 1 if fixed else 0
