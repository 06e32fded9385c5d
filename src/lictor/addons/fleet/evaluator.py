"""The work of one worker: it finds the documents of files, then evaluates them by `ApplyRun`."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from lictor.addons.fleet.addresses import InputFile
from lictor.addons.fleet.stored_inputs import StoredInput, open_file
from lictor.cli.apply_outputs import OutputOptions
from lictor.cli.apply_run import COLLECT_AFTER, ApplyPlan, ApplyRun, DocumentResult
from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.input_files import read_definitions, read_namespace_labels
from lictor.cli.inputs.inputs import Input
from lictor.cli.inputs.lookups import choose_registries
from lictor.cli.inputs.resources import DocumentText, LazyResources
from lictor.cli.inputs.shards import Shard
from lictor.cli.inputs.sources import SourceText
from lictor.core.engine import Engine
from lictor.core.errors import LictorError
from lictor.core.model.metadata import PolicyRecord
from lictor.core.ports import Registries
from lictor.core.raw import JsonObject


class FleetJob(msgspec.Struct, frozen=True):
    """What every worker gets once: policies, values and options, but no inputs."""

    plan: ApplyPlan
    options: tuple[OutputOptions, ...]
    # Whether exceptions are among the resources.
    finds_exceptions: bool = False
    # Connections cannot be sent: each worker opens its own.
    queries_registries: bool = False
    image_layout: str = ""


class FilePart(msgspec.Struct, frozen=True):
    """Some shards of a file, or of a file in an archive."""

    file: InputFile
    # The number of the file in its archive.
    member: int
    shards: tuple[Shard, ...]


class FileSurvey(msgspec.Struct, frozen=True):
    """A file, or a file in an archive, and the facts in it that other files need."""

    part: FilePart
    path: str
    namespaces: Mapping[str, Mapping[str, str]] = {}
    definitions: tuple[JsonObject, ...] = ()
    # Documents with exceptions.
    exceptions: tuple[SourceText, ...] = ()
    # Documents that were left out, and why.
    skipped: tuple[str, ...] = ()


class ClusterFacts(msgspec.Struct, frozen=True):
    """The facts of all files of one cluster; other clusters do not see them."""

    cluster: str
    parts: tuple[FilePart, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    definitions: tuple[JsonObject, ...] = ()
    exceptions: tuple[PolicyRecord, ...] = ()


class FleetTask(msgspec.Struct, frozen=True):
    """Files to survey, or parts of files of one cluster to evaluate."""

    files: tuple[InputFile, ...] = ()
    parts: tuple[FilePart, ...] = ()
    facts: ClusterFacts | None = None

    @property
    def name(self) -> str:
        """The first file, for messages."""
        names = [file.name for file in self.files]
        names += [f"{part.file.name}:{part.shards[0].line + 1}" for part in self.parts]
        return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


class FleetAnswer(msgspec.Struct, frozen=True):
    """The results of a task, in order, and the error that ended it."""

    surveys: tuple[FileSurvey, ...] = ()
    results: tuple[DocumentResult, ...] = ()
    problem: str = ""


class ClusterResources(LazyResources):
    """The resources of one cluster at a time, read only if a policy looks up objects."""

    def __init__(self) -> None:
        self._parts: tuple[FilePart, ...] = ()
        super().__init__(self._find_documents)

    def set_parts(self, parts: tuple[FilePart, ...]) -> None:
        """Use the resources of another cluster."""
        self._parts = parts
        self._known.clear()
        self._size = 0

    def _find_documents(self, word: bytes, ignore_case: bool) -> Iterator[DocumentText]:  # noqa: FBT001
        return open_parts(self._parts).find(word, ignore_case)


def open_parts(parts: Iterable[FilePart]) -> DocumentReader:
    """Open parts of files; their shards are known already."""
    found = DocumentReader()
    for part in parts:
        number = len(found.inputs)
        found.inputs.append(_open_part(part))
        found.modes.append("")
        found.shards += [replace(shard, source=number) for shard in part.shards]
    return found


def _open_part(part: FilePart) -> Input:
    given = _open_members(part.file)[part.member]
    if isinstance(given, StoredInput):
        return given.hold(part.shards[0].span.start, part.shards[-1].span.end)
    return given


# Unpacked files are kept for the next task.
@lru_cache(maxsize=4)
def _open_members(file: InputFile) -> tuple[Input, ...]:
    return tuple(open_file(file))


class FleetEvaluator:
    """Runs tasks; created once in each worker."""

    def __init__(self, job: FleetJob) -> None:
        # Not frozen, unlike a local run: the garbage of one task would stay for all others.
        gc.set_threshold(COLLECT_AFTER)
        self._job = job
        self._resources = ClusterResources()
        self._facts: ClusterFacts | None = None
        self._plan = job.plan
        self._registries: Registries | None = None
        self._engines: Mapping[str, Engine] | None = None

    def run(self, task: FleetTask, facts: ClusterFacts | None = None) -> FleetAnswer:
        """Run a task; an error is part of the answer, with the results before it."""
        surveys, results, problem = list[FileSurvey](), list[DocumentResult](), ""
        facts = facts or task.facts
        try:
            for file in task.files:
                surveys += self._survey(file)
            if facts is not None:
                for result in self._open_run(open_parts(task.parts), facts).evaluate():
                    results.append(result)
        except LictorError as error:
            problem = str(error)
        return FleetAnswer(tuple(surveys), tuple(results), problem)

    def _survey(self, file: InputFile) -> Iterator[FileSurvey]:
        for member, given in enumerate(_open_members(file)):
            found = DocumentReader((given,))
            exceptions = found.select(b"PolicyException") if self._job.finds_exceptions else ()
            yield FileSurvey(
                FilePart(file, member, tuple(found.shards)),
                given.path,
                namespaces=read_namespace_labels(found.find),
                definitions=tuple(read_definitions(found.select(b"CustomResourceDefinition"))),
                exceptions=tuple(exceptions),
                skipped=tuple(found.skipped),
            )

    def _open_run(self, inputs: DocumentReader, facts: ClusterFacts) -> ApplyRun:
        last = self._facts
        if last is None or facts.cluster != last.cluster:
            # Policies are compiled with these; if they are the same, so are the programs.
            compiled = None if last is None else (last.definitions, last.exceptions)
            if compiled != (facts.definitions, facts.exceptions):
                self._engines = None
            self._facts, self._plan = facts, self.complete_plan(facts)
        options = [replace(each, cluster=facts.cluster) for each in self._job.options]
        run = ApplyRun(replace(self._plan, inputs=inputs), options, self._engines)
        self._engines = run.engines
        return run

    def complete_plan(self, facts: ClusterFacts) -> ApplyPlan:
        """Return the plan with the facts of a cluster, without inputs."""
        job, plan = self._job, self._job.plan
        self._resources.set_parts(facts.parts)
        if self._registries is None:
            network, layout = job.queries_registries, job.image_layout
            self._registries = choose_registries(network=network, layout=layout)
        given = replace(
            plan.given,
            evaluated=self._resources,
            crds=(*plan.given.crds, *facts.definitions),
            registries=self._registries,
        )
        return replace(
            plan,
            given=given,
            exceptions=(*facts.exceptions, *plan.exceptions),
            requests=replace(plan.requests, namespaces=facts.namespaces),
            processes=1,
        )
