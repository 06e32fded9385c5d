"""What a worker does: it cuts files into shards and looks for what others must know, then judges.

Judging is `ApplyRun`'s, as in a run on one machine.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from lictor.addons.fleet.addresses import InputFile
from lictor.addons.fleet.stored_inputs import StoredInput, open_file
from lictor.cli.apply_outputs import OutputOptions
from lictor.cli.apply_run import COLLECT_AFTER, ApplyPlan, ApplyRun, DocumentResult
from lictor.cli.inputs.input_files import read_definitions, read_namespace_labels
from lictor.cli.inputs.inputs import Input
from lictor.cli.inputs.lookups import choose_registries
from lictor.cli.inputs.resource_inputs import ResourceInputs
from lictor.cli.inputs.resources import DocumentText, LazyResources
from lictor.cli.inputs.shards import Shard
from lictor.cli.inputs.sources import SourceText
from lictor.core.engine import Engine
from lictor.core.errors import LictorError
from lictor.core.model.metadata import PolicyRecord
from lictor.core.ports import Registries
from lictor.core.raw import JsonObject


class FleetJob(msgspec.Struct, frozen=True):
    """What every worker is given once: policies, values and options, but no inputs."""

    plan: ApplyPlan
    options: OutputOptions
    more: tuple[OutputOptions, ...] = ()
    # Whether exceptions stand among the resources.
    finds_exceptions: bool = False
    # Connections cannot travel: each worker opens its own.
    asks_registries: bool = False
    image_layout: str = ""


class FileSurvey(msgspec.Struct, frozen=True):
    """What a file, or a file in an archive, holds that matters beyond a shard."""

    file: InputFile
    # The number of the file in its archive.
    member: int
    path: str
    shards: tuple[Shard, ...]
    namespaces: Mapping[str, Mapping[str, str]] = {}
    definitions: tuple[JsonObject, ...] = ()
    # Documents with exceptions.
    exceptions: tuple[SourceText, ...] = ()
    # What was left out, and why.
    skipped: tuple[str, ...] = ()

    @property
    def part(self) -> "FilePart":
        return FilePart(self.file, self.member, self.shards)


class FilePart(msgspec.Struct, frozen=True):
    """Some shards of a file, or of a file in an archive."""

    file: InputFile
    member: int
    shards: tuple[Shard, ...]


class ClusterFacts(msgspec.Struct, frozen=True):
    """What holds for all files of one cluster: they know each other, and no others."""

    cluster: str
    parts: tuple[FilePart, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    definitions: tuple[JsonObject, ...] = ()
    exceptions: tuple[PolicyRecord, ...] = ()


class SurveyTask(msgspec.Struct, frozen=True):
    """Files to be looked through."""

    files: tuple[InputFile, ...]

    @property
    def name(self) -> str:
        return _name_first([file.name for file in self.files])


class JudgeTask(msgspec.Struct, frozen=True):
    """Parts of files of one cluster, to be judged."""

    parts: tuple[FilePart, ...]
    facts: ClusterFacts

    @property
    def name(self) -> str:
        first = self.parts[0]
        line = first.shards[0].line + 1
        return _name_first([f"{first.file.name}:{line}", *self.parts[1:]])


def _name_first(names: Sequence[object]) -> str:
    more = len(names) - 1
    return f"{names[0]} and {more} more" if more else f"{names[0]}"


class FleetAnswer(msgspec.Struct, frozen=True):
    """What came of a task, in order; and what ended the work on it."""

    surveys: tuple[FileSurvey, ...] = ()
    results: tuple[DocumentResult, ...] = ()
    problem: str = ""


class ClusterResources(LazyResources):
    """The resources of one cluster at a time, read only if a policy looks for others."""

    def __init__(self) -> None:
        self._parts: tuple[FilePart, ...] = ()
        super().__init__(self._find_documents)

    def turn_to(self, parts: tuple[FilePart, ...]) -> None:
        """Look among these from now on."""
        self._parts = parts
        self._known.clear()
        self._size = 0

    def _find_documents(self, word: bytes, ignore_case: bool) -> Iterator[DocumentText]:  # noqa: FBT001
        return open_parts(self._parts).find(word, ignore_case)


def open_parts(parts: Iterable[FilePart]) -> ResourceInputs:
    """The inputs of parts, and their shards, which are not looked for again."""
    found = ResourceInputs()
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


# What is unpacked stays for the next task.
@lru_cache(maxsize=4)
def _open_members(file: InputFile) -> tuple[Input, ...]:
    return tuple(open_file(file))


class FleetJudge:
    """Does tasks; made once in each worker."""

    def __init__(self, job: FleetJob) -> None:
        # Not frozen, as a run on one machine is: the garbage of one task would stay for all others.
        gc.set_threshold(COLLECT_AFTER)
        self._job = job
        self._judged = ClusterResources()
        self._facts: ClusterFacts | None = None
        self._plan = job.plan
        self._registries: Registries | None = None
        self._engines: Mapping[str, Engine] | None = None

    def survey(self, files: Iterable[InputFile]) -> FleetAnswer:
        """Look through files."""
        try:
            found = [each for file in files for each in self._survey_file(file)]
        except LictorError as error:
            return FleetAnswer(problem=str(error))
        return FleetAnswer(tuple(found))

    def _survey_file(self, file: InputFile) -> Iterator[FileSurvey]:
        for member, given in enumerate(_open_members(file)):
            found = ResourceInputs((given,))
            definitions = read_definitions(found.select(b"CustomResourceDefinition"))
            wanted = self._job.finds_exceptions
            yield FileSurvey(
                file,
                member,
                given.path,
                tuple(found.shards),
                namespaces=read_namespace_labels(found.find),
                definitions=tuple(definitions),
                exceptions=tuple(found.select(b"PolicyException")) if wanted else (),
                skipped=tuple(found.skipped),
            )

    def judge(self, parts: Iterable[FilePart], facts: ClusterFacts) -> FleetAnswer:
        """Judge parts of files; errors are told in the answer, with what came before them."""
        results: list[DocumentResult] = []
        try:
            for result in self._begin(open_parts(parts), facts).judge_all():
                results.append(result)
        except LictorError as error:
            return FleetAnswer(results=tuple(results), problem=str(error))
        return FleetAnswer(results=tuple(results))

    def _begin(self, inputs: ResourceInputs, facts: ClusterFacts) -> ApplyRun:
        if self._facts is None or facts.cluster != self._facts.cluster:
            self._turn_to(facts)
        job = self._job
        options, *more = (replace(each, cluster=facts.cluster) for each in (job.options, *job.more))
        run = ApplyRun(replace(self._plan, inputs=inputs), options, more, self._engines)
        self._engines = run.engines
        return run

    def _turn_to(self, facts: ClusterFacts) -> None:
        last = self._facts
        # Policies are compiled with both; where they are the same, so are the programs.
        if last is None or (last.definitions, last.exceptions) != (
            facts.definitions,
            facts.exceptions,
        ):
            self._engines = None
        self._facts = facts
        self._plan = self.complete_plan(facts)

    def complete_plan(self, facts: ClusterFacts) -> ApplyPlan:
        """The plan, with what is known of a cluster; its inputs are still missing."""
        job, plan = self._job, self._job.plan
        self._judged.turn_to(facts.parts)
        if self._registries is None:
            network, layout = job.asks_registries, job.image_layout
            self._registries = choose_registries(network=network, layout=layout)
        given = replace(
            plan.given,
            judged=self._judged,
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
