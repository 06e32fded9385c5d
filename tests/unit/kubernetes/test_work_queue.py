"""Items wait for their due time, each once, and are worked on by a few workers."""

import asyncio
from contextlib import suppress

from lictor.core.errors import UsageError
from lictor.kubernetes.work_queue import DueQueue, WorkQueue


def test_takes_what_is_due_the_earliest_first_and_not_too_much():
    queue = DueQueue()
    for name, minutes in (("c", 3), ("a", 1), ("d", 9), ("b", 2)):
        assert queue.put(name, minutes)
    assert queue.next_due == 1
    assert queue.take(3, 2) == ["a", "b"]
    assert queue.take(3, 2) == ["c"]
    assert queue.take(3, 2) == []
    assert len(queue) == 1
    assert "d" in queue


def test_a_moved_object_counts_once_and_a_dropped_one_not_at_all():
    queue = DueQueue()
    queue.put("a", 1)
    queue.put("a", 5)
    assert not queue.put("a", 5)
    queue.put("b", 2)
    queue.drop("b")
    queue.put("secret/s", 3)
    queue.drop_where(lambda item: item.startswith("secret/"))
    assert queue.next_due == 5
    assert queue.take(9, 10) == ["a"]
    assert queue.next_due is None


def test_an_object_that_is_moved_all_the_time_leaves_no_trail():
    queue = DueQueue()
    for step in range(20_000):
        queue.put("a", step)
    assert len(queue._heap) <= 1002
    assert queue.take(19_998, 1) == []
    assert queue.take(19_999, 1) == ["a"]


def run_queue(reconcile, *items, seconds=0.8, **settings):
    async def main():
        queue = WorkQueue("test", reconcile, **settings)
        for item, *delay in items:
            queue.add(item, *delay)
        with suppress(TimeoutError):
            await asyncio.wait_for(queue.run(), seconds)

    asyncio.run(main())


def test_the_earliest_of_several_calls_counts():
    seen = []

    async def reconcile(item):
        seen.append(item)
        return True

    run_queue(reconcile, ("a", 60.0), ("b", 0.05), ("a",), ("b", 60.0), ("c", 60.0), workers=1)
    assert seen == ["a", "b"]


def test_an_item_is_never_worked_on_twice_at_a_time():
    running, seen = set(), []

    async def main():
        async def reconcile(item):
            assert item not in running
            running.add(item)
            if len(seen) < 2:
                queue.add(item)
            await asyncio.sleep(0.02)
            running.discard(item)
            seen.append(item)
            return True

        queue = WorkQueue("test", reconcile, workers=4)
        queue.add("a")
        with suppress(TimeoutError):
            await asyncio.wait_for(queue.run(), 0.8)

    asyncio.run(main())
    assert seen == ["a", "a", "a"]


def test_what_fails_waits_longer_each_time_and_what_is_forgotten_does_not_return():
    seen = []

    async def main():
        async def reconcile(item):
            seen.append(item)
            if seen.count("a") == 3:
                queue.keep(set())
            raise UsageError("no")

        queue = WorkQueue("test", reconcile, pauses=(0.02, 1.0), workers=1)
        queue.add("a")
        queue.add("b", 0.03)
        with suppress(TimeoutError):
            await asyncio.wait_for(queue.run(), 0.8)

    asyncio.run(main())
    assert seen.count("b") <= 2
    assert seen.count("a") >= 3


def test_who_has_many_items_holds_up_no_other():
    done = []

    async def reconcile(item):
        await asyncio.sleep(0.002)
        done.append(item)
        return True

    async def work():
        queue = WorkQueue("test", reconcile, workers=1, owner=lambda item: item[0])
        for number in range(100):
            queue.add(("red", number))
        queue.add(("blue", 0))
        queue.add(("", 0))
        task = asyncio.create_task(queue.run())
        async with asyncio.timeout(30):
            while len(done) < 102:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    assert done.index(("", 0)) <= 1
    assert done.index(("blue", 0)) <= 3
    assert [item for item in done if item[0] == "red"] == [("red", n) for n in range(100)]
