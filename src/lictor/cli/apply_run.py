"""A run of `apply`: policies are compiled once, documents evaluated one by one."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from lictor.cli.apply_outputs import (
    LOCATED_OUTPUTS,
    OutputOptions,
    ResourceOutput,
    compile_output,
)
from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.policies import LoadedPolicies
from lictor.cli.inputs.programs import compile_for_payloads, compile_given, report_guessed_names
from lictor.cli.inputs.requests import RequestFactory
from lictor.cli.inputs.resources import DocumentText, parse_document, parse_payloads
from lictor.cli.inputs.shards import Shard
from lictor.cli.inputs.sources import SourceText
from lictor.cli.result_locations import LocateResult, locate_nowhere, locate_results
from lictor.core.engine import Engine
from lictor.core.errors import LictorError, LoadError
from lictor.core.families.registry import registry
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Needs
from lictor.core.model.request import Request
from lictor.core.model.result import Verdict
from lictor.core.ports import Lookups
from lictor.core.raw import Json, JsonObject

# The documents, or bytes, that are parsed before the first of them is evaluated.
_CHUNK = 25
_CHUNK_BYTES = 32 << 10
# Documents that need answers of registries wait at the same time.
_WAITING_CHUNK = 256
_WAITING_THREADS = 64
# Below this many documents a second process costs more than it saves.
_FEW_DOCUMENTS = 300
# Resources are trees without cycles: more frequent garbage collection finds nothing.
COLLECT_AFTER = 100_000

FindResources: TypeAlias = Callable[[Json], Iterable[JsonObject]]


class DocumentResult(msgspec.Struct, frozen=True):
    """The output for one document, and the error if it could not be evaluated."""

    # For each requested format, the outputs of the resources in the document.
    outputs: tuple[tuple[ResourceOutput, ...], ...] = ()
    problem: str = ""
    # Messages that are printed once, however many documents they are about.
    notes: tuple[str, ...] = ()


class ApplyPlan(msgspec.Struct, frozen=True):
    """What to evaluate, with which policies, and how."""

    policies: LoadedPolicies
    # What is evaluated: resources, and payloads with the mode of their policies.
    inputs: DocumentReader
    requests: RequestFactory
    given: GivenObjects = msgspec.field(default_factory=GivenObjects)
    exceptions: tuple[PolicyRecord, ...] = ()
    # The modes of payloads.
    modes: tuple[str, ...] = ()
    # The paths of resources, for messages.
    paths: tuple[str, ...] = ()
    continue_on_fail: bool = False
    # Zero: chosen by the amount of work.
    processes: int = 0
    # None: the values and the given objects.
    lookups: Lookups | None = None
    # The objects that a deletion policy may delete; None: the resources of the inputs.
    find_deletable: FindResources | None = None


class ApplyRun:
    """Evaluates documents; created once for each run."""

    def __init__(
        self,
        plan: ApplyPlan,
        options: Sequence[OutputOptions],
        engines: Mapping[str, Engine] | None = None,
    ) -> None:
        self.plan = plan
        self.inputs = plan.inputs
        # One engine for resources, and one for each mode of payloads.
        self.engines = _build_engines(plan) if engines is None else engines
        # The number of documents.
        self.count = plan.inputs.count
        # Documents that were left out, and why.
        self.skipped: Sequence[str] = plan.inputs.skipped
        # Policies that cannot be used; each counts as an error.
        self.unusable_count = len(plan.policies.unusable)
        self._make_outputs = tuple(map(compile_output, options))
        self._is_located = any(
            each.file_names or each.output in LOCATED_OUTPUTS for each in options
        )
        self._describe_guess = report_guessed_names(plan.policies, plan.given)

    def list_plans(self) -> Iterator[tuple[str, ApplyPlan]]:
        """Return the name and plan of each cluster; the name is empty if clusters have none."""
        yield "", self.plan

    @property
    def rule_count(self) -> int:
        """The number of rules; a policy without named rules counts as one."""
        known, policies = registry(), self.plan.policies
        named = [
            program.rules
            for program in self.engines[""].programs
            if known.of(program.policy).has_named_rules
        ]
        unnamed = [each for each in policies.policies if not known.of(each).has_named_rules]
        deletions = policies.listed_deletions if policies.deletions else ()
        return sum(map(len, named)) + len(unnamed) + len(deletions)

    def evaluate(self) -> Iterator[DocumentResult]:
        """Evaluate every document, in order; memory does not grow with their number."""
        waits = any(
            rule.needs & Needs.IMAGES
            for engine in self.engines.values()
            for program in engine.programs
            for rule in program.rules
        )
        work, chunks = self.evaluate_shards, _group_shards(self.inputs.shards, _CHUNK, _CHUNK_BYTES)
        if waits:
            work = self._evaluate_on_threads
            chunks = _group_shards(self.inputs.shards, _WAITING_CHUNK, sys.maxsize)
        processes = self.process_count
        answers: Iterator[list[DocumentResult]] = map(work, chunks)
        if processes > 1:
            from lictor.cli.inputs.parallel import map_chunks

            answers = map_chunks(work, list(chunks), processes)
        for results in answers:
            yield from results

    @property
    def process_count(self) -> int:
        """The number of processes that evaluate documents."""
        if not self.plan.processes and self.count < _FEW_DOCUMENTS:
            return 1
        # Imported here: most runs need one process, and start-up time matters.
        from lictor.cli.inputs.parallel import choose_processes

        return choose_processes(self.count, self.plan.processes)

    def compile_first(self) -> None:
        """Compile what the first documents need, before processes are forked."""
        shard = next(
            (each for each in self.inputs.shards if not self.inputs.modes[each.source]), None
        )
        if shard is None or self.process_count <= 1 or self.plan.requests.adapt is not None:
            return
        # Invalid documents are reported when they are evaluated.
        with suppress(LictorError):
            for document in self.inputs.read(shard):
                for resource in parse_document(document):
                    self.engines[""].prepare(self.plan.requests.make_request(resource))

    def _evaluate_on_threads(self, shards: Sequence[Shard]) -> list[DocumentResult]:
        from concurrent.futures import ThreadPoolExecutor

        def evaluate(document: _Document) -> DocumentResult:
            return self._make_result(self._evaluate(document))

        with ThreadPoolExecutor(_WAITING_THREADS) as pool:
            found = [pool.map(evaluate, self._parse(shard)) for shard in shards]
            return [result for results in found for result in results]

    def evaluate_shards(self, shards: Sequence[Shard]) -> list[DocumentResult]:
        """Return the results of all documents of some shards, in order."""
        # Step by step for all of them: code that runs again at once is still in the processor's
        # caches.
        parsed = [document for shard in shards for document in self._parse(shard)]
        evaluated = [self._evaluate(document) for document in parsed]
        return [self._make_result(each) for each in evaluated]

    def _parse(self, shard: Shard) -> Iterator["_Document"]:
        mode = self.inputs.modes[shard.source]
        make_request = self.plan.requests.make_request
        try:
            for text in shard.read(self.inputs.inputs[shard.source]):
                try:
                    if mode:
                        payloads = parse_payloads(SourceText(text.path, text.content))
                        requests = [each.make_request(mode) for each in payloads]
                    else:
                        requests = [make_request(each) for each in parse_document(text)]
                except LictorError as error:
                    yield _Document(mode, text, error=error)
                else:
                    yield _Document(mode, text, requests)
        except LoadError as error:
            yield _Document(mode, error=error)

    def _evaluate(self, document: "_Document") -> "_Evaluated":
        is_payload, engine = bool(document.mode), self.engines[document.mode]
        adapt = None if is_payload else self.plan.requests.adapt
        verdicts: list[Verdict] = []
        try:
            if document.error is not None:
                raise document.error
            for request in document.requests:
                verdicts.append(engine.evaluate(request, adapt=adapt))
        except LictorError as error:
            if not self.plan.continue_on_fail:
                raise
            return _Evaluated(document, problem=str(error))
        return _Evaluated(document, verdicts)

    def _make_result(self, evaluated: "_Evaluated") -> DocumentResult:
        document, problem = evaluated.document, evaluated.problem
        if problem or document.text is None:
            return DocumentResult(problem=problem)
        located: list[tuple[Verdict, LocateResult]] = [
            (verdict, locate_nowhere) for verdict in evaluated.verdicts
        ]
        if self._is_located:
            locate = locate_results(document.text)
            located = [(verdict, locate(number)) for number, (verdict, _) in enumerate(located)]
        outputs = tuple(
            [
                tuple([make(verdict, where) for verdict, where in located])
                for make in self._make_outputs
            ]
        )
        if document.mode or self._describe_guess is None:
            return DocumentResult(outputs)
        notes = (self._describe_guess(request.kind) for request in document.requests)
        return DocumentResult(outputs, notes=tuple(filter(None, notes)))

    def _evaluate_object(self, resource: JsonObject) -> DocumentResult:
        """Evaluate an object that is in no file."""
        requests, engine = self.plan.requests, self.engines[""]
        try:
            verdict = engine.evaluate(requests.make_request(resource), adapt=requests.adapt)
        except LictorError as error:
            if not self.plan.continue_on_fail:
                raise
            return DocumentResult(problem=str(error))
        return DocumentResult(
            tuple((make(verdict, locate_nowhere),) for make in self._make_outputs)
        )


class _Document(msgspec.Struct, frozen=True):
    """A document, its requests once it is parsed, or why it cannot be read."""

    mode: str
    # None if the text itself cannot be read.
    text: DocumentText | None = None
    requests: Sequence[Request] = ()
    error: LictorError | None = None


class _Evaluated(msgspec.Struct, frozen=True):
    """The verdicts on one document, or why there are none."""

    document: _Document
    verdicts: Sequence[Verdict] = ()
    problem: str = ""


def _group_shards(shards: Iterable[Shard], documents: int, size: int) -> Iterator[list[Shard]]:
    """Group shards until a group has enough documents or bytes: a file may have only one."""
    group: list[Shard] = []
    found_documents = found_size = 0
    for shard in shards:
        group.append(shard)
        found_documents += shard.count
        found_size += shard.size
        if found_documents >= documents or found_size >= size:
            yield group
            group, found_documents, found_size = [], 0, 0
    if group:
        yield group


def _build_engines(plan: ApplyPlan) -> dict[str, Engine]:
    """Return the engine for resources, and one for each mode of payloads."""
    lookups = plan.lookups or OfflineLookups(plan.requests.values, plan.given)
    policies, exceptions, given = plan.policies, plan.exceptions, plan.given
    engines = {"": Engine(compile_given(policies, exceptions, lookups, given))}
    for mode in plan.modes:
        chosen = policies.of_mode(mode)
        engines[mode] = Engine(compile_for_payloads(chosen, exceptions, lookups, given))
    return engines
