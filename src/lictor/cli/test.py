"""`test`: runs test files, which name policies, resources and expected results."""

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec
from msgspec.structs import replace

from lictor.cli.deprecations import report_deprecations, warning_options
from lictor.cli.flag_command import FlagCommand, WordText, print_notes
from lictor.cli.inputs.lookups import choose_registries
from lictor.cli.inputs.programs import parse_kubernetes_version
from lictor.cli.inputs.records import TestResult
from lictor.cli.inputs.repositories import GitAccess
from lictor.cli.terminal import wants_color
from lictor.cli.test_cases import (
    TEST_FILE,
    TestCase,
    TestSelector,
    compile_selector,
    find_test_files,
    hint_at_fix,
    load_cases,
    parse_selector,
)
from lictor.cli.test_run import CaseRun, evaluate_inputs
from lictor.core.errors import LictorError, UsageError
from lictor.core.files import LOGIN
from lictor.core.model.result import Status
from lictor.core.ports import Registries
from lictor.core.raw import Json
from lictor.core.report.outcomes import TestOutcome, keep_failures
from lictor.core.report.table import render_table

if TYPE_CHECKING:
    from lictor.cli.coverage import CoverageRun
    from lictor.cli.live_cluster import LiveCluster

_EXAMPLES = """\
# Run all tests below a folder
lictor test .

# Run tests of a git repository
lictor test https://github.com/OWNER/REPOSITORY/BRANCH

# Run the tests of one policy on one resource
lictor test . --test-case-selector "policy=add-labels,resource=my-pod"

# Run them again whenever a file changes
lictor test . --watch

# Show what the tests do not notice
lictor test . --coverage

# Write a report for a CI server
lictor test . --output-format junit"""

# Seconds between two looks at files that are watched.
_LOOK_EVERY = 0.4
_FORMATS = ("json", "yaml", "markdown", "junit", "sarif")


class TestFlags(msgspec.Struct, frozen=True):
    """The flags of `test`."""

    # pytest must not take this for a test class.
    __test__ = False

    paths: tuple[str, ...]
    file_name: str = TEST_FILE
    git_branch: str = ""
    test_case_selector: str = "policy=*,rule=*,resource=*"
    output_format: str = ""
    registry: bool = False
    image_layout: str = ""
    fail_only: bool = False
    remove_color: bool = False
    detailed_results: bool = False
    require_tests: bool = False
    allow_outside: bool = False
    coverage: bool = False
    fail_under: int = 0
    watch: bool = False
    kubeconfig: str = ""
    deprecation_warnings: bool = False
    warnings_as_errors: bool = False
    kubernetes_version: str = ""


@click.command(
    cls=FlagCommand, arity=(1, None), examples=_EXAMPLES, short_help="Run the tests of policies."
)
@click.option("-f", "--file-name", default=TEST_FILE, help="Name of the test files.")
@click.option("-b", "--git-branch", default="", help="Branch of the git repository.")
@click.option(
    "-t",
    "--test-case-selector",
    default="policy=*,rule=*,resource=*",
    help="Which results to check.",
)
@click.option(
    "-o",
    "--output-format",
    type=WordText(_FORMATS),
    default="",
    help="json, yaml, markdown, junit or sarif (a table).",
)
@click.option("--registry", is_flag=True, help="Query image registries.")
@click.option("--image-layout", default="", help="OCI layout folder to use instead of registries.")
@click.option("--fail-only", is_flag=True, help="Show failures only.")
@click.option("--remove-color", is_flag=True, help="Remove any color from output.")
@click.option("--detailed-results", is_flag=True, help="Show messages in the table.")
@click.option("--require-tests", is_flag=True, help="Having no tests is an error.")
@click.option(
    "--allow-outside",
    is_flag=True,
    help="Let test files of a git repository read files and URLs outside of it.",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Report which rules and conditions tests reach, and which changes no test notices.",
)
@click.option(
    "--fail-under",
    type=click.IntRange(0, 100),
    default=0,
    help="With --coverage: fail where tests notice fewer changes than this, in percent.",
)
@click.option(
    "--kubeconfig", default="", help="Look up what policies read in the cluster of this kubeconfig."
)
@warning_options
@click.option(
    "--kubernetes-version",
    default="",
    help="Release whose CEL admission policies use, from 1.30 to 1.37 (default 1.37).",
)
@click.option("--watch", is_flag=True, help="Run them again whenever a file changes, until Ctrl-C.")
def test(arguments: tuple[str, ...], **flags: Json) -> None:
    """Run the tests in folders or git repositories.

    A test is a file kyverno-test.yaml that names policies, resources, and the results to expect.
    """
    given = TestFlags(paths=arguments, **flags)
    if given.watch:
        _watch(given)
    run_tests(given)


