"""`apply`: evaluates policies on resources from files or from a cluster."""

import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from lictor.cli.apply_output import ApplyPrinter, print_summary, print_unusable
from lictor.cli.flag_command import FlagCommand, WordText, slice_option
from lictor.errors import LoadError, UsageError
from lictor.lang.duration import parse_duration
from lictor.model.metadata import PolicyRecord
from lictor.offline.apply_run import (
    ApplyOutput,
    ApplyPlan,
    ApplyRun,
    OutputOptions,
    select_documents,
)
from lictor.offline.inputs import (
    load_caller,
    load_context,
    load_definitions,
    load_values_file,
    read_definitions,
    read_resource_texts,
)
from lictor.offline.lookups import GivenObjects
from lictor.offline.notes import tell_notes
from lictor.offline.policies import (
    LoadedPolicies,
    load_exceptions,
    load_policy_files,
)
from lictor.offline.repositories import GitAccess
from lictor.offline.requests import GivenValues, RequestFactory
from lictor.offline.resources import load_resources
from lictor.offline.sources import (
    STDIN,
    PolicySource,
    SourceText,
    read_any,
    read_file,
    read_policies,
)
from lictor.raw import Json, JsonObject
from lictor.report.policy_report import REPORT_APIS, ReportFormat
from lictor.report.summary import Counts

if TYPE_CHECKING:
    from lictor.cli.live_resources import LiveRun

