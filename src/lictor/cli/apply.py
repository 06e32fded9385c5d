"""`apply`: evaluates policies on resources from files or from a cluster."""

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lictor.cli.apply_outputs import ApplyOutput
from lictor.cli.apply_plan import (
    APPLY_FORMATS,
    DEFAULT_TTL,
    ApplyFlags,
    OutputFile,
    check_flags,
    choose_options,
    is_fleet,
    list_output_files,
    make_plan,
)
from lictor.cli.apply_printer import ApplyPrinter, PrinterFlags
from lictor.cli.apply_run import COLLECT_AFTER, ApplyRun, DocumentResult
from lictor.cli.deprecations import report_deprecations, warning_options
from lictor.cli.flag_command import FlagCommand, WordText, print_notes, slice_option
from lictor.cli.inputs.document_reader import DocumentReader, open_resources
from lictor.cli.inputs.policies import LoadedPolicies, load_policy_files
from lictor.cli.inputs.repositories import GitAccess
from lictor.cli.inputs.shards import Shard
from lictor.cli.inputs.sources import PolicySource, hide_credentials, read_policies
from lictor.cli.terminal import shows_progress, track, wants_color
from lictor.core.errors import LoadError
from lictor.core.families.built_in import load_part
from lictor.core.garbage import keeping_garbage
from lictor.core.raw import Json
from lictor.core.report.policy_report import REPORT_APIS
from lictor.core.report.summary import Counts, render_counts

if TYPE_CHECKING:
    from lictor.cli.live_resources import LiveRun


_EXAMPLES = """\
# Apply a policy to a resource
lictor apply policy.yaml --resource resource.yaml

# Apply all policies of a folder to all resources of a folder, and print a report
lictor apply policies/ --resource resources/ --policy-report

# Take values for variables from a file
lictor apply policy.yaml --resource resource.yaml --values-file values.yaml

# Take policies from a git repository
lictor apply https://github.com/OWNER/REPOSITORY/FOLDER --git-branch main --resource r.yaml

# Apply a policy to the resources of a cluster; without a policy, those that the cluster has
lictor apply policy.yaml --cluster

# Show what is wrong beside the lines of a pull request
lictor apply policies/ --resource resources/ --output-format sarif

# Show only what failed, and write reports for programs in the same run
lictor apply policies/ -r resources/ --failed-only --output-file sarif=r.sarif,junit=r.xml

# Write one HTML file for people
lictor apply policies/ --resource resources/ --output-format html --output report.html"""