def _watch(flags: TestFlags) -> NoReturn:
    """Run the tests whenever one of their files changes; ends only by an interrupt."""
    from lictor.cli.watched_files import WatchedFiles

    files = WatchedFiles(flags.paths, flags.file_name)
    while True:
        seen = files.look()
        if sys.stdout.isatty():
            click.clear()
        try:
            run_tests(flags)
        except (LictorError, OSError) as error:
            click.echo(f"Error: {LOGIN.sub('', str(error))}", err=True)
        click.echo(f"watching {len(seen)} files; Ctrl-C ends", err=True)
        while files.look() == seen:
            time.sleep(_LOOK_EVERY)


def run_tests(flags: TestFlags) -> None:
    """Run everything and print it; raises LictorError where a test fails or cannot run."""
    if flags.output_format and flags.output_format not in _FORMATS:
        raise UsageError(f"invalid format, expected ({', '.join(_FORMATS)})")
    registries = choose_registries(network=flags.registry, layout=flags.image_layout)
    run = _Run(flags, parse_selector(flags.test_case_selector), registries=registries)
    if flags.coverage or flags.fail_under:
        from lictor.cli.coverage import CoverageRun

        run.coverage = CoverageRun(run.selector.policies)
    cases = run.find_cases()
    if cases:
        with ExitStack() as stack:
            if flags.kubeconfig:
                from lictor.cli.live_cluster import LiveCluster

                run.cluster = stack.enter_context(LiveCluster(flags.kubeconfig))
            for case in cases:
                run.run_case(case)
        run.conclude()