_OWN_FORMATS = {
    "markdown": ApplyOutput.MARKDOWN,
    "junit": ApplyOutput.JUNIT,
    "sarif": ApplyOutput.SARIF,
}
_FORMATS = ("yaml", "json", *_OWN_FORMATS)
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
lictor apply policies/ --resource resources/ --output-format sarif"""


class ApplyFlags(msgspec.Struct, frozen=True):
    """The flags of `apply`, by the names that click gives them."""

    policies: tuple[str, ...] = ()
    resource: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    target_resource: tuple[str, ...] = ()
    target_resources: tuple[str, ...] = ()
    parameter_resource: tuple[str, ...] = ()
    exception: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    exceptions_with_resources: bool = False
    exceptions_within_resources: bool = False
    exceptions_within_policies: bool = False
    generate_exceptions: bool = False
    generated_exception_ttl: str = "720h0m0s"
    values_file: str = ""
    set: tuple[str, ...] = ()
    userinfo: str = ""
    context_file: str = ""
    output: str = ""
    output_format: str = "yaml"
    report_api: str = "openreports.io"
    policy_report: bool = False
    table: bool = False
    detailed_results: bool = False
    remove_color: bool = False
    stdin: bool = False
    audit_warn: bool = False
    warn_exit_code: int = 0
    warn_no_pass: bool = False
    continue_on_fail: bool = False
    git_branch: str = ""
    username: str = ""
    password: str = ""
    cluster: bool = False
    registry: bool = False
    kubeconfig: str = ""
    crd_path: str = ""
    parallel: int = 0
    json: tuple[str, ...] = ()
    http_payload: tuple[str, ...] = ()
    envoy_payload: tuple[str, ...] = ()
    # With a cluster.
    context: str = ""
    namespace: str = ""
    cluster_wide_resources: bool = False
    concurrent: int = 1
    batch_size: int = 100
    continue_on_error: bool = True
    show_performance: bool = False

    @property
    def resource_paths(self) -> tuple[str, ...]:
        return self.resource + self.resources

    @property
    def chosen_output(self) -> ApplyOutput:
        if self.output_format in _OWN_FORMATS:
            return _OWN_FORMATS[self.output_format]
        if self.policy_report:
            return ApplyOutput.REPORT
        if self.generate_exceptions:
            return ApplyOutput.EXCEPTIONS
        # Objects for the next program stay what they are; for everything else JSON is JSON.
        if self.output_format == "json" and not self.stdin:
            return ApplyOutput.REPORT
        return ApplyOutput.TABLE if self.table else ApplyOutput.TEXT


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
@click.option("-u", "--userinfo", default="", help="File that says who asks, with roles.")
@click.option("--context-file", default="", help="File with objects and images policies may read.")
@click.option(
    "-o",
    "--output",
    default="",
    help="File for a report; file or folder for objects that are made.",
)
@click.option(
    "--output-format",
    type=WordText(_FORMATS),
    default="yaml",
    help="yaml, json, markdown, junit or sarif (default yaml).",
)
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
    "-i", "--stdin", is_flag=True, help="Print nothing but objects, for the next program."
)
@click.option("--audit-warn", is_flag=True, help="Failures of audit policies are warnings.")
@click.option("--warn-exit-code", type=int, default=0, help="Exit code where all is warnings.")
@click.option("--warn-no-pass", is_flag=True, help="Nothing that passes is a warning too.")
@click.option("--continue-on-fail", is_flag=True, help="Go on after a resource that breaks.")
@click.option("--exceptions-with-resources", is_flag=True, help="Find exceptions among resources.")
@click.option(
    "--exceptions-within-resources", is_flag=True, help="Find exceptions among resources."
)
@click.option("--exceptions-within-policies", is_flag=True, help="Find exceptions among policies.")
@click.option("--generate-exceptions", is_flag=True, help="Print an exception per violation.")
@click.option("--generated-exception-ttl", default="720h0m0s", help="How long those shall live.")
@click.option("-b", "--git-branch", default="", help="Branch of the git repository.")
@click.option("--username", default="", help="User name for the git repository.")
@click.option("--password", default="", help="Password for the git repository.")
@click.option("--parallel", type=int, default=0, help="Processes to use (0: what pays off).")
@click.option("-c", "--cluster", is_flag=True, help="Judge the resources of a cluster.")
@click.option("--registry", is_flag=True, help="Ask image registries.")
@click.option("--kubeconfig", default="", help="Path to the kubeconfig file.")
@click.option("--crd-path", default="", help="Path to definitions of custom resources.")
@click.option("--context", default="", help="Context of the kubeconfig file.")
@click.option("-n", "--namespace", default="", help="Namespace, with --cluster.")
@click.option("--cluster-wide-resources", is_flag=True, help="Only what has no namespace.")
@click.option("--concurrent", type=int, default=1, help="Workers that read from the cluster.")
@click.option("--batch-size", type=int, default=100, help="Resources to fetch per API call.")
@click.option("--continue-on-error", is_flag=True, default=True, help="Go on after a failed fetch.")
@click.option("--show-performance", is_flag=True, help="Show how long fetching took.")
def apply(**flags: Json) -> None:
    """Apply policies to resources: say what passes and what fails, change and generate.

    Policies are files, folders, URLs, git repositories, or - for standard input.
    """
    raise SystemExit(run_apply(_read_flags(flags)))


def run_apply(flags: ApplyFlags) -> int:
    """Everything that `apply` does; gives its exit code."""
    _check_flags(flags)
    if not flags.cluster:
        return _run(flags, None)
    from lictor.cli.live_cluster import LiveCluster
    from lictor.cli.live_resources import ResourceChoice, begin_run

    choice = ResourceChoice(
        namespace=flags.namespace,
        cluster_wide_only=flags.cluster_wide_resources,
        page=flags.batch_size,
        at_once=flags.concurrent,
        continue_on_error=flags.continue_on_error,
    )
    with LiveCluster(flags.kubeconfig, flags.context) as cluster:
        performance = flags.show_performance
        live = begin_run(cluster, flags.resource_paths, choice, show_performance=performance)
        return _run(flags, live)


def _run(flags: ApplyFlags, live: "LiveRun | None") -> int:
    options = OutputOptions(
        output=flags.chosen_output,
        format=ReportFormat.JSON if flags.output_format == "json" else ReportFormat.YAML,
        timestamp=int(time.time()),
        audit_warn=flags.audit_warn,
        show_unchanged=flags.stdin,
        report_api=flags.report_api,
    )
    color = not flags.remove_color and sys.stdout.isatty()
    printer = ApplyPrinter(options, color=color, detailed=flags.detailed_results, piped=flags.stdin)
    if flags.output:
        printer.write_to(flags.output)
    policies = _load_policies(flags, printer, live)
    files = flags.resource_paths if live is None else live.files
    texts = tuple(read_resource_texts(files, printer.say))
    plan = _make_plan(flags, policies, texts, live)
    application = ApplyRun(plan, options) if live is None else live.build(plan, options)
    _print_banner(flags, application, plan, printer)
    printer.counts += application.unusable_count
    print_unusable(policies, printer)
    printer.print_all(application, parse_ttl(flags.generated_exception_ttl))
    _print_cleanups(plan, printer, live)
    if options.output is ApplyOutput.TEXT:
        print_summary(printer)
    return choose_exit_code(printer.counts, flags, printer)


def _print_cleanups(plan: ApplyPlan, printer: ApplyPrinter, live: "LiveRun | None") -> None:
    """What policies would delete; that is no verdict, and counts for nothing."""
    if not plan.policies.deletions:
        return
    from lictor.offline.deletions import list_cleanups

    for line in list_cleanups(plan, None if live is None else live.find_resources):
        printer.say(line)


def choose_exit_code(counts: Counts, flags: ApplyFlags, printer: ApplyPrinter) -> int:
    """1 for failures and errors; the code for warnings where there is nothing worse."""
    if counts.failed or counts.errors:
        return 1
    if counts.warned and flags.warn_exit_code:
        printer.say(f"exit as warnExitCode is {flags.warn_exit_code}")
        return flags.warn_exit_code
    if not counts.passed and flags.warn_no_pass:
        printer.say("exit as no objects satisfied policy")
        return flags.warn_exit_code
    return 0


def parse_ttl(text: str) -> int:
    """A duration in nanoseconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--generated-exception-ttl: {text!r} is not a duration") from error