@click.command(
    cls=FlagCommand,
    arity=(0, None),
    examples=_EXAMPLES,
    short_help="Apply policies to resources.",
)
@slice_option("-r", "--resource", help="Path to resource files.")
@slice_option("--resources", help="Path to resource files.")
@slice_option("--target-resource", help="Files with objects that mutate-existing rules change.")
@slice_option("--target-resources", help="Folder with objects that mutate-existing rules change.")
@slice_option("--parameter-resource", help="Files with parameters of admission policies.")
@slice_option("--json", help="Path to JSON payload files.")
@slice_option("--http-payload", help="Path to HTTP check request payload files (JSON).")
@slice_option("--envoy-payload", help="Path to Envoy check request payload files (JSON).")
@slice_option("-e", "--exception", help="Policy exceptions to consider.")
@slice_option("--exceptions", help="Policy exceptions to consider.")
@slice_option("-s", "--set", help="Values of variables: NAME=VALUE.")
@click.option("-f", "--values-file", default="", help="File with values of variables.")
@click.option("-u", "--userinfo", default="", help="File with the user of the requests.")
@click.option("--context-file", default="", help="File with objects and images policies may read.")
@click.option(
    "-o",
    "--output",
    default="",
    help="File for a report; file or folder for mutated and generated objects.",
)
@click.option(
    "--output-format",
    type=WordText(APPLY_FORMATS),
    default="yaml",
    help="yaml, json, markdown, junit, sarif, github or html (default yaml).",
)
@slice_option(
    "--output-file", help="Write another format to a file, FORMAT=FILE; may be given several times."
)
@click.option("--failed-only", is_flag=True, help="Show only what failed, and where.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but what failed, and where.")
@click.option("--file-names", is_flag=True, help="Show file, line and column in text.")
@click.option(
    "--report-api",
    type=WordText(REPORT_APIS),
    default="openreports.io",
    help="API group of policy reports: openreports.io (default) or wgpolicyk8s.io.",
)
@click.option("-p", "--policy-report", is_flag=True, help="Print a policy report.")
@click.option("-t", "--table", is_flag=True, help="Show results in a table.")
@click.option("--detailed-results", is_flag=True, help="Show messages in the table.")
@click.option("--remove-color", is_flag=True, help="Remove any color from output.")
@click.option(
    "-i", "--stdin", is_flag=True, help="Print only objects, for the next program in a pipe."
)
@click.option("--audit-warn", is_flag=True, help="Failures of audit policies are warnings.")
@click.option(
    "--warn-exit-code", type=int, default=0, help="Exit code for warnings if there are no failures."
)
@click.option("--warn-no-pass", is_flag=True, help="Also exit with that code if nothing passes.")
@click.option(
    "--continue-on-fail", is_flag=True, help="Continue after a resource that fails to load."
)
@click.option("--exceptions-with-resources", is_flag=True, help="Find exceptions among resources.")
@click.option(
    "--exceptions-within-resources", is_flag=True, help="Find exceptions among resources."
)
@click.option("--exceptions-within-policies", is_flag=True, help="Find exceptions among policies.")
@click.option("--generate-exceptions", is_flag=True, help="Print an exception per violation.")
@click.option(
    "--generated-exception-ttl", default=DEFAULT_TTL, help="Time to live of generated exceptions."
)
@click.option("-b", "--git-branch", default="", help="Branch of the git repository.")
@click.option("--username", default="", help="User name for the git repository.")
@click.option("--password", default="", help="Password for the git repository.")
@click.option(
    "--parallel", type=int, default=0, help="Number of processes (0: chosen by the work)."
)
@click.option(
    "--engine",
    default="local",
    help="Where to evaluate: local, ray or ray://ADDRESS (default local).",
)
@click.option(
    "--cluster-from",
    default="",
    help="Where paths name their cluster, as 'snapshots/{cluster}/*.json'.",
)
@click.option("-c", "--cluster", is_flag=True, help="Evaluate the resources of a cluster.")
@click.option("--registry", is_flag=True, help="Query image registries.")
@click.option("--image-layout", default="", help="OCI layout folder to use instead of registries.")
@click.option("--kubeconfig", default="", help="Path to the kubeconfig file.")
@slice_option("--crd-paths", help="Paths to definitions of custom resources.")
@click.option("--crd-path", default="", help="Deprecated: use --crd-paths.")
@warning_options
@click.option(
    "--kubernetes-version",
    default="",
    help="Release whose CEL admission policies use, from 1.30 to 1.37 (default 1.37).",
)
@click.option("--context", default="", help="Context of the kubeconfig file.")
@click.option("-n", "--namespace", default="", help="Namespace, with --cluster.")
@click.option("--cluster-wide-resources", is_flag=True, help="Only cluster-scoped resources.")
@click.option("--concurrent", type=int, default=1, help="Collections to read at the same time.")
@click.option("--batch-size", type=int, default=100, help="Resources to fetch per API call.")
@click.option(
    "--continue-on-error", is_flag=True, default=True, help="Continue after a failed fetch."
)
@click.option("--show-performance", is_flag=True, help="Show how long fetching took.")
def apply(**flags: Json) -> None:
    """Apply policies to resources: validate, mutate and generate.

    Policies are files, folders, URLs, git repositories, or - for standard input.
    """
    known = {name: value for name, value in flags.items() if name in ApplyFlags.__struct_fields__}
    raise SystemExit(run_apply(ApplyFlags(policies=flags["arguments"], **known)))


def run_apply(flags: ApplyFlags) -> int:
    """Read, evaluate and print; return the exit code."""
    check_flags(flags)
    if flags.crd_path:
        click.echo("Flag --crd-path has been deprecated, use --crd-paths instead", err=True)
    printer = _open_printer(flags)
    with _open_run(flags, printer) as run:
        gc.set_threshold(COLLECT_AFTER)
        _print_header(flags, run, printer)
        results: Iterable[DocumentResult] = run.evaluate()
        if shows_progress() and not flags.quiet:
            results = track(results, run.count, "Evaluating")
        for result in results:
            printer.add(result)
        printer.finish()
        if run.plan.policies.deletions and not flags.quiet:
            _print_cleanups(run, printer)
    if flags.chosen_output is ApplyOutput.TEXT and not flags.quiet:
        printer.print_message(f"\n{render_counts(printer.counts)}")
    return choose_exit_code(printer.counts, flags, printer)


def _open_printer(flags: ApplyFlags) -> ApplyPrinter:
    options = choose_options(flags, int(time.time()))
    shown = PrinterFlags(
        color=wants_color(unless=flags.remove_color),
        detailed=flags.detailed_results,
        piped=flags.stdin,
        quiet=flags.quiet,
    )
    files = list_output_files(flags, options) if flags.output_file else ()
    return ApplyPrinter(OutputFile(flags.output, options), shown, files)


