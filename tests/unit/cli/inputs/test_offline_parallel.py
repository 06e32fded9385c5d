"""Work spread over processes gives the answers of one process, in order."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lictor.cli.apply_plan import ApplyFlags, choose_options, make_plan
from lictor.cli.apply_run import ApplyRun
from lictor.cli.inputs.document_reader import DocumentReader, open_resources
from lictor.cli.inputs.parallel import WorkerError, choose_processes, map_chunks
from lictor.cli.inputs.policies import load_policy_files
from lictor.cli.inputs.sources import SourceText
from lictor.core.errors import LoadError
from lictor.core.model.request import Request


def split_evenly(tasks: list[int], size: int) -> list[list[int]]:
    return [tasks[start : start + size] for start in range(0, len(tasks), size)]


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_answers_come_in_order(processes: int) -> None:
    chunks = split_evenly(list(range(20)), 3)
    answers = list(map_chunks(lambda chunk: [n * n for n in chunk], chunks, processes))
    assert [n for answer in answers for n in answer] == [n * n for n in range(20)]


def test_an_error_of_a_worker_reaches_the_parent() -> None:
    def work(chunk: list[int]) -> int:
        if 5 in chunk:
            raise LoadError("broken", where="f.yaml:3")
        return len(chunk)

    with pytest.raises(WorkerError, match=r"f.yaml:3: broken"):
        list(map_chunks(work, split_evenly(list(range(8)), 2), 2))


@pytest.mark.parametrize("die", [lambda: os._exit(3), os.abort])
def test_a_worker_that_dies_is_noticed(die: Callable[[], None]) -> None:
    def work(chunk: list[int]) -> int:
        die()
        return 1

    with pytest.raises(WorkerError, match="ended unexpectedly"):
        list(map_chunks(work, [[1], [2]], 2))


def list_children() -> set[str]:
    """The processes that this one began and has not heard the end of; other tests may have some."""
    files = Path("/proc/self/task").glob("*/children")
    return {child for file in files for child in file.read_text(encoding="ascii").split()}


def test_a_reader_that_stops_early_leaves_no_process() -> None:
    before = list_children()
    answers = map_chunks(lambda chunk: b"x" * 200_000, split_evenly(list(range(50)), 1), 2)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert list_children() <= before


@pytest.mark.parametrize(
    ("tasks", "wanted", "least", "most"),
    [(1, 0, 1, 1), (200, 0, 1, 1), (10_000, 0, 1, 64), (10, 4, 4, 4), (2, 8, 2, 2), (0, 3, 1, 1)],
)
def test_how_many_processes(tasks: int, wanted: int, least: int, most: int) -> None:
    assert least <= choose_processes(tasks, wanted) <= most


POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no team, pattern: {metadata: {labels: {team: "?*"}}}}
"""
PODS = "".join(
    f"---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p{number}\n" for number in range(60)
)


@pytest.mark.parametrize(("processes", "is_known"), [(1, False), (2, True)])
def test_rules_are_compiled_before_processes_are_forked(
    tmp_path: Path, *, processes: int, is_known: bool
) -> None:
    """Else each process would compile them by itself."""
    (tmp_path / "pods.yaml").write_text(PODS)
    policies = load_policy_files([SourceText("policy.yaml", POLICY.encode())])
    flags = ApplyFlags(policies=(), parallel=processes)
    inputs = DocumentReader(open_resources([str(tmp_path / "pods.yaml")]))
    application = ApplyRun(make_plan(flags, policies, inputs), [choose_options(flags, 0)])
    application.compile_first()
    results = application.evaluate()
    first = Request.of({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p0"}})
    assert (application.engines[""].find_known_needs(first) is not None) == is_known
    assert sum(output.counts.failed for each in results for output in each.outputs[0]) == 60
