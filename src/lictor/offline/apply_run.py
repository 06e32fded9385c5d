"""A run of `apply`: policies are compiled once, documents evaluated one by one."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lictor.engine import Engine
from lictor.errors import LictorError
from lictor.families.registry import registry
from lictor.model.metadata import PolicyRecord
from lictor.model.program import Needs
from lictor.model.request import Request
from lictor.model.result import Result, RuleType, Status, Verdict
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.parallel import choose_processes, map_chunks, split_evenly
from lictor.offline.policies import LoadedPolicies
from lictor.offline.programs import compile_for_payloads, compile_given, report_guessed_names
from lictor.offline.requests import RequestFactory
from lictor.offline.resources import DocumentSpan, find_documents, parse_payloads, parse_resources
from lictor.offline.sources import SourceText
from lictor.ports import Lookups
from lictor.raw import JsonObject
from lictor.report.outcomes import TestOutcome, list_outcomes
from lictor.report.policy_report import EntryWriter, ReportChunk, ReportFormat, ReportOptions
from lictor.report.resource_name import describe_resource, read_metadata, read_text
from lictor.report.summary import Counts, count_verdicts, render_failures
from lictor.report.yaml_text import render_yaml


class ApplyOutput(StrEnum):
    """What `apply` prints."""

    TEXT = "text"
    TABLE = "table"
    REPORT = "report"
    EXCEPTIONS = "exceptions"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    SARIF = "sarif"


class ChangedObject(msgspec.Struct, frozen=True):
    """An object that a policy changed or made."""

    policy: str
    # `namespace/Kind/name` of the resource that caused it, and its name alone.
    resource: str
    name: str
    text: str
    targets: tuple[str, ...] = ()
    is_generated: bool = False


class ResourceOutput(msgspec.Struct, frozen=True):
    """Everything the parent needs of one verdict; plain data that can travel between processes."""

    counts: Counts
    text: str = ""
    made: tuple[ChangedObject, ...] = ()
    report: ReportChunk = msgspec.field(default_factory=ReportChunk)
    outcomes: tuple[TestOutcome, ...] = ()
    # The verdict without what was fine, and without the resource's content.
    failures: Verdict | None = None


class OutputOptions(msgspec.Struct, frozen=True):
    """What the output needs."""

    output: ApplyOutput
    format: ReportFormat = ReportFormat.YAML
    timestamp: int = 0
    audit_warn: bool = False
    # Show resources that a mutate policy was asked about even where it changed nothing.
    show_unchanged: bool = False
    # The group of the API that reports are of.
    report_api: str = "openreports.io"


def compile_output(options: OutputOptions) -> Callable[[Verdict], ResourceOutput]:
    """The function that makes outputs for one kind of output."""
    warn = options.audit_warn
    writer = EntryWriter(ReportOptions(options.format, options.timestamp, warn))

    def make_output(verdict: Verdict) -> ResourceOutput:
        counts = count_verdicts((verdict,), audit_warn=warn)
        match options.output:
            case ApplyOutput.REPORT:
                return ResourceOutput(counts, report=writer.write(verdict))
            case ApplyOutput.TEXT:
                text = render_failures(verdict, audit_warn=warn) + _render_errors(verdict)
                return ResourceOutput(counts, text=text, made=tuple(_list_made(verdict, options)))
            case ApplyOutput.TABLE:
                rows = tuple(list_outcomes((verdict,), audit_warn=warn))
                return ResourceOutput(
                    counts, outcomes=rows, made=tuple(_list_made(verdict, options))
                )
            case ApplyOutput.MARKDOWN | ApplyOutput.JUNIT:
                return ResourceOutput(
                    counts, outcomes=tuple(list_outcomes((verdict,), audit_warn=warn))
                )
            case ApplyOutput.SARIF | ApplyOutput.EXCEPTIONS:
                return ResourceOutput(counts, failures=_keep_failures(verdict))

    return make_output


def _render_errors(verdict: Verdict) -> str:
    """The rules that could not be evaluated, and why."""
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


def _list_made(verdict: Verdict, options: OutputOptions) -> Iterator[ChangedObject]:
    resource = describe_resource(verdict.request.resource)
    name = read_text(read_metadata(verdict.request.resource).get("name"))
    for policy, results in _group_mutations(verdict).items():
        changed = [r for r in results if r.status is Status.PASS]
        if not changed and not options.show_unchanged:
            continue
        patched = next((r.patched for r in reversed(results) if r.patched is not None), None)
        shown = patched if patched is not None else verdict.request.resource
        targets = tuple(render_yaml(r.target) for r in changed if r.target is not None)
        yield ChangedObject(policy, resource, name, render_yaml(shown), targets)
    for result in verdict.results:
        for made in result.generated:
            policy = result.policy.name
            yield ChangedObject(policy, resource, name, render_yaml(made), is_generated=True)


def _group_mutations(verdict: Verdict) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in verdict.results:
        if result.type is RuleType.MUTATION:
            groups.setdefault(result.policy.name, []).append(result)
    return groups


_CHUNK_SIZE = 25
# Where registries are asked, documents wait at the same time instead of one after the other.
_WAITING_CHUNK_SIZE = 256
_WAITING_THREADS = 64
# Resources are trees without cycles: looking for garbage more often finds nothing.
_COLLECT_AFTER = 100_000


class DocumentPosition(msgspec.Struct, frozen=True):
    """The position of a document: which text, where in it, and what kind of payload it is."""

    text: int
    span: DocumentSpan
    # Empty for resources; for payloads the mode of the policies that judge them.
    mode: str = ""


class DocumentResult(msgspec.Struct, frozen=True):
    """The output for one document, its position, and the error if it could not be evaluated."""

    # None where it comes from no file.
    place: DocumentPosition | None
    outputs: tuple[ResourceOutput, ...] = ()
    problem: str = ""
    # Things to tell once, however many documents they are about.
    notes: tuple[str, ...] = ()


class ApplyPlan(msgspec.Struct, frozen=True):
    """What to evaluate, with which policies, and how."""

    policies: LoadedPolicies
    texts: tuple[SourceText, ...]
    requests: RequestFactory
    given: GivenObjects = msgspec.field(default_factory=GivenObjects)
    exceptions: tuple[PolicyRecord, ...] = ()
    # Texts that are no resources, by the mode of the policies that judge them.
    payloads: Mapping[str, tuple[SourceText, ...]] = msgspec.field(default_factory=dict)
    continue_on_fail: bool = False
    # Zero: as many processes as pay off.
    processes: int = 0
    # Who answers what policies ask; None: the values and the given objects.
    lookups: Lookups | None = None


class ApplyRun:
    """Evaluates documents; made once for each run."""

    def __init__(self, plan: ApplyPlan, options: OutputOptions) -> None:
        self._plan = plan
        self._make_output = compile_output(options)
        self._engines = _make_engines(plan)
        self._tell_guess = report_guessed_names(plan.policies, plan.given)
        sources = [("", plan.texts), *plan.payloads.items()]
        self.texts = tuple(text for _, texts in sources for text in texts)
        modes = [mode for mode, texts in sources for _ in texts]
        self.places = [
            DocumentPosition(index, span, mode)
            for index, (text, mode) in enumerate(zip(self.texts, modes, strict=True))
            for span in find_documents(text.content)
        ]

    @property
    def count(self) -> int:
        """The number of documents."""
        return len(self.places)

    @property
    def rule_count(self) -> int:
        """The number of rules; a policy without named rules counts as one."""
        known, policies = registry(), self._plan.policies
        named = [
            program.rules
            for program in self._engines[""].programs
            if known.of_result(program.policy).has_named_rules
        ]
        unnamed = [each for each in policies.policies if not known.of(each).has_named_rules]
        return sum(map(len, named)) + len(unnamed) + len(policies.listed_deletions)

    @property
    def unusable_count(self) -> Counts:
        """What policies that cannot be used add to the counts: an error each."""
        return Counts(errors=len(self._plan.policies.unusable))

    def run(self) -> Iterator[DocumentResult]:
        """Judge every document, in order; memory does not grow with their number."""
        waits = self._asks_registries()
        chunks = split_evenly(self.places, _WAITING_CHUNK_SIZE if waits else _CHUNK_SIZE)
        processes = choose_processes(len(self.places), self._plan.processes)
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        judge = self._judge_chunk_on_threads if waits else self._judge_chunk
        for answers in map_chunks(judge, chunks, processes):
            yield from answers

    def _asks_registries(self) -> bool:
        return any(
            rule.needs & Needs.IMAGES
            for engine in self._engines.values()
            for program in engine.programs
            for rule in program.rules
        )

    def _judge_chunk_on_threads(self, places: Sequence[DocumentPosition]) -> list[DocumentResult]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_WAITING_THREADS, len(places))) as pool:
            return list(pool.map(self._judge, places))

    def _judge_chunk(self, places: Sequence[DocumentPosition]) -> list[DocumentResult]:
        return [self._judge(place) for place in places]

    def _judge(self, place: DocumentPosition) -> DocumentResult:
        text = self.texts[place.text]
        notes: list[str] = []
        try:
            verdicts = list(self._judge_text(text, place, notes))
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return DocumentResult(place, problem=str(error))
        return DocumentResult(place, tuple(map(self._make_output, verdicts)), notes=tuple(notes))

    def _judge_text(
        self, text: SourceText, place: DocumentPosition, notes: list[str]
    ) -> Iterator[Verdict]:
        if place.mode:
            engine = self._engines[place.mode]
            part = SourceText(text.path, text.content[place.span.start : place.span.end])
            yield from (
                engine.evaluate(payload.make_request(place.mode))
                for payload in parse_payloads(part)
            )
            return
        requests, engine = self._plan.requests, self._engines[""]
        adapt = requests.adapt
        for resource in parse_resources(text.content, place.span, text.path):
            request = requests.make_request(resource)
            note = self._tell_guess(request.kind)
            if note:
                notes.append(note)
            yield engine.evaluate(request, adapt=adapt)


def _make_engines(plan: ApplyPlan) -> dict[str, Engine]:
    """The engine for resources, and one for each kind of payload."""
    lookups = plan.lookups or OfflineLookups(plan.requests.values, plan.given)
    policies, exceptions, given = plan.policies, plan.exceptions, plan.given
    engines = {"": Engine(compile_given(policies, exceptions, lookups, given))}
    for mode in plan.payloads:
        chosen = policies.of_mode(mode)
        engines[mode] = Engine(compile_for_payloads(chosen, exceptions, lookups, given))
    return engines


def select_documents(texts: Iterable[SourceText], word: bytes) -> Iterator[SourceText]:
    """The documents that hold a word, each as a text of its own; nothing is parsed."""
    for text in texts:
        for span in find_documents(text.content):
            part = text.content[span.start : span.end]
            if word in part:
                yield SourceText(text.path, part)
