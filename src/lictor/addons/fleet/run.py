"""A run of `apply` over many files and clusters: answers as on one machine, in the same order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from lictor.addons.fleet.addresses import (
    InputFile,
    NameCluster,
    compile_cluster_template,
    list_inputs,
)
from lictor.addons.fleet.dispatch import ATTEMPTS, Dispatcher, Workers
from lictor.addons.fleet.judging import (
    ClusterFacts,
    FilePart,
    FileSurvey,
    FleetAnswer,
    FleetJob,
    FleetJudge,
    JudgeTask,
    SurveyTask,
    open_parts,
)
from lictor.cli.apply_outputs import OutputOptions
from lictor.cli.apply_plan import ApplyFlags, is_ray, make_plan
from lictor.cli.apply_run import ApplyPlan, ApplyRun, DocumentResult
from lictor.cli.inputs.parallel import WorkerError, choose_processes, map_chunks, usable_cores
from lictor.cli.inputs.policies import LoadedPolicies, load_exceptions
from lictor.cli.inputs.resource_inputs import ResourceInputs
from lictor.cli.inputs.shards import Shard
from lictor.core.errors import LoadError
from lictor.core.report.summary import Counts

FleetTask: TypeAlias = SurveyTask | JudgeTask

# About a second of judging: what a worker that dies takes with it.
_TASK_BYTES = 1 << 20
# So many small files in one task at most: each costs a round trip where it lies far away.
_TASK_FILES = 256


class TaskRunner(Protocol):
    """Who does tasks: the one thing in which engines differ."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell people at the end."""

    def run(self, tasks: Sequence[FleetTask]) -> Iterator[FleetAnswer]:
        """The answers, in the order of the tasks."""


class ProcessRunner:
    """The local engine: processes forked from this one."""

    def __init__(self, job: FleetJob, wanted: int) -> None:
        self._judge = FleetJudge(job)
        self._wanted = wanted or usable_cores()

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def run(self, tasks: Sequence[FleetTask]) -> Iterator[FleetAnswer]:
        processes = choose_processes(len(tasks), self._wanted)
        yield from map_chunks(self._do, [[task] for task in tasks], processes)

    def _do(self, tasks: Sequence[FleetTask]) -> FleetAnswer:
        (task,) = tasks
        if isinstance(task, SurveyTask):
            return self._judge.survey(task.files)
        return self._judge.judge(task.parts, task.facts)


class DispatchRunner:
    """Workers that may die, on any machine: what they had begun is given to others."""

    def __init__(
        self, workers: Workers[FleetTask, FleetAnswer], size: int, attempts: int = ATTEMPTS
    ) -> None:
        self._workers = workers
        self._size = size
        self._attempts = attempts
        self._started: tuple[int, ...] = ()
        self._replaced = 0

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._replaced:
            return ()
        return (f"workers that died: {self._replaced}; what they had begun was done again",)

    def run(self, tasks: Sequence[FleetTask]) -> Iterator[FleetAnswer]:
        while len(self._started) < min(self._size, len(tasks)):
            self._started = (*self._started, self._workers.start())
        dispatcher = Dispatcher(self._workers, tasks, lambda task: task.name, self._attempts)
        yield from dispatcher.run(self._started)
        self._started = dispatcher.workers
        self._replaced += dispatcher.replaced


class FleetRun(ApplyRun):
    """Looks through all files, then judges them; made once for each run."""

    def __init__(
        self,
        job: FleetJob,
        files: Sequence[InputFile],
        name_cluster: NameCluster,
        runner: TaskRunner,
    ) -> None:
        super().__init__(job.plan, job.options, job.more)
        self._job = job
        self._runner = runner
        surveys = [
            (_choose_cluster(survey, name_cluster), survey) for survey in _survey(files, runner)
        ]
        self._facts = _collect_facts(surveys)
        parts = [(cluster, survey.part) for cluster, survey in surveys]
        self._tasks = [
            JudgeTask(group, self._facts[cluster])
            for cluster, group in group_parts(parts, _TASK_BYTES)
        ]
        self._documents = sum(shard.count for _, part in parts for shard in part.shards)
        self._empty = [
            name
            for name, facts in self._facts.items()
            if name and not any(part.shards for part in facts.parts)
        ]
        self._skipped = [line for _, survey in surveys for line in survey.skipped]
        exceptions = [each for facts in self._facts.values() for each in facts.exceptions]
        self.plan = replace(job.plan, exceptions=(*exceptions, *job.plan.exceptions))

    def list_plans(self) -> Iterator[tuple[str, ApplyPlan]]:
        for cluster, facts in self._facts.items():
            plan = FleetJudge(self._job).complete_plan(facts)
            yield cluster, replace(plan, inputs=open_parts(facts.parts))

    @property
    def count(self) -> int:
        return self._documents

    @property
    def skipped(self) -> list[str]:
        empty = (f"cluster {name}: no resources were found; an error" for name in self._empty)
        return [*self._skipped, *empty]

    @property
    def unusable_count(self) -> Counts:
        # A cluster of which nothing is known must not look like one in which all is well.
        return super().unusable_count + Counts(errors=len(self._empty))

    def run(self) -> Iterator[DocumentResult]:
        """Judge everything, in order; held is what workers are ahead."""
        for answer in self._runner.run(self._tasks):
            yield from answer.results
            _raise_problem(answer)
        yield DocumentResult(notes=self._runner.notes)


