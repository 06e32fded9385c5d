"""A run of `apply`: policies are compiled once, documents evaluated one by one."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lictor.engine import Engine
from lictor.errors import LictorError
from lictor.families.registry import registry
from lictor.model.metadata import PolicyRecord
from lictor.model.program import Needs
from lictor.model.result import Verdict
from lictor.offline.apply_outputs import OutputOptions, ResourceOutput, compile_output
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.parallel import choose_processes, map_chunks, split_evenly
from lictor.offline.policies import LoadedPolicies
from lictor.offline.programs import compile_for_payloads, compile_given, report_guessed_names
from lictor.offline.requests import RequestFactory
from lictor.offline.resources import (
    DocumentSpan,
    find_documents,
    leave_tool_files,
    parse_payloads,
    parse_resources,
)
from lictor.offline.result_locations import LocateResult, ResultLocations, locate_nowhere
from lictor.offline.sources import SourceText
from lictor.ports import Lookups
from lictor.raw import JsonObject
from lictor.report.summary import Counts

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
    # For each further form of output, in the order in which they were asked for.
    more: tuple[tuple[ResourceOutput, ...], ...] = ()
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

    def __init__(
        self, plan: ApplyPlan, options: OutputOptions, more: Sequence[OutputOptions] = ()
    ) -> None:
        self._plan = plan
        self._make_output = compile_output(options)
        self._make_more = tuple(map(compile_output, more))
        self._engines = _make_engines(plan)
        self._tell_guess = report_guessed_names(plan.policies, plan.given)
        sources = [("", plan.texts), *plan.payloads.items()]
        self.texts = tuple(text for _, texts in sources for text in texts)
        self._locations = ResultLocations(self.texts)
        modes = [mode for mode, texts in sources for _ in texts]
        self.places: list[DocumentPosition] = []
        # What was left out, and why.
        self.skipped: list[str] = []
        for index, (text, mode) in enumerate(zip(self.texts, modes, strict=True)):
            spans = find_documents(text.content)
            if not mode:
                spans, skipped = leave_tool_files(text, spans)
                self.skipped += skipped
            self.places += [DocumentPosition(index, span, mode) for span in spans]

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
        locate = self._locations.of_document(place.text, place.span)
        located = [(verdict, locate(number)) for number, verdict in enumerate(verdicts)]
        return self._make_result(place, located, tuple(notes))

    def _make_result(
        self,
        place: DocumentPosition | None,
        located: Sequence[tuple[Verdict, LocateResult]],
        notes: tuple[str, ...] = (),
    ) -> DocumentResult:
        outputs, *more = (
            tuple(make(verdict, locate) for verdict, locate in located)
            for make in (self._make_output, *self._make_more)
        )
        return DocumentResult(place, outputs, tuple(more), notes=notes)

    def _judge_object(self, resource: JsonObject) -> DocumentResult:
        """For an object that comes from no file."""
        requests, engine = self._plan.requests, self._engines[""]
        try:
            verdict = engine.evaluate(requests.make_request(resource), adapt=requests.adapt)
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return DocumentResult(None, problem=str(error))
        return self._make_result(None, ((verdict, locate_nowhere),))

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
            if self._plan.given.judged is not None:
                self._plan.given.judged.judge(resource)
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
