"""Distributes tasks over workers that may die, and returns the answers in order."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from lictor.addons.fleet.evaluator import FleetAnswer, FleetTask
from lictor.cli.inputs.parallel import WorkerError

# How often a task is tried before the run fails.
ATTEMPTS = 3
# Tasks that wait at each worker, so that it is never idle.
_TASKS_AT_ONCE = 2
# Answers per worker that are kept while an earlier one is missing.
_ANSWERS_AHEAD = 8


class Died(msgspec.Struct, frozen=True):
    """A worker ended before its work was done."""

    reason: str


class Workers(Protocol):
    """Processes on any machine; each runs its tasks one after the other."""

    def start(self) -> int:
        """Start one more worker, and return its number."""

    def send(self, worker: int, task: FleetTask) -> None:
        """Add a task to the queue of a worker."""

    def wait(self) -> tuple[int, FleetAnswer | Died]:
        """Return the next answer to the oldest task of a worker, or that it died."""


class Dispatcher:
    """Runs lists of tasks on the same workers; the tasks of a dead worker go to another one."""

    def __init__(
        self,
        workers: Workers,
        size: int,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._workers = workers
        self._size = size
        self._attempts = attempts
        # For each live worker: the numbers of its unanswered tasks, the oldest first.
        self._sent: dict[int, deque[int]] = {}
        # How many workers died.
        self.replaced = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the end of the run."""
        died = f"workers that died: {self.replaced}; what they had begun was done again"
        return (died,) if self.replaced else ()

    @property
    def workers(self) -> tuple[int, ...]:
        """The live workers."""
        return tuple(self._sent)

    def run(self, tasks: Sequence[FleetTask]) -> Iterator[FleetAnswer]:
        """Return the answers in the order of the tasks."""
        while len(self._sent) < min(self._size, len(tasks)):
            self._sent[self._workers.start()] = deque()
        waiting, answers = deque(range(len(tasks))), dict[int, FleetAnswer]()
        deaths: Counter[int] = Counter()
        for expected in range(len(tasks)):
            while expected not in answers:
                self._send_more(tasks, waiting, expected)
                worker, answer = self._workers.wait()
                if isinstance(answer, Died):
                    waiting.extendleft(reversed(self._replace(worker, tasks, deaths, answer)))
                else:
                    answers[self._sent[worker].popleft()] = answer
            yield answers.pop(expected)

    def _send_more(self, tasks: Sequence[FleetTask], waiting: deque[int], expected: int) -> None:
        last = expected + _ANSWERS_AHEAD * len(self._sent)
        for depth in range(_TASKS_AT_ONCE):
            for worker, sent in self._sent.items():
                if len(sent) <= depth and waiting and waiting[0] <= last:
                    sent.append(waiting.popleft())
                    self._workers.send(worker, tasks[sent[-1]])

    def _replace(
        self, worker: int, tasks: Sequence[FleetTask], deaths: Counter[int], died: Died
    ) -> deque[int]:
        """Start another worker, and return the tasks of the dead one."""
        lost = self._sent.pop(worker)
        self.replaced += 1
        if not lost:
            return lost
        # It ran the oldest task; the others only waited.
        suspect = lost[0]
        deaths[suspect] += 1
        if deaths[suspect] >= self._attempts:
            raise WorkerError(
                f"{tasks[suspect].name}: {self._attempts} workers died over it, "
                f"the last one because: {died.reason}"
            )
        self._sent[self._workers.start()] = deque()
        return lost