def _raise_problem(answer: FleetAnswer) -> None:
    if answer.problem:
        raise WorkerError(answer.problem)


def _survey(files: Sequence[InputFile], runner: TaskRunner) -> Iterator[FileSurvey]:
    for answer in runner.run([SurveyTask(group) for group in group_files(files, _TASK_BYTES)]):
        _raise_problem(answer)
        yield from answer.surveys


def _choose_cluster(survey: FileSurvey, name_cluster: NameCluster) -> str:
    """By the path of the file, or else by that of the file in an archive."""
    try:
        return name_cluster(survey.file.name)
    except LoadError:
        if survey.path == survey.file.name:
            raise
        return name_cluster(survey.path)


def _collect_facts(surveys: Iterable[tuple[str, FileSurvey]]) -> dict[str, ClusterFacts]:
    groups: dict[str, list[FileSurvey]] = {}
    for cluster, survey in surveys:
        groups.setdefault(cluster, []).append(survey)
    return {cluster: _join_facts(cluster, group) for cluster, group in groups.items()}


def _join_facts(cluster: str, surveys: Sequence[FileSurvey]) -> ClusterFacts:
    return ClusterFacts(
        cluster,
        parts=tuple(each.part for each in surveys),
        namespaces={name: labels for each in surveys for name, labels in each.namespaces.items()},
        definitions=tuple(found for each in surveys for found in each.definitions),
        exceptions=load_exceptions(text for each in surveys for text in each.exceptions),
    )


def group_files(files: Iterable[InputFile], size: int) -> Iterator[tuple[InputFile, ...]]:
    """Files to be looked through at once: one large one, or several small ones."""
    group, filled = list[InputFile](), 0
    for file in files:
        weight = size if file.size is None else file.size
        if group and (filled + weight > size or len(group) >= _TASK_FILES):
            yield tuple(group)
            group, filled = [], 0
        group.append(file)
        filled += weight
    if group:
        yield tuple(group)


def group_parts(
    parts: Iterable[tuple[str, FilePart]], size: int
) -> Iterator[tuple[str, tuple[FilePart, ...]]]:
    """Shards of one cluster to be judged at once, by bytes; their order is kept."""
    last, group, filled = "", list[FilePart](), 0
    for cluster, part in parts:
        for piece in _cut_part(part, size):
            weight = sum(shard.size for shard in piece.shards)
            is_full = filled + weight > size or len(group) >= _TASK_FILES
            if group and (is_full or cluster != last):
                yield last, tuple(group)
                group, filled = [], 0
            last = cluster
            group.append(piece)
            filled += weight
    if group:
        yield last, tuple(group)


def _cut_part(part: FilePart, size: int) -> Iterator[FilePart]:
    shards, filled = list[Shard](), 0
    for shard in part.shards:
        if shards and filled + shard.size > size:
            yield FilePart(part.file, part.member, tuple(shards))
            shards, filled = [], 0
        shards.append(shard)
        filled += shard.size
    if shards:
        yield FilePart(part.file, part.member, tuple(shards))


@contextmanager
def begin_fleet(
    flags: ApplyFlags,
    policies: LoadedPolicies,
    options: tuple[OutputOptions, ...],
    say: Callable[[str], None],
) -> Iterator[FleetRun]:
    """The run that flags ask for, with everything looked through; its workers end with it."""
    name_cluster = compile_cluster_template(flags.cluster_from)
    files = tuple(list_inputs(flags.resource_paths, say))
    plan = make_plan(flags, policies, ResourceInputs())
    job = FleetJob(
        # Neither locks nor connections can travel.
        plan=replace(plan, given=replace(plan.given, judged=None, registries=None)),
        options=options[0],
        more=options[1:],
        finds_exceptions=flags.exceptions_with_resources or flags.exceptions_within_resources,
        asks_registries=flags.registry,
        image_layout=flags.image_layout,
    )
    if not is_ray(flags.engine):
        yield FleetRun(job, files, name_cluster, ProcessRunner(job, flags.parallel))
        return
    from lictor.addons.fleet.ray_workers import open_ray

    with open_ray(flags.engine, job, flags.parallel) as workers:
        yield FleetRun(job, files, name_cluster, DispatchRunner(workers, workers.size))
