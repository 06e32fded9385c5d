"""What one resource adds to the output of `apply`: made where it is judged, printed elsewhere."""

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lictor.model.request import Request
from lictor.model.result import Result, RuleType, Status, Verdict
from lictor.raw import JsonObject
from lictor.report.policy_report import EntryWriter, Format, ReportChunk, ReportOptions
from lictor.report.resource_name import describe_resource, read_metadata, read_text
from lictor.report.rows import list_outcomes
from lictor.report.summary import Counts, count_verdicts, render_failures
from lictor.report.test_outcome import TestOutcome
from lictor.report.yaml_text import render_yaml


class Output(StrEnum):
    """What `apply` prints."""

    TEXT = "text"
    TABLE = "table"
    REPORT = "report"
    EXCEPTIONS = "exceptions"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    SARIF = "sarif"


class Made(msgspec.Struct, frozen=True):
    """An object that a policy changed or made."""

    policy: str
    # `namespace/Kind/name` of the resource that caused it, and its name alone.
    resource: str
    name: str
    text: str
    targets: tuple[str, ...] = ()
    is_generated: bool = False


class Piece(msgspec.Struct, frozen=True):
    """Everything the parent needs of one verdict; plain data that can travel between processes."""

    counts: Counts
    text: str = ""
    made: tuple[Made, ...] = ()
    report: ReportChunk = msgspec.field(default_factory=ReportChunk)
    outcomes: tuple[TestOutcome, ...] = ()
    # The verdict without what was fine, and without the resource's content.
    failures: Verdict | None = None


class PieceOptions(msgspec.Struct, frozen=True):
    """What the output needs."""

    output: Output
    format: Format = Format.YAML
    timestamp: int = 0
    audit_warn: bool = False
    # Show resources that a mutate policy was asked about even where it changed nothing.
    show_unchanged: bool = False
    # The group of the API that reports are of.
    report_api: str = "openreports.io"


def compile_pieces(options: PieceOptions) -> Callable[[Verdict], Piece]:
    """The function that makes pieces for one kind of output."""
    warn = options.audit_warn
    writer = EntryWriter(ReportOptions(options.format, options.timestamp, warn))

    def make_piece(verdict: Verdict) -> Piece:
        counts = count_verdicts((verdict,), audit_warn=warn)
        match options.output:
            case Output.REPORT:
                return Piece(counts, report=writer.write(verdict))
            case Output.TEXT:
                text = render_failures(verdict, audit_warn=warn) + _render_errors(verdict)
                return Piece(counts, text=text, made=tuple(_list_made(verdict, options)))
            case Output.TABLE:
                rows = tuple(list_outcomes((verdict,), audit_warn=warn))
                return Piece(counts, outcomes=rows, made=tuple(_list_made(verdict, options)))
            case Output.MARKDOWN | Output.JUNIT:
                return Piece(counts, outcomes=tuple(list_outcomes((verdict,), audit_warn=warn)))
            case Output.SARIF | Output.EXCEPTIONS:
                return Piece(counts, failures=_keep_failures(verdict))

    return make_piece


def _render_errors(verdict: Verdict) -> str:
    """What could not be decided, and why; nobody should have to look for that in a log."""
    errors = [
        result
        for result in verdict.results
        if result.status is Status.ERROR and result.type is not RuleType.MUTATION
    ]
    if not errors:
        return ""
    resource = describe_resource(verdict.request.resource)
    return "".join(
        f"policy {result.policy.name} -> resource {resource} error:\n"
        f"1 - {result.rule} {result.message}\n"
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


def _list_made(verdict: Verdict, options: PieceOptions) -> Iterator[Made]:
    resource = describe_resource(verdict.request.resource)
    name = read_text(read_metadata(verdict.request.resource).get("name"))
    for policy, results in _group_mutations(verdict).items():
        changed = [r for r in results if r.status is Status.PASS]
        if not changed and not options.show_unchanged:
            continue
        patched = next((r.patched for r in reversed(results) if r.patched is not None), None)
        shown = patched if patched is not None else verdict.request.resource
        targets = tuple(render_yaml(r.target) for r in changed if r.target is not None)
        yield Made(policy, resource, name, render_yaml(shown), targets)
    for result in verdict.results:
        for made in result.generated:
            policy = result.policy.name
            yield Made(policy, resource, name, render_yaml(made), is_generated=True)


def _group_mutations(verdict: Verdict) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in verdict.results:
        if result.type is RuleType.MUTATION:
            groups.setdefault(result.policy.name, []).append(result)
    return groups