def _read_flags(flags: dict[str, Json]) -> ApplyFlags:
    known = {name: value for name, value in flags.items() if name in ApplyFlags.__struct_fields__}
    return ApplyFlags(policies=flags["arguments"], **known)


def _check_flags(flags: ApplyFlags) -> None:
    payloads = flags.json + flags.http_payload + flags.envoy_payload
    faults = {
        "pass the values either using set flag or values_file flag": flags.values_file
        and flags.set,
        "require policy": not (flags.policies or flags.cluster),
        "a stdin pipe can be used for either policies or resources, not both": STDIN
        in flags.policies[:1]
        and STDIN in flags.resource_paths[:1],
        "crdpath and kubeconfig flags are mutually exclusive, please use only one of them": (
            flags.crd_path.strip() and flags.kubeconfig.strip()
        ),
        "both resource and json files can not be used together, use one or the other": (
            flags.resource_paths and flags.json
        ),
        "resource file(s) or cluster required": not (
            flags.resource_paths or payloads or flags.cluster
        ),
        f"unknown output format {flags.output_format!r}: choose one of {', '.join(_FORMATS)}": (
            flags.output_format not in _FORMATS
        ),
        f"unknown API of reports {flags.report_api!r}: choose one of {', '.join(REPORT_APIS)}": (
            flags.report_api not in REPORT_APIS
        ),
    }
    for message, wrong in faults.items():
        if wrong:
            raise UsageError(message)


