"""The flags of `apply`: checks them, and loads everything that they name."""

import re

import msgspec
from msgspec.structs import replace

from lictor.cli.apply_outputs import ApplyOutput, OutputOptions
from lictor.cli.apply_run import ApplyPlan
from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.input_files import (
    load_caller,
    load_context,
    load_definitions,
    load_resource_files,
    load_values_file,
    read_definitions,
    read_namespace_labels,
)
from lictor.cli.inputs.inputs import KeptInput
from lictor.cli.inputs.lookups import GivenObjects, choose_registries
from lictor.cli.inputs.policies import LoadedPolicies, load_exceptions
from lictor.cli.inputs.programs import parse_kubernetes_version
from lictor.cli.inputs.requests import GivenValues, RequestFactory
from lictor.cli.inputs.resources import LazyResources
from lictor.cli.inputs.sources import STDIN, is_url, read_any, read_file
from lictor.core.errors import UsageError
from lictor.core.lang.duration import parse_duration
from lictor.core.model.metadata import PolicyRecord
from lictor.core.report.policy_report import REPORT_APIS, ReportFormat

OWN_FORMATS = {
    "markdown": ApplyOutput.MARKDOWN,
    "junit": ApplyOutput.JUNIT,
    "sarif": ApplyOutput.SARIF,
    "github": ApplyOutput.GITHUB,
    "html": ApplyOutput.HTML,
    "jsonl": ApplyOutput.JSON_LINES,
    "parquet": ApplyOutput.PARQUET,
}


APPLY_FORMATS = ("yaml", "json", *OWN_FORMATS)
# re: linear - matched at the beginning of a path only
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
LOCAL = "local"
RAY = "ray"
RAY_ADDRESS = f"{RAY}://"
DEFAULT_TTL = "720h0m0s"
_DEFAULT_TTL = 720 * 3600 * 10**9


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
    generated_exception_ttl: str = DEFAULT_TTL
    values_file: str = ""
    set: tuple[str, ...] = ()
    userinfo: str = ""
    context_file: str = ""
    output: str = ""
    output_format: str = "yaml"
    output_file: tuple[str, ...] = ()
    failed_only: bool = False
    quiet: bool = False
    file_names: bool = False
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
    image_layout: str = ""
    kubeconfig: str = ""
    crd_path: str = ""
    crd_paths: tuple[str, ...] = ()
    deprecation_warnings: bool = False
    warnings_as_errors: bool = False
    kubernetes_version: str = ""
    parallel: int = 0
    engine: str = "local"
    cluster_from: str = ""
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
    def definition_paths(self) -> tuple[str, ...]:
        """The files with definitions of custom resources."""
        return tuple(path for path in (self.crd_path, *self.crd_paths) if path.strip())

    @property
    def chosen_output(self) -> ApplyOutput:
        if self.output_format in OWN_FORMATS:
            return OWN_FORMATS[self.output_format]
        if self.policy_report:
            return ApplyOutput.REPORT
        if self.generate_exceptions:
            return ApplyOutput.EXCEPTIONS
        # With --stdin the objects are printed as YAML for the next program.
        if self.output_format == "json" and not self.stdin:
            return ApplyOutput.REPORT
        return ApplyOutput.TABLE if self.table else ApplyOutput.TEXT


class OutputFile(msgspec.Struct, frozen=True):
    """A file and what to write into it; an empty path is standard output."""

    path: str
    options: OutputOptions


def choose_options(flags: ApplyFlags, timestamp: int) -> OutputOptions:
    """Return the options of standard output."""
    return OutputOptions(
        output=flags.chosen_output,
        format=ReportFormat.JSON if flags.output_format == "json" else ReportFormat.YAML,
        timestamp=timestamp,
        audit_warn=flags.audit_warn,
        show_unchanged=flags.stdin,
        report_api=flags.report_api,
        failed_only=flags.failed_only or flags.quiet,
        file_names=flags.file_names or flags.failed_only or flags.quiet,
        exception_ttl=(
            _DEFAULT_TTL
            if flags.generated_exception_ttl == DEFAULT_TTL
            else parse_ttl(flags.generated_exception_ttl)
        ),
    )


def list_output_files(flags: ApplyFlags, shown: OutputOptions) -> tuple[OutputFile, ...]:
    """Return the files of `--output-file`. Raises UsageError for an unknown format."""
    files: dict[str, OutputFile] = {}
    for given in flags.output_file:
        name, divider, path = given.partition("=")
        if not divider or not path or name not in APPLY_FORMATS:
            formats = ", ".join(APPLY_FORMATS)
            raise UsageError(f"--output-file {given}: give FORMAT=FILE, FORMAT one of {formats}")
        if path in (*files, flags.output):
            raise UsageError(f"--output-file {given}: {path} is named twice")
        form = ReportFormat.JSON if name == "json" else ReportFormat.YAML
        output = OWN_FORMATS.get(name, ApplyOutput.REPORT)
        files[path] = OutputFile(path, replace(shown, output=output, format=form))
    return tuple(files.values())