class _Run(msgspec.Struct):
    """What has been found so far."""

    flags: TestFlags
    selector: TestSelector
    outcomes: list[TestOutcome] = msgspec.field(default_factory=list)
    errors: list[str] = msgspec.field(default_factory=list)
    registries: Registries | None = None
    coverage: "CoverageRun | None" = None
    cluster: "LiveCluster | None" = None

    def print_line(self, text: str = "") -> None:
        """Print a line for people; to standard error if standard output is for a program."""
        click.echo(text, err=bool(self.flags.output_format))

    def find_cases(self) -> list[TestCase]:
        """All tests; empty where there are none and that is no error."""
        if self.selector.errors:
            self.print_line("\nFilter errors:")
            for error in self.selector.errors:
                self.print_line(f"  Error: {error}")
        access = GitAccess(self.flags.git_branch, allow_outside=self.flags.allow_outside)
        files = [
            file
            for path in self.flags.paths
            for file in find_test_files(path, self.flags.file_name, access)
        ]
        cases, problems = load_cases(files)
        if problems:
            self._show_problems(problems)
            raise LictorError(f"found {len(problems)} errors after loading tests")
        if not cases:
            self._end_without_cases()
        return cases

    def _show_problems(self, problems: dict[str, str]) -> None:
        self.print_line("\nTest errors:")
        for path, problem in problems.items():
            self.print_line(f"  Path: {path}")
            self.print_line(f"    Error: {problem}")

    def _end_without_cases(self) -> None:
        self.print_line("\nNo test yamls available")
        if self.flags.require_tests:
            raise LictorError("no tests found")
        if self.selector.errors:
            raise LictorError(self.selector.errors[0])

    def run_case(self, case: TestCase) -> None:
        """Run one test and show its outcomes; one that cannot run does not stop the others."""
        if case.test.outdated:
            self.print_line(f"\nWARNING: test file ({case.path}) uses a deprecated schema")
            raise LictorError(
                f"test file {case.path} uses a deprecated schema - "
                f"please migrate to the latest format: {hint_at_fix(case.path)}"
            )
        rows = self._select_rows(case.test.results)
        if not rows and (case.test.results or not case.test.checks):
            return
        self.print_line(f"Loading test {case.test.metadata.name} ( {case.path} ) ...")
        try:
            outcomes = self._run_case(case, rows)
        except LictorError as error:
            self.print_line(f"  ERROR: failed to run test ({error})")
            self.errors.append(f"{case.path}: failed to run test ({error})")
            return
        self.outcomes += outcomes
        if not self.flags.fail_only and not self.flags.output_format:
            self.print_line(f"\n{self._render_table(outcomes)}")
        for outcome in outcomes:
            if outcome.error:
                self.print_line(f"  ERROR: {outcome.policy} -> {outcome.resource}: {outcome.error}")

    def _run_case(self, case: TestCase, rows: Sequence[TestResult]) -> list[TestOutcome]:
        run = CaseRun(case, self.print_line, print_notes, self.registries)
        inputs = run.load()
        if self.flags.deprecation_warnings or self.flags.warnings_as_errors:
            found = inputs.policies.deprecations
            report_deprecations(found, "  ", as_errors=self.flags.warnings_as_errors)
        version = parse_kubernetes_version(self.flags.kubernetes_version)
        inputs = replace(inputs, given=replace(inputs.given, kubernetes_version=version))
        if self.cluster is not None:
            from lictor.cli.live_cluster import LiveLookups

            inputs = replace(inputs, make_lookups=partial(LiveLookups, self.cluster))
        answers = evaluate_inputs(inputs)
        self.print_line("  Checking results ...")
        outcomes = run.compare(rows, answers)
        if self.coverage is not None:
            if all(outcome.ok for outcome in outcomes):
                self.print_line("  Changing policies ...")
                self.coverage.add(case, run, inputs, rows)
            else:
                self.print_line("  No coverage: the test fails on the policies as they are")
        return outcomes

    def _select_rows(self, results: Iterable[TestResult]) -> list[TestResult]:
        selects = compile_selector(self.selector)
        chosen = [result for result in results if selects(result)]
        named = self.selector.named_resources
        if not named:
            return chosen
        return [replace(result, resources=named) for result in chosen]

    def _render_table(self, outcomes: Iterable[TestOutcome]) -> str:
        color = wants_color(unless=self.flags.remove_color)
        return render_table(outcomes, detailed=self.flags.detailed_results, color=color)

    def conclude(self) -> None:
        """Print the summary; raise where not all is well."""
        failures = keep_failures(self.outcomes, renumber=True)
        total = len(self.outcomes)
        if self.flags.output_format:
            self._print_format(failures if self.flags.fail_only else self.outcomes)
        if self.flags.fail_only:
            self.print_line(f"\nTest Summary: {len(failures)} out of {total} tests failed\n")
        else:
            passed = sum(outcome.result is Status.PASS for outcome in self.outcomes)
            left_out = total - len(failures) - passed
            excluded = f", {left_out} excluded" if left_out else ""
            counts = f"{passed} tests passed and {len(failures)} tests failed{excluded}"
            self.print_line(f"\nTest Summary: {counts}\n")
        if failures and self.flags.fail_only and not self.flags.output_format:
            self.print_line(f"Aggregated Failed Test Cases : \n{self._render_table(failures)}")
        noticed = self._print_coverage()
        if self.errors:
            raise LictorError("; ".join(self.errors))
        if failures:
            raise LictorError(f"{len(failures)} tests failed")
        if noticed < self.flags.fail_under:
            wanted = self.flags.fail_under
            raise LictorError(f"tests notice {int(noticed)} % of changes, fewer than {wanted} %")

    def _print_coverage(self) -> float:
        if self.coverage is None:
            return 0
        report = self.coverage.report()
        for line in report.render():
            self.print_line(line)
        return report.mutants.percent

    def _print_format(self, outcomes: Iterable[TestOutcome]) -> None:
        numbered = [replace(outcome, id=number) for number, outcome in enumerate(outcomes, 1)]
        text = render_format(
            numbered, self.flags.output_format, detailed=self.flags.detailed_results
        )
        click.echo(text, nl=False)


def render_format(outcomes: Sequence[TestOutcome], name: str, *, detailed: bool) -> str:
    """Render outcomes for programs. Each renderer is imported when it is needed."""
    if name == "junit":
        from lictor.core.report.outcome_formats import render_junit

        return render_junit(outcomes, detailed=detailed)
    if name == "markdown":
        from lictor.core.report.outcome_formats import render_markdown

        return render_markdown(outcomes, detailed=detailed)
    if name == "sarif":
        from lictor.core.release import VERSION
        from lictor.core.report.sarif import render_test_sarif

        return render_test_sarif(outcomes, version=VERSION)
    from lictor.core.report.outcome_formats import render_outcomes_json, render_outcomes_yaml

    render = render_outcomes_json if name == "json" else render_outcomes_yaml
    return render(outcomes, detailed=detailed)
