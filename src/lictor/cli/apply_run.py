"""A run of `apply`: policies are compiled once, documents evaluated one by one."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from lictor.cli.apply_outputs import OutputOptions, ResourceOutput, compile_output
from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.parallel import choose_processes, map_chunks
from lictor.cli.inputs.policies import LoadedPolicies
from lictor.cli.inputs.programs import compile_for_payloads, compile_given, report_guessed_names
from lictor.cli.inputs.requests import RequestFactory
from lictor.cli.inputs.resource_inputs import ResourceInputs
from lictor.cli.inputs.resources import DocumentText, parse_document, parse_payloads
from lictor.cli.inputs.shards import Shard
from lictor.cli.inputs.sources import SourceText
from lictor.cli.result_locations import LocateResult, locate_nowhere, locate_results
from lictor.core.engine import Engine
from lictor.core.errors import LictorError, LoadError
from lictor.core.families.registry import registry
from lictor.core.garbage import keeping_garbage
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Needs
from lictor.core.model.request import Request
from lictor.core.model.result import Verdict
from lictor.core.ports import Lookups
from lictor.core.raw import JsonObject
from lictor.core.report.summary import Counts

_CHUNK = 25
# So much is read before any of it is judged, or else one shard.
_STEP_BYTES = 32 << 10
# Where registries are asked, documents wait at the same time instead of one after the other.
_WAITING_CHUNK = 256
_WAITING_THREADS = 64
# Resources are trees without cycles: looking for garbage more often finds nothing.
COLLECT_AFTER = 100_000


class DocumentResult(msgspec.Struct, frozen=True):
    """The output for one document, and the error if it could not be evaluated."""

    outputs: tuple[ResourceOutput, ...] = ()
    # For each further form of output, in the order in which they were asked for.
    more: tuple[tuple[ResourceOutput, ...], ...] = ()
    problem: str = ""
    # Things to tell once, however many documents they are about.
    notes: tuple[str, ...] = ()


class ApplyPlan(msgspec.Struct, frozen=True):
    """What to evaluate, with which policies, and how."""

    policies: LoadedPolicies
    # What is evaluated: resources, and payloads with the mode of the policies that judge them.
    inputs: ResourceInputs
    requests: RequestFactory
    given: GivenObjects = msgspec.field(default_factory=GivenObjects)
    exceptions: tuple[PolicyRecord, ...] = ()
    # The modes of payloads.
    modes: tuple[str, ...] = ()
    continue_on_fail: bool = False
    # Zero: as many processes as pay off.
    processes: int = 0
    # Who answers what policies ask; None: the values and the given objects.
    lookups: Lookups | None = None


class ApplyRun:
    """Evaluates documents; made once for each run."""

    def __init__(
        self,
        plan: ApplyPlan,
        options: OutputOptions,
        more: Sequence[OutputOptions] = (),
        engines: Mapping[str, Engine] | None = None,
    ) -> None:
        self._plan = self.plan = plan
        self._make_output = compile_output(options)
        self._make_more = tuple(map(compile_output, more))
        # Whoever made an equal run before need not compile again.
        self._engines = _make_engines(plan) if engines is None else engines
        self._tell_guess = report_guessed_names(plan.policies, plan.given)
        self.inputs = plan.inputs

    def list_plans(self) -> Iterator[tuple[str, ApplyPlan]]:
        """The plan of each cluster with its inputs; one without a name where none is named."""
        yield "", self.plan

    @property
    def engines(self) -> Mapping[str, Engine]:
        """For resources, and for each kind of payload."""
        return self._engines

    @property
    def skipped(self) -> list[str]:
        """What was left out, and why."""
        return self.inputs.skipped

    @property
    def count(self) -> int:
        """The number of documents."""
        return self.inputs.count

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
        with keeping_garbage(freezing=True):
            if self._count_processes() > 1:
                self._compile_first()
        gc.set_threshold(COLLECT_AFTER)
        return self.judge_all()

    def judge_all(self) -> Iterator[DocumentResult]:
        """The same for a process that judges much else later: its garbage is not kept."""
        waits = self._asks_registries()
        enough = _WAITING_CHUNK if waits else _CHUNK
        chunks = list(_group_shards(self.inputs.shards, enough, lambda shard: shard.count))
        processes = self._count_processes()
        judge = self._judge_on_threads if waits else self.judge_shards
        for answers in map_chunks(judge, chunks, processes):
            yield from answers

    def _count_processes(self) -> int:
        return choose_processes(self.count, self._plan.processes)

    def _compile_first(self) -> None:
        """Compile what concerns the first documents, once for all processes that will be forked."""
        shard = next(
            (each for each in self.inputs.shards if not self.inputs.modes[each.source]), None
        )
        if shard is None or self._plan.requests.adapt is not None:
            return
        # What cannot be read is told where it is judged.
        with suppress(LictorError):
            for document in self.inputs.read(shard):
                for resource in parse_document(document):
                    self._engines[""].prepare(self._plan.requests.make_request(resource))

    def _asks_registries(self) -> bool:
        return any(
            rule.needs & Needs.IMAGES
            for engine in self._engines.values()
            for program in engine.programs
            for rule in program.rules
        )

    def _judge_on_threads(self, shards: Sequence[Shard]) -> list[DocumentResult]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_WAITING_THREADS) as pool:
            found = (pool.map(self._judge_alone, self._read(shard)) for shard in shards)
            return [result for results in list(found) for result in results]

    def _judge_alone(self, task: "_Task") -> DocumentResult:
        return self._make_result(self._judge(self._parse(task)))

    def judge_shards(self, shards: Sequence[Shard]) -> list[DocumentResult]:
        """The results of all documents of some shards, in order."""
        results: list[DocumentResult] = []
        for group in _group_shards(shards, _STEP_BYTES, lambda shard: shard.size):
            # One step for all of them, then the next: what runs again at once is still in the
            # processor's caches.
            tasks = [self._parse(task) for shard in group for task in self._read(shard)]
            judged = [self._judge(task) for task in tasks]
            results += map(self._make_result, judged)
        return results

    def _read(self, shard: Shard) -> Iterator["_Task"]:
        mode = self.inputs.modes[shard.source]
        try:
            for document in self.inputs.read(shard):
                yield _Task(mode, document)
        except LoadError as error:
            yield _Task(mode, DocumentText(self.inputs.inputs[shard.source].path, b""), fault=error)

    def _parse(self, task: "_Task") -> "_Task":
        mode, document = task.mode, task.document
        if task.fault is not None:
            return task
        try:
            if mode:
                payloads = parse_payloads(SourceText(document.path, document.content))
                return _Task(mode, document, [each.make_request(mode) for each in payloads])
            make_request = self._plan.requests.make_request
            return _Task(mode, document, [make_request(each) for each in parse_document(document)])
        except LictorError as error:
            return _Task(mode, document, fault=error)

    def _judge(self, task: "_Task") -> "_Judged":
        notes: list[str] = []
        try:
            if task.fault is not None:
                raise task.fault
            verdicts = list(self._judge_requests(task, notes))
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return _Judged(problem=str(error))
        locate = locate_results(task.document)
        located = [(verdict, locate(number)) for number, verdict in enumerate(verdicts)]
        return _Judged(located, tuple(notes))

    def _judge_requests(self, task: "_Task", notes: list[str]) -> Iterator[Verdict]:
        engine = self._engines[task.mode]
        if task.mode:
            yield from map(engine.evaluate, task.requests)
            return
        adapt, judged = self._plan.requests.adapt, self._plan.given.judged
        for request in task.requests:
            if judged is not None:
                judged.judge(request.resource)
            note = self._tell_guess(request.kind)
            if note:
                notes.append(note)
            yield engine.evaluate(request, adapt=adapt)

    def _make_result(self, judged: "_Judged") -> DocumentResult:
        outputs, *more = (
            tuple(make(verdict, locate) for verdict, locate in judged.located)
            for make in (self._make_output, *self._make_more)
        )
        return DocumentResult(outputs, tuple(more), judged.problem, judged.notes)

    def _judge_object(self, resource: JsonObject) -> DocumentResult:
        """For an object that comes from no file."""
        requests, engine = self._plan.requests, self._engines[""]
        try:
            verdict = engine.evaluate(requests.make_request(resource), adapt=requests.adapt)
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return DocumentResult(problem=str(error))
        return self._make_result(_Judged(((verdict, locate_nowhere),)))


class _Judged(msgspec.Struct, frozen=True):
    """The verdicts on one document, before anything is said of them."""

    located: Sequence[tuple[Verdict, LocateResult]] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""


class _Task(msgspec.Struct, frozen=True):
    """A document, what it asks for once it is parsed, or why it could not be read."""

    mode: str
    document: DocumentText
    requests: Sequence[Request] = ()
    fault: LictorError | None = None


def _group_shards(
    shards: Iterable[Shard], enough: int, measure: Callable[[Shard], int]
) -> Iterator[list[Shard]]:
    """The shards in groups that are large enough: a file may hold just one document."""
    group: list[Shard] = []
    size = 0
    for shard in shards:
        group.append(shard)
        size += measure(shard)
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group


def _make_engines(plan: ApplyPlan) -> dict[str, Engine]:
    """The engine for resources, and one for each kind of payload."""
    lookups = plan.lookups or OfflineLookups(plan.requests.values, plan.given)
    policies, exceptions, given = plan.policies, plan.exceptions, plan.given
    engines = {"": Engine(compile_given(policies, exceptions, lookups, given))}
    for mode in plan.modes:
        chosen = policies.of_mode(mode)
        engines[mode] = Engine(compile_for_payloads(chosen, exceptions, lookups, given))
    return engines