def parse_ttl(text: str) -> int:
    """Return a duration in nanoseconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--generated-exception-ttl: {text!r} is not a duration") from error


def check_flags(flags: ApplyFlags) -> None:
    """Raise UsageError for flags that are missing, unknown or contradictory."""
    payloads = flags.json + flags.http_payload + flags.envoy_payload
    formats = ", ".join(APPLY_FORMATS)
    faults = {
        "pass the values either using set flag or values_file flag": flags.values_file
        and flags.set,
        "require policy": not (flags.policies or flags.cluster),
        "a stdin pipe can be used for either policies or resources, not both": STDIN
        in flags.policies
        and STDIN in flags.resource_paths,
        "crd-paths and kubeconfig flags are mutually exclusive, please use only one of them": (
            flags.kubeconfig.strip() and flags.definition_paths
        ),
        "both resource and json files can not be used together, use one or the other": (
            flags.resource_paths and flags.json
        ),
        "resource file(s) or cluster required": not (
            flags.resource_paths or payloads or flags.cluster
        ),
        f"unknown output format {flags.output_format!r}: choose one of {formats}": (
            flags.output_format not in APPLY_FORMATS
        ),
        "parquet is not for terminals: name its file by --output": (
            flags.output_format == "parquet" and not flags.output
        ),
        f"unknown API of reports {flags.report_api!r}: choose one of {', '.join(REPORT_APIS)}": (
            flags.report_api not in REPORT_APIS
        ),
    }
    for message, wrong in faults.items():
        if wrong:
            raise UsageError(message)
    if is_fleet(flags):
        _check_fleet(flags)


def make_plan(
    flags: ApplyFlags,
    policies: LoadedPolicies,
    inputs: DocumentReader,
) -> ApplyPlan:
    """Load what the flags name."""
    caller = load_caller(flags.userinfo, accept_outdated=True) if flags.userinfo else None
    payloads = {"JSON": flags.json, "HTTP": flags.http_payload, "Envoy": flags.envoy_payload}
    for mode, paths in payloads.items():
        for text in map(read_any, paths):
            inputs.add(KeptInput(text.path, text.content), mode)
    file = load_values_file(flags.values_file) if flags.values_file else None
    has_namespaces = inputs.may_hold(b"Namespace")
    namespaces = read_namespace_labels(inputs.find) if has_namespaces else {}
    return ApplyPlan(
        policies=policies,
        inputs=inputs,
        requests=RequestFactory(GivenValues(file, flags.set), caller, namespaces),
        given=_collect_objects(flags, policies, inputs),
        exceptions=_find_exceptions(flags, policies, inputs),
        modes=tuple(mode for mode, paths in payloads.items() if paths),
        paths=flags.resource_paths,
        continue_on_fail=flags.continue_on_fail,
        processes=flags.parallel,
    )


def _collect_objects(
    flags: ApplyFlags, policies: LoadedPolicies, inputs: DocumentReader
) -> GivenObjects:
    """Return the objects that policies may look up, change, copy or use as parameters."""
    given = GivenObjects(crds=policies.crds, evaluated=LazyResources(inputs.find))
    if flags.registry or flags.image_layout:
        registries = choose_registries(network=flags.registry, layout=flags.image_layout)
        given = replace(given, registries=registries)
    target_paths = flags.target_resource + flags.target_resources
    if flags.kubernetes_version:
        release = parse_kubernetes_version(flags.kubernetes_version)
        given = replace(given, kubernetes_version=release)
    if target_paths or flags.parameter_resource:
        params = tuple(load_resource_files(flags.parameter_resource))
        targets = (*load_resource_files(target_paths), *params)
        given = replace(given, objects=targets if target_paths or params else None, params=params)
    if flags.crd_path or flags.crd_paths:
        given = replace(given, crds=(*given.crds, *load_definitions(flags.definition_paths)))
    if inputs.may_hold(b"CustomResourceDefinition"):
        found = read_definitions(inputs.select(b"CustomResourceDefinition"))
        given = replace(given, crds=(*given.crds, *found))
    return load_context(flags.context_file, given) if flags.context_file else given


def _find_exceptions(
    flags: ApplyFlags, policies: LoadedPolicies, inputs: DocumentReader
) -> tuple[PolicyRecord, ...]:
    found: tuple[PolicyRecord, ...] = ()
    if flags.exceptions_with_resources or flags.exceptions_within_resources:
        found = load_exceptions(inputs.select(b"PolicyException"))
    elif flags.exception or flags.exceptions:
        found = load_exceptions(map(read_file, flags.exception + flags.exceptions))
    return (*found, *policies.exceptions) if flags.exceptions_within_policies else found


def is_address(path: str) -> bool:
    """Whether a path is read through fsspec."""
    return ADDRESS.match(path) is not None and not is_url(path)


def is_ray(engine: str) -> bool:
    """Whether an engine is Ray, with or without the address of a Ray cluster."""
    return engine == RAY or engine.startswith(RAY_ADDRESS)


def is_fleet(flags: ApplyFlags) -> bool:
    """Whether files are evaluated by other machines, by cluster, or are in an object store."""
    return (
        flags.engine != LOCAL
        or bool(flags.cluster_from)
        or any(is_address(path) for path in flags.resource_paths if "://" in path)
    )


def _check_fleet(flags: ApplyFlags) -> None:
    """Raise UsageError for flags that contradict each other."""
    faults = {
        f"unknown engine {flags.engine!r}: choose {LOCAL}, {RAY} or {RAY_ADDRESS}ADDRESS": (
            flags.engine != LOCAL and not is_ray(flags.engine)
        ),
        f"--engine {RAY_ADDRESS}: the address is missing": flags.engine == RAY_ADDRESS,
        "--cluster reads a live cluster: it needs --engine local, and no --cluster-from": (
            flags.cluster
        ),
        "payloads (--json, --http-payload, --envoy-payload) need --engine local": (
            flags.json or flags.http_payload or flags.envoy_payload
        ),
        "no resources were named: give files, folders, patterns or addresses by --resource": (
            not flags.resource_paths
        ),
        "standard input cannot be shared out: give files, folders or addresses": (
            STDIN in flags.resource_paths
        ),
    }
    for message, wrong in faults.items():
        if wrong:
            raise UsageError(message)
