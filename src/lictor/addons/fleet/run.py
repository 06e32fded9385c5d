"""A run of `apply` over many files and clusters: the results and their order are the same."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Protocol, TypeVar

from msgspec.structs import replace

from lictor.addons.fleet.addresses import (
    InputFile,
    NameCluster,
    compile_cluster_template,
    list_inputs,
)
from lictor.addons.fleet.dispatch import Dispatcher
from lictor.addons.fleet.evaluator import (
    ClusterFacts,
    FilePart,
    FileSurvey,
    FleetAnswer,
    FleetEvaluator,
    FleetJob,
    FleetTask,
    open_parts,
)
from lictor.cli.apply_outputs import OutputOptions
from lictor.cli.apply_plan import ApplyFlags, is_ray, make_plan
from lictor.cli.apply_run import ApplyPlan, ApplyRun, DocumentResult
from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.parallel import WorkerError, choose_processes, map_chunks, usable_cores
from lictor.cli.inputs.policies import LoadedPolicies, load_exceptions
from lictor.core.errors import LoadError

Item = TypeVar("Item")

# About a second of work: this much is lost with a worker that dies.
_TASK_BYTES = 1 << 20
# The most files or shards in one task: each remote file costs a round trip.
_TASK_ITEMS = 256


class TaskRunner(Protocol):
    """Runs tasks: the only difference between engines."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the end of the run."""

    def run(self, tasks: Sequence[FleetTask]) -> Iterator[FleetAnswer]:
        """Return the answers, in the order of the tasks."""


class ProcessRunner:
    """The local engine: forked processes."""

    notes: tuple[str, ...] = ()

    def __init__(self, job: FleetJob, wanted: int) -> None:
        self._evaluator = FleetEvaluator(job)
        self._wanted = wanted or usable_cores()

    def run(self, tasks: Sequence[FleetTask]) -> Iterator[FleetAnswer]:
        processes = choose_processes(len(tasks), self._wanted)
        chunks = [[task] for task in tasks]
        return map_chunks(lambda chunk: self._evaluator.run(chunk[0]), chunks, processes)


class FleetRun(ApplyRun):
    """Surveys all files, then evaluates them; created once for each run."""

    def __init__(
        self,
        job: FleetJob,
        files: Sequence[InputFile],
        name_cluster: NameCluster,
        runner: TaskRunner,
    ) -> None:
        super().__init__(job.plan, job.options)
        self._job = job
        self._runner = runner
        surveys = [
            (_choose_cluster(survey, name_cluster), survey) for survey in _survey(files, runner)
        ]
        self._facts = _collect_facts(surveys)
        parts = [(cluster, survey.part) for cluster, survey in surveys]
        self._tasks = [
            FleetTask(parts=group, facts=self._facts[cluster])
            for cluster, group in group_parts(parts, _TASK_BYTES)
        ]
        self.count = sum(shard.count for _, part in parts for shard in part.shards)
        empty = [
            name
            for name, facts in self._facts.items()
            if name and not any(part.shards for part in facts.parts)
        ]
        self.skipped = [
            *(line for _, survey in surveys for line in survey.skipped),
            *(f"cluster {name}: no resources were found; an error" for name in empty),
        ]
        # A cluster without resources must not look like one where all policies pass.
        self.unusable_count += len(empty)
        exceptions = [each for facts in self._facts.values() for each in facts.exceptions]
        self.plan = replace(job.plan, exceptions=(*exceptions, *job.plan.exceptions))

    def list_plans(self) -> Iterator[tuple[str, ApplyPlan]]:
        for cluster, facts in self._facts.items():
            plan = FleetEvaluator(self._job).complete_plan(facts)
            yield cluster, replace(plan, inputs=open_parts(facts.parts))

    def evaluate(self) -> Iterator[DocumentResult]:
        for answer in self._runner.run(self._tasks):
            yield from answer.results
            _raise_problem(answer)
        yield DocumentResult(notes=self._runner.notes)


