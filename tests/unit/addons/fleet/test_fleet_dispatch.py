"""Tasks shared out over workers that die: every answer once, in order, or a clear end."""

import random
from collections import deque

import pytest

from lictor.addons.fleet.dispatch import Died, Dispatcher
from lictor.cli.inputs.parallel import WorkerError
from lictor.core.raw import Json


class FakeWorkers:
    """Answers in an order of its own; dies over tasks as often as it is told."""

    def __init__(self, deaths=None, seed=0):
        self.deaths = dict(deaths or {})
        self.queues: dict[int, deque[int]] = {}
        self.started = 0
        self.done: list[int] = []
        self.most_ahead = 0
        self.random = random.Random(seed)

    def start(self):
        self.started += 1
        self.queues[self.started] = deque()
        return self.started

    def send(self, worker, task):
        self.queues[worker].append(task)

    def wait(self):
        worker = self.random.choice([each for each, queue in self.queues.items() if queue])
        task = self.queues[worker][0]
        if self.deaths.get(task, 0):
            self.deaths[task] -= 1
            del self.queues[worker]
            return worker, Died("it was killed")
        self.done.append(self.queues[worker].popleft())
        return worker, task * 10


class NumberedTask(int):
    """Has a name for messages, as a FleetTask does."""

    @property
    def name(self):
        return f"task {int(self)}"


def run(workers, tasks, size=3, attempts=3):
    dispatcher = Dispatcher(workers, size, attempts)
    numbered: Json = [NumberedTask(task) for task in tasks]
    return list(dispatcher.run(numbered)), dispatcher


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_answers_come_in_the_order_of_the_tasks(seed, size):
    workers = FakeWorkers(seed=seed)
    answers, _ = run(workers, range(57), size)
    assert answers == [task * 10 for task in range(57)]
    assert sorted(workers.done) == list(range(57))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_dead_worker_had_begun_is_done_again_by_another(seed):
    workers = FakeWorkers({3: 1, 4: 2, 20: 1, 39: 2}, seed)
    answers, dispatcher = run(workers, range(40))
    assert answers == [task * 10 for task in range(40)]
    assert dispatcher.replaced == 6
    assert len(dispatcher.workers) == 3
    assert set(dispatcher.workers).issubset(workers.queues)


def test_a_task_that_kills_every_worker_ends_the_run_and_is_named():
    workers = FakeWorkers({7: 99})
    with pytest.raises(WorkerError, match=r"task 7: 3 workers died over it.*it was killed"):
        run(workers, range(20))


def test_a_task_that_only_waited_at_a_dead_worker_is_not_blamed():
    # The first task of one worker kills it twice; the second must still have all its attempts.
    workers = FakeWorkers({0: 2, 1: 2})
    answers, _ = run(workers, range(4), size=1)
    assert answers == [0, 10, 20, 30]


def test_an_early_answer_that_is_late_bounds_what_is_held():
    class Stuck(FakeWorkers):
        """The worker with the first task answers last."""

        def wait(self):
            slow = next((each for each, queue in self.queues.items() if 0 in queue), None)
            others = {each: queue for each, queue in self.queues.items() if queue}
            if slow is not None and len(others) > 1:
                others.pop(slow)
            worker = next(iter(others))
            self.done.append(self.queues[worker].popleft())
            if slow is not None:
                self.most_ahead = max(self.most_ahead, self.done[-1])
            return worker, self.done[-1] * 10

    workers = Stuck()
    answers, _ = run(workers, range(500))
    assert answers == [task * 10 for task in range(500)]
    assert workers.most_ahead < 60


def test_no_tasks_give_no_answers():
    assert run(FakeWorkers(), [])[0] == []
