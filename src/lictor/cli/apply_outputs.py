"""Renders verdicts for `apply`: text, rows, report entries, or failures with their location."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.cli.result_locations import LocateResult, locate_nowhere
from lictor.core.families.built_in import load_part
from lictor.core.model.finding import Location
from lictor.core.model.request import Request
from lictor.core.model.result import Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.outcomes import TestOutcome, list_outcomes
from lictor.core.report.policy_report import EntryWriter, ReportChunk, ReportFormat, ReportOptions
from lictor.core.report.resource_name import describe_resource, read_metadata, read_text
from lictor.core.report.result_rows import RowWriter
from lictor.core.report.summary import (
    Counts,
    count_verdicts,
    render_failures,
    render_place,
    reported_status,
)
from lictor.core.report.yaml_text import render_yaml

# Looking up a member costs more than comparing it, some forty times for each resource.
_ERROR, _MUTATION = Status.ERROR, RuleType.MUTATION


class ApplyOutput(StrEnum):
    """The output formats of `apply`."""

    TEXT = "text"
    TABLE = "table"
    REPORT = "report"
    EXCEPTIONS = "exceptions"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"
    HTML = "html"
    # Rows for a database, as JSON lines; Parquet is made of the same lines.
    JSON_LINES = "jsonl"
    PARQUET = "parquet"


# Formats that show the location of results in files; others do with `file_names`.
LOCATED_OUTPUTS = (ApplyOutput.SARIF, ApplyOutput.GITHUB, ApplyOutput.HTML)


class ChangedObject(msgspec.Struct, frozen=True):
    """An object that a policy changed or generated."""

    policy: str
    # `namespace/Kind/name` of the resource that caused it, and its name alone.
    resource: str
    name: str
    text: str
    targets: tuple[str, ...] = ()
    is_generated: bool = False


class ResourceOutput(msgspec.Struct, frozen=True):
    """The parts of one verdict that are printed; plain data that can be sent between processes."""

    counts: Counts
    text: str = ""
    made: tuple[ChangedObject, ...] = ()
    report: ReportChunk = msgspec.field(default_factory=ReportChunk)
    outcomes: tuple[TestOutcome, ...] = ()
    # The verdict without passed rules, and without the content of the resource.
    failures: Verdict | None = None
    # Where each result of `failures` points.
    locations: tuple[Location | None, ...] = ()
    # All results as a report, for the HTML file; empty if there are none.
    page_report: JsonObject = {}
    # `file:line` of the resource, for the HTML file.
    place: str = ""
    # The cluster of the resource, if clusters have names.
    cluster: str = ""


class OutputOptions(msgspec.Struct, frozen=True):
    """Options of one output format."""

    output: ApplyOutput
    format: ReportFormat = ReportFormat.YAML
    timestamp: int = 0
    audit_warn: bool = False
    # Show resources that a mutate policy matched, even if it changed nothing.
    show_unchanged: bool = False
    # The group of the API that reports are of.
    report_api: str = "openreports.io"
    # Leave out what is fine; it is counted all the same.
    failed_only: bool = False
    # Show file and line of each result in text.
    file_names: bool = False
    # The cluster of the resources; empty if clusters have no names.
    cluster: str = ""
    # How long generated exceptions are valid, in nanoseconds.
    exception_ttl: int = 0


MakeOutput: TypeAlias = Callable[[Verdict, LocateResult], ResourceOutput]


def compile_output(options: OutputOptions) -> MakeOutput:
    """Return the function that renders verdicts in one format."""
    if options.output is ApplyOutput.REPORT:
        make_output = _compile_report(options)
    elif options.output in (ApplyOutput.JSON_LINES, ApplyOutput.PARQUET):
        make_output = _compile_rows(options)
    else:
        make_output = partial(_make_output, options)
    if not options.cluster:
        return make_output
    return lambda verdict, locate: _name_cluster(make_output(verdict, locate), options.cluster)


def _compile_report(options: OutputOptions) -> MakeOutput:
    warn = options.audit_warn
    writer = EntryWriter(ReportOptions(options.format, options.timestamp, warn, options.cluster))

    def make_output(verdict: Verdict, _: LocateResult) -> ResourceOutput:
        shown = _leave_wrong(verdict, audit_warn=warn) if options.failed_only else verdict
        counts = count_verdicts((verdict,), audit_warn=warn)
        return ResourceOutput(counts, report=writer.write(shown))

    return make_output


def _compile_rows(options: OutputOptions) -> MakeOutput:
    warn = options.audit_warn
    writer = RowWriter(options.cluster, options.timestamp, audit_warn=warn)

    def make_output(verdict: Verdict, _: LocateResult) -> ResourceOutput:
        shown = _leave_wrong(verdict, audit_warn=warn) if options.failed_only else verdict
        return ResourceOutput(count_verdicts((verdict,), audit_warn=warn), text=writer.write(shown))

    return make_output


def _make_output(options: OutputOptions, verdict: Verdict, locate: LocateResult) -> ResourceOutput:
    warn = options.audit_warn
    counts = count_verdicts((verdict,), audit_warn=warn)
    shown = _leave_wrong(verdict, audit_warn=warn) if options.failed_only else verdict
    match options.output:
        case ApplyOutput.TEXT:
            text = _render_text(shown, options, locate)
            return ResourceOutput(counts, text=text, made=tuple(_list_made(shown, options)))
        case ApplyOutput.SARIF | ApplyOutput.GITHUB:
            return _make_located_output(verdict, counts, locate)
        case ApplyOutput.EXCEPTIONS:
            return ResourceOutput(counts, failures=_keep_failures(verdict))
        case ApplyOutput.HTML:
            # The page lists findings only; its totals count all results.
            return _make_page_output(verdict, counts, options, locate)
        case _:
            rows = tuple(list_outcomes((shown,), audit_warn=warn))
            made = _list_made(shown, options) if options.output is ApplyOutput.TABLE else ()
            return ResourceOutput(counts, outcomes=rows, made=tuple(made))


def _name_cluster(output: ResourceOutput, cluster: str) -> ResourceOutput:
    """Add the name of the cluster: another cluster may have a resource of the same name."""
    rows = tuple(replace(row, resource=f"{cluster}: {row.resource}") for row in output.outcomes)
    return replace(output, cluster=cluster, outcomes=rows)


def _make_located_output(verdict: Verdict, counts: Counts, locate: LocateResult) -> ResourceOutput:
    failures = _keep_failures(verdict)
    results = () if failures is None else failures.results
    return ResourceOutput(counts, failures=failures, locations=tuple(map(locate, results)))


def _make_page_output(
    verdict: Verdict, counts: Counts, options: OutputOptions, locate: LocateResult
) -> ResourceOutput:
    if not verdict.results:
        return ResourceOutput(counts)
    # Imported here: most runs print something else, and start-up time matters.
    made = load_part("page report")(verdict, options.timestamp, audit_warn=options.audit_warn)
    begin = locate(replace(verdict.results[0], failure=None))
    place = "" if begin is None else f"{begin.file}:{begin.line}"
    return ResourceOutput(counts, failures=_keep_failures(verdict), page_report=made, place=place)


def _leave_wrong(verdict: Verdict, *, audit_warn: bool) -> Verdict:
    fine = (Status.PASS, Status.SKIP)
    wrong = tuple(
        result
        for result in verdict.results
        if reported_status(result, audit_warn=audit_warn) not in fine
    )
    return replace(verdict, results=wrong)


def _render_text(verdict: Verdict, options: OutputOptions, locate: LocateResult) -> str:
    chosen = locate if options.file_names else locate_nowhere
    failures = render_failures(verdict, audit_warn=options.audit_warn, locate=chosen)
    errors = [
        result
        for result in verdict.results
        if result.status is _ERROR and result.type is not _MUTATION
    ]
    return failures + _render_errors(verdict, errors, chosen) if errors else failures


def _render_errors(verdict: Verdict, errors: Iterable[Result], locate: LocateResult) -> str:
    """Render the rules that could not be evaluated, with the reason."""
    resource = describe_resource(verdict.request.resource)
    return "".join(
        f"policy {result.policy.name} -> resource {resource} error:\n"
        f"1 - {result.rule} {result.message}\n{render_place(locate(result))}"
        for result in errors
    )


def _keep_failures(verdict: Verdict) -> Verdict | None:
    wrong = (Status.FAIL, Status.WARN, Status.ERROR)
    kept = tuple(_lighten(result) for result in verdict.results if result.status in wrong)
    if not kept:
        return None
    request = verdict.request
    small = Request(kind=request.kind, object=_keep_names(request.resource))
    return Verdict(small, kept)


def _lighten(result: Result) -> Result:
    return replace(result, patched=None, target=None, generated=())


def _keep_names(resource: JsonObject) -> JsonObject:
    metadata = read_metadata(resource)
    names = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    return {
        "apiVersion": resource.get("apiVersion"),
        "kind": resource.get("kind"),
        "metadata": names,
    }


def _list_made(verdict: Verdict, options: OutputOptions) -> Iterator[ChangedObject]:
    mutations = [result for result in verdict.results if result.type is _MUTATION]
    generations = [result for result in verdict.results if result.generated]
    if not options.show_unchanged and not generations and not any(map(_is_change, mutations)):
        return
    resource = describe_resource(verdict.request.resource)
    name = read_text(read_metadata(verdict.request.resource).get("name"))
    for policy, results in _group_by_name(mutations).items():
        changed = [result for result in results if _is_change(result)]
        if not changed and not options.show_unchanged:
            continue
        patched = next((r.patched for r in reversed(results) if r.patched is not None), None)
        shown = patched if patched is not None else verdict.request.resource
        targets = tuple(render_yaml(r.target) for r in changed if r.target is not None)
        yield ChangedObject(policy, resource, name, render_yaml(shown), targets)
    for result in generations:
        for made in result.generated:
            policy = result.policy.name
            yield ChangedObject(policy, resource, name, render_yaml(made), is_generated=True)


def _is_change(mutation: Result) -> bool:
    return mutation.status is Status.PASS


def _group_by_name(results: Iterable[Result]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.policy.name, []).append(result)
    return groups