def _raise_problem(answer: FleetAnswer) -> None:
    if answer.problem:
        raise WorkerError(answer.problem)


def _survey(files: Sequence[InputFile], runner: TaskRunner) -> Iterator[FileSurvey]:
    for answer in runner.run([FleetTask(group) for group in group_files(files, _TASK_BYTES)]):
        _raise_problem(answer)
        yield from answer.surveys


def _choose_cluster(survey: FileSurvey, name_cluster: NameCluster) -> str:
    """Name the cluster by the path of the file, or else by its path in an archive."""
    name = survey.part.file.name
    try:
        return name_cluster(name)
    except LoadError:
        if survey.path == name:
            raise
        return name_cluster(survey.path)


def _collect_facts(surveys: Iterable[tuple[str, FileSurvey]]) -> dict[str, ClusterFacts]:
    groups: dict[str, list[FileSurvey]] = {}
    for cluster, survey in surveys:
        groups.setdefault(cluster, []).append(survey)
    return {
        cluster: ClusterFacts(
            cluster,
            parts=tuple(each.part for each in group),
            namespaces={name: labels for each in group for name, labels in each.namespaces.items()},
            definitions=tuple(found for each in group for found in each.definitions),
            exceptions=load_exceptions(text for each in group for text in each.exceptions),
        )
        for cluster, group in groups.items()
    }


def _group(
    items: Iterable[Item], size: int, weigh: Callable[[Item], int]
) -> Iterator[tuple[Item, ...]]:
    """Group items that follow each other until a group has the size."""
    group, filled = list[Item](), 0
    for item in items:
        weight = weigh(item)
        if group and (filled + weight > size or len(group) >= _TASK_ITEMS):
            yield tuple(group)
            group, filled = [], 0
        group.append(item)
        filled += weight
    if group:
        yield tuple(group)


def group_files(files: Iterable[InputFile], size: int) -> Iterator[tuple[InputFile, ...]]:
    """Group files for one survey: one large file, or several small ones."""
    return _group(files, size, lambda file: size if file.size is None else file.size)


def group_parts(
    parts: Iterable[tuple[str, FilePart]], size: int
) -> Iterator[tuple[str, tuple[FilePart, ...]]]:
    """Group shards of one cluster for one evaluation, in order."""
    for cluster, found in groupby(parts, lambda each: each[0]):
        shards = ((part, shard) for _, part in found for shard in part.shards)
        for group in _group(shards, size, lambda each: each[1].size):
            # By identity: two parts of one file that follow each other are the same part.
            joined = groupby(group, lambda each: id(each[0]))
            pairs = (tuple(zip(*pieces, strict=True)) for _, pieces in joined)
            yield cluster, tuple(replace(owners[0], shards=cut) for owners, cut in pairs)


@contextmanager
def begin_fleet(
    flags: ApplyFlags,
    policies: LoadedPolicies,
    options: tuple[OutputOptions, ...],
    warn: Callable[[str], None],
) -> Iterator[FleetRun]:
    """Survey all files, and return the run; its workers end with it."""
    name_cluster = compile_cluster_template(flags.cluster_from)
    files = tuple(list_inputs(flags.resource_paths, warn))
    plan = make_plan(flags, policies, DocumentReader())
    job = FleetJob(
        # Locks and connections cannot be sent to workers.
        plan=replace(plan, given=replace(plan.given, evaluated=None, registries=None)),
        options=options,
        finds_exceptions=flags.exceptions_with_resources or flags.exceptions_within_resources,
        queries_registries=flags.registry,
        image_layout=flags.image_layout,
    )
    if not is_ray(flags.engine):
        yield FleetRun(job, files, name_cluster, ProcessRunner(job, flags.parallel))
        return
    from lictor.addons.fleet.ray_workers import open_ray

    with open_ray(flags.engine, job, flags.parallel) as workers:
        runner = Dispatcher(workers, workers.size)
        yield FleetRun(job, files, name_cluster, runner)
