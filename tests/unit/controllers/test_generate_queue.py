"""Units wait for their turn: once each, in order, and longer when they make trouble."""

import asyncio
from contextlib import suppress

import pytest

from lictor.controllers.generate.labels import GenerationUnit
from lictor.controllers.generate.queue import GenerationQueue, Rewrites
from lictor.core.errors import EvaluationError
from lictor.kubernetes.update_requests import UpdateTrigger


def unit(uid):
    return GenerationUnit("policy", "", "rule", UpdateTrigger("v1", "Namespace", "", uid, uid))


def run_queue(work, *units, workers=2, seconds=0.6):
    async def main():
        queue = GenerationQueue(work, Rewrites(), workers=workers, first_pause=0.02)
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


@pytest.mark.parametrize(("times", "reconciled"), [(5, ["a", "b"]), (6, ["b"]), (7, ["b"])])
def test_a_unit_that_others_rewrite_rests(times, reconciled):
    async def main():
        rewrites, seen = Rewrites(), []
        for _ in range(times):
            rewrites.note(unit("a"))

        async def work(each):
            seen.append(each.trigger.uid)

        queue = GenerationQueue(work, rewrites, workers=1)
        queue.enqueue(unit("a"))
        queue.enqueue(unit("b"))
        with suppress(TimeoutError):
            await asyncio.wait_for(queue.run(), 0.4)
        return seen

    assert asyncio.run(main()) == reconciled