@contextmanager
def _open_run(flags: ApplyFlags, printer: ApplyPrinter) -> Iterator[ApplyRun]:
    """Load policies and resources, and compile; connections are closed at the end."""
    if is_fleet(flags):
        policies = _load_policies(flags, printer)
        with load_part("fleet")(flags, policies, printer.options, printer.print_message) as run:
            yield run
    elif flags.cluster:
        # Imported here, as below: most runs need no cluster, and start-up time matters.
        from lictor.cli.live_resources import open_live

        with open_live(flags) as live:
            yield _build_run(flags, printer, live)
    else:
        yield _build_run(flags, printer)


def _build_run(flags: ApplyFlags, printer: ApplyPrinter, live: "LiveRun | None" = None) -> ApplyRun:
    with keeping_garbage(freezing=True):
        policies = _load_policies(flags, printer, live)
    paths = flags.resource_paths if live is None else live.files
    watch = _show_reading if shows_progress() and not flags.quiet else None
    inputs = DocumentReader(open_resources(paths, printer.print_message), watch=watch)
    plan = make_plan(flags, policies, inputs)
    with keeping_garbage(freezing=True):
        if live is not None:
            return live.build(live.complete(plan), printer.options)
        run = ApplyRun(plan, printer.options)
        if run.process_count > 1:
            run.compile_first()
    return run


def _show_reading(shards: Iterable[Shard], size: int) -> Iterable[Shard]:
    return track(shards, size, "Reading", measure=lambda shard: shard.size)


def _print_header(flags: ApplyFlags, run: ApplyRun, printer: ApplyPrinter) -> None:
    """Print warnings and what is evaluated. Raises LoadError if there are no resources."""
    plan = run.plan
    for ignored in plan.requests.values.ignored_settings:
        click.echo(f"warning: --set {ignored}: not of the form NAME=VALUE, ignored", err=True)
    for skipped in run.skipped:
        click.echo(f"warning: {skipped}", err=True)
    if plan.paths and not run.count:
        # A wrong folder must not look like a pass.
        shown = ", ".join(map(hide_credentials, plan.paths))
        raise LoadError(f"no resources were found in {shown}")
    is_shown = flags.chosen_output in (ApplyOutput.TEXT, ApplyOutput.TABLE)
    if is_shown and not flags.stdin and not flags.quiet:
        rules = run.rule_count + len(plan.policies.unusable)
        text = f"\nApplying {rules} policy rule(s) to {run.count} resource(s)"
        if plan.exceptions:
            text += f" with {len(plan.exceptions)} exception(s)"
        printer.print_message(f"{text}...")
    if run.unusable_count:
        printer.counts += Counts(errors=run.unusable_count)
        printer.print_unusable(plan.policies)


def _print_cleanups(run: ApplyRun, printer: ApplyPrinter) -> None:
    """Print what deletion policies would delete; this is not a verdict and is not counted."""
    from lictor.cli.deletions import list_cleanups

    for cluster, plan in run.list_plans():
        if cluster:
            printer.print_message(f"\ncluster {cluster}:")
        for line in list_cleanups(plan):
            printer.print_message(line)


def choose_exit_code(counts: Counts, flags: ApplyFlags, printer: ApplyPrinter) -> int:
    """Return 1 for failures and errors; else the code for warnings, if there are any."""
    if counts.failed or counts.errors:
        return 1
    if counts.warned and flags.warn_exit_code:
        printer.print_message(f"exit as warnExitCode is {flags.warn_exit_code}")
        return flags.warn_exit_code
    if not counts.passed and flags.warn_no_pass:
        printer.print_message("exit as no objects satisfied policy")
        return flags.warn_exit_code
    return 0


def _load_policies(
    flags: ApplyFlags, printer: ApplyPrinter, live: "LiveRun | None" = None
) -> LoadedPolicies:
    if live is not None and not flags.policies:
        texts = tuple(live.read_policies())
    else:
        access = GitAccess(flags.git_branch, flags.username, flags.password)
        texts = tuple(read_policies(flags.policies, PolicySource(access)))
    printer.policy_texts = texts
    needs_deprecations = flags.deprecation_warnings or flags.warnings_as_errors
    policies = load_policy_files(texts, with_deprecations=needs_deprecations)
    for warning in policies.warnings:
        click.echo(f"warning: {warning}", err=True)
    if needs_deprecations:
        report_deprecations(policies.deprecations, "", as_errors=flags.warnings_as_errors)
    if policies.notes:
        print_notes(policies.notes)
    if not (policies.policies or policies.unusable or policies.deletions):
        if flags.policies:
            # A wrong file name must not look like a pass.
            raise LoadError(f"no policies were found in {', '.join(flags.policies)}")
        printer.print_message("no policies were found")
    return policies
