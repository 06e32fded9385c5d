"""Units wait for their turn: once each, in order, and longer when they make trouble."""

import asyncio
from contextlib import suppress

import pytest

from lictor.cluster.update_requests import UpdateTrigger
from lictor.control.generate.labels import GenerationUnit
from lictor.control.generate.queue import UnitQueue
from lictor.errors import EvaluationError


def unit(uid):
    return GenerationUnit("policy", "", "rule", UpdateTrigger("v1", "Namespace", "", uid, uid))


def run_queue(work, *units, workers=2, seconds=0.2):
    async def main():
        queue = UnitQueue(work, workers=workers, first_pause=0.02)
        for each in units:
            queue.enqueue(each)
        with suppress(TimeoutError):
            await asyncio.wait_for(queue.run(), seconds)
        return queue

    return asyncio.run(main())


def test_each_once_and_in_order():
    seen = []

    async def work(each):
        seen.append(each.trigger.uid)

    run_queue(work, unit("a"), unit("b"), unit("a"), unit("c"), workers=1)
    assert seen == ["a", "b", "c"]


def test_no_more_than_so_many_at_a_time():
    running = highest = 0

    async def work(_):
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0.01)
        running -= 1

    run_queue(work, *(unit(str(number)) for number in range(20)), workers=3)
    assert highest == 3


def test_what_fails_is_tried_again():
    seen = []

    async def work(each):
        seen.append(each.trigger.uid)
        if len(seen) < 3:
            raise EvaluationError("not now")

    run_queue(work, unit("a"))
    assert seen == ["a", "a", "a"]


@pytest.mark.parametrize(("times", "waits"), [(5, 0), (6, 1), (7, 1)])
def test_a_fight_becomes_a_truce(times, waits):
    async def main():
        queue = UnitQueue(lambda each: asyncio.sleep(0), workers=1)
        for _ in range(times):
            queue.note_fight(unit("a"))
        queue.enqueue(unit("a"))
        queue.enqueue(unit("b"))
        # What rests is delayed; what has no quarrel is not.
        return len(queue._delayed), len(queue._pending)

    assert asyncio.run(main()) == (waits, 2 - waits)