def _load_policies(
    flags: ApplyFlags, printer: ApplyPrinter, live: "LiveRun | None"
) -> LoadedPolicies:
    if live is not None and not flags.policies:
        policies = load_policy_files(live.read_policies())
    else:
        access = GitAccess(flags.git_branch, flags.username, flags.password)
        policies = load_policy_files(read_policies(flags.policies, PolicySource(access)))
    for warning in policies.warnings:
        click.echo(f"warning: {warning}", err=True)
    tell_notes(policies.notes)
    if flags.registry:
        click.echo("warning: --registry: asking registries comes with a later release", err=True)
    if not (len(policies) or policies.unusable or policies.deletions):
        if flags.policies:
            # Nothing was judged: whoever names a wrong file must not take that for a pass.
            raise LoadError(f"no policies were found in {', '.join(flags.policies)}")
        printer.say("no policies were found")
    return policies


def _make_plan(
    flags: ApplyFlags,
    policies: LoadedPolicies,
    texts: tuple[SourceText, ...],
    live: "LiveRun | None",
) -> ApplyPlan:
    caller = load_caller(flags.userinfo, accept_outdated=True) if flags.userinfo else None
    payloads = {"JSON": flags.json, "HTTP": flags.http_payload, "Envoy": flags.envoy_payload}
    exceptions = _find_exceptions(flags, policies, texts)
    if live is not None and not flags.policies:
        exceptions += live.load_exceptions()
    plan = ApplyPlan(
        policies=policies,
        texts=texts,
        requests=RequestFactory(_read_values(flags), caller),
        given=_collect_objects(flags, policies, texts),
        exceptions=exceptions,
        payloads={mode: tuple(map(read_any, paths)) for mode, paths in payloads.items() if paths},
        continue_on_fail=flags.continue_on_fail,
        processes=flags.parallel,
    )
    return plan if live is None else live.complete(plan)


def _collect_objects(
    flags: ApplyFlags, policies: LoadedPolicies, texts: tuple[SourceText, ...]
) -> GivenObjects:
    """The objects that policies may find, change, copy or take as parameters."""
    params = _load_objects(flags.parameter_resource)
    target_paths = flags.target_resource + flags.target_resources
    targets = (*_load_objects(target_paths), *params)
    definitions = (
        *policies.crds,
        *load_definitions([flags.crd_path] if flags.crd_path.strip() else ()),
        *read_definitions(select_documents(texts, b"CustomResourceDefinition")),
    )
    given = GivenObjects(
        objects=targets if target_paths or params else None, params=params, crds=definitions
    )
    return load_context(flags.context_file, given) if flags.context_file else given


def _load_objects(paths: tuple[str, ...]) -> tuple[JsonObject, ...]:
    return tuple(
        resource
        for text in read_resource_texts(paths)
        for resource in load_resources(text.content, text.path)
    )


def _read_values(flags: ApplyFlags) -> GivenValues:
    file = load_values_file(flags.values_file) if flags.values_file else None
    values = GivenValues(file, flags.set)
    for ignored in values.ignored_settings:
        click.echo(f"warning: --set {ignored}: not of the form NAME=VALUE, ignored", err=True)
    return values


def _find_exceptions(
    flags: ApplyFlags, policies: LoadedPolicies, texts: tuple[SourceText, ...]
) -> tuple[PolicyRecord, ...]:
    if flags.exceptions_with_resources or flags.exceptions_within_resources:
        found = load_exceptions(select_documents(texts, b"PolicyException"))
    else:
        found = load_exceptions(map(read_file, flags.exception + flags.exceptions))
    return (*found, *policies.exceptions) if flags.exceptions_within_policies else found


def _print_banner(
    flags: ApplyFlags, application: ApplyRun, plan: ApplyPlan, printer: ApplyPrinter
) -> None:
    if flags.chosen_output not in (ApplyOutput.TEXT, ApplyOutput.TABLE) or flags.stdin:
        return
    rules = application.rule_count + len(plan.policies.unusable)
    text = f"\nApplying {rules} policy rule(s) to {application.count} resource(s)"
    if len(plan.exceptions):
        text += f" with {len(plan.exceptions)} exception(s)"
    printer.say(f"{text}...")
