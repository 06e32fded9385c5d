"""Who does what next? Tasks go to workers that may die, and answers come back in order.

The workers are behind a port: order and number of attempts are the same whoever works.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from lictor.cli.inputs.parallel import WorkerError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Task_contra = TypeVar("Task_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)

# How often a task is tried before the run gives up.
ATTEMPTS = 3
# So many tasks wait at each worker, so that it need not wait for us.
_TASKS_AT_ONCE = 2
# So many answers per worker are kept while an earlier one is still missing.
_ANSWERS_AHEAD = 8


class Died(msgspec.Struct, frozen=True):
    """A worker has ended before its work was done."""

    reason: str


class Workers(Protocol[Task_contra, Answer_co]):
    """Processes, here or elsewhere; each does what it is sent, one after the other."""

    def start(self) -> int:
        """Start one more worker, and give its number."""

    def send(self, worker: int, task: Task_contra) -> None:
        """Let a worker do a task when it has done those before."""

    def wait(self) -> tuple[int, "Answer_co | Died"]:
        """The next answer to the oldest task of a worker, or word that it has died."""


class Dispatcher(Generic[Task, Answer]):
    """One list of tasks, shared out over workers."""

    def __init__(
        self,
        workers: Workers[Task, Answer],
        tasks: Sequence[Task],
        name_task: Callable[[Task], str],
        attempts: int = ATTEMPTS,
    ) -> None:
        self._workers = workers
        self._tasks = tasks
        self._name_task = name_task
        self._attempts = attempts
        self._waiting = deque(range(len(tasks)))
        # By worker: what it was sent and has not answered, the oldest first.
        self._sent: dict[int, deque[int]] = {}
        self._answers: dict[int, Answer] = {}
        self._deaths: Counter[int] = Counter()
        # How many workers died; people are told.
        self.replaced = 0

    def run(self, workers: Sequence[int]) -> Iterator[Answer]:
        """The answers in the order of the tasks. These workers must be idle."""
        self._sent = {worker: deque() for worker in workers}
        for expected in range(len(self._tasks)):
            while expected not in self._answers:
                self._send_more(expected)
                self._receive()
            yield self._answers.pop(expected)

    @property
    def workers(self) -> tuple[int, ...]:
        """Those that live."""
        return tuple(self._sent)

    def _send_more(self, expected: int) -> None:
        last = expected + _ANSWERS_AHEAD * len(self._sent)
        for depth in range(_TASKS_AT_ONCE):
            for worker, sent in self._sent.items():
                if len(sent) <= depth and self._waiting and self._waiting[0] <= last:
                    sent.append(self._waiting.popleft())
                    self._workers.send(worker, self._tasks[sent[-1]])

    def _receive(self) -> None:
        worker, answer = self._workers.wait()
        if isinstance(answer, Died):
            self._replace(worker, answer)
            return
        self._answers[self._sent[worker].popleft()] = answer

    def _replace(self, worker: int, died: Died) -> None:
        lost = self._sent.pop(worker)
        self.replaced += 1
        if not lost:
            # Nothing was left for it to do.
            return
        # It worked on the oldest; the others only waited, and may have killed nobody.
        suspect = lost[0]
        self._deaths[suspect] += 1
        if self._deaths[suspect] >= self._attempts:
            raise WorkerError(
                f"{self._name_task(self._tasks[suspect])}: {self._attempts} workers died over it, "
                f"the last one because: {died.reason}"
            )
        self._waiting.extendleft(reversed(lost))
        self._sent[self._workers.start()] = deque()
