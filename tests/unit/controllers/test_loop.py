"""When a loop runs: real asyncio, short times."""

import asyncio
import logging
import time

import pytest
from prometheus_client import REGISTRY

from lictor.controllers import loop as loops
from lictor.controllers.loop import ReconcileLoop
from lictor.core.errors import ApiError, ConflictError


class Source:
    """A cache that is told to be ready and to change."""

    def __init__(self):
        self.ready = asyncio.Event()
        self.listeners = []

    async def wait(self):
        await self.ready.wait()

    def listen(self, listener):
        self.listeners.append(listener)

    def change(self):
        for listener in self.listeners:
            listener(object())


class Work:
    """Counts its runs, and fails with what it is told to."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.times = []

    async def __call__(self):
        self.times.append(time.monotonic())
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault


async def run_for(loop, seconds, act=None, until=lambda: True):
    task = asyncio.create_task(loop.run())
    if act is not None:
        await act()
    async with asyncio.timeout(60):
        while not until():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def count(what, name):
    return REGISTRY.get_sample_value(f"kyverno_controller_{what}_total", {"controller_name": name})


def test_runs_at_start_and_at_the_interval():
    work = Work()
    began = time.monotonic()
    loop = ReconcileLoop("interval", work, interval=0.1)
    asyncio.run(run_for(loop, 0.1, until=lambda: len(work.times) > 1))
    assert 2 <= len(work.times) <= 2 + (time.monotonic() - began) / 0.1
    assert count("reconcile", "interval") == len(work.times)
    assert count("requeue", "interval") == 0
    assert count("drop", "interval") == 0


def test_waits_for_its_caches():
    async def play():
        source, work = Source(), Work()
        loop = ReconcileLoop("waits", work, interval=60, caches=(source,))
        task = asyncio.create_task(loop.run())
        source.change()
        await asyncio.sleep(0.05)
        assert work.times == []
        source.ready.set()
        while not work.times:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert len(work.times) == 1, "changes from before the first run are part of it"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())


def test_a_burst_of_changes_is_one_run():
    async def play():
        source, work = Source(), Work()
        source.ready.set()
        loop = ReconcileLoop("burst", work, interval=60, caches=(source,))

        async def act():
            await asyncio.sleep(0.05)
            for _ in range(20):
                source.change()
                await asyncio.sleep(0)

        await run_for(loop, 0.5, act, lambda: len(work.times) > 1)
        assert len(work.times) == 2

    asyncio.run(play())


def test_a_loop_that_works_hard_leaves_room_for_others():
    """While hundreds of policies come one by one, the same thread must answer for them."""
    runs = []

    async def work():
        runs.append(time.thread_time())
        while time.thread_time() < runs[-1] + 0.04:
            pass

    loop = ReconcileLoop("hard", work, interval=60.0)

    async def change():
        for _ in range(75):
            loop.wake()
            await asyncio.sleep(0.04)

    asyncio.run(run_for(loop, 0.0, change, lambda: len(runs) > 1))
    # Many times as long as each run took; without that there would be twenty.
    assert 2 <= len(runs) <= 5


def test_a_change_during_a_run_causes_another():
    async def play():
        runs = []
        loop = None

        async def work():
            runs.append(1)
            if len(runs) == 1:
                loop.wake()  # type: ignore[attr-defined]

        loop = ReconcileLoop("during", work, interval=60)
        await run_for(loop, 0.5, until=lambda: len(runs) > 1)
        assert len(runs) == 2

    asyncio.run(play())


def test_wake_later():
    async def play():
        work = Work()
        loop = ReconcileLoop("later", work, interval=60)

        async def act():
            await asyncio.sleep(0.02)
            loop.wake_later(30)
            loop.wake_later(0.05)

        await run_for(loop, 0.5, act, lambda: len(work.times) > 1)
        assert len(work.times) == 2

    asyncio.run(play())


@pytest.mark.parametrize(
    "fault",
    [ApiError("no", status=403), ValueError("a bug"), TimeoutError("slow")],
    ids=["api", "bug", "slow"],
)
def test_an_error_ends_nothing(fault, caplog):
    work = Work(fault)
    with caplog.at_level(logging.INFO):
        loop = ReconcileLoop("heals", work, interval=60)
        asyncio.run(run_for(loop, 0.5, until=lambda: len(work.times) > 1))
    assert len(work.times) == 2
    assert work.times[1] - work.times[0] > 0.4
    failures = [record for record in caplog.records if record.message == "reconcile failed"]
    assert len(failures) == 1
    expected = not isinstance(fault, ValueError)
    assert failures[0].levelno == (logging.WARNING if expected else logging.ERROR)
    assert (failures[0].exc_info is None) == expected
    assert any(record.message == "controller recovered" for record in caplog.records)


def test_pauses_grow_and_each_reason_is_told_once(caplog, monkeypatch):
    monkeypatch.setattr(loops, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(loops, "_LONGEST_PAUSE", 0.1)
    faults = [ApiError("one", status=403), ApiError("two", status=403)] * 3
    work = Work(*faults)
    with caplog.at_level(logging.WARNING):
        loop = ReconcileLoop("grow", work, interval=60)
        asyncio.run(run_for(loop, 0.2, until=lambda: len(work.times) > 6))
    gaps = [after - before for before, after in zip(work.times, work.times[1:], strict=False)]
    assert len(work.times) == 7
    # Between half of a pause and all of it: 0.02, 0.04, 0.08, then 0.1.
    assert all(gap > least / 2 for gap, least in zip(gaps, (0.02, 0.04, 0.08), strict=False))
    assert len([r for r in caplog.records if r.message == "reconcile failed"]) == 2
    assert count("requeue", "grow") == 6


def test_a_conflict_is_tried_again_at_once_and_not_told(caplog):
    work = Work(ConflictError("changed", status=409))
    with caplog.at_level(logging.WARNING):
        loop = ReconcileLoop("conflict", work, interval=60)
        asyncio.run(run_for(loop, 0.3, until=lambda: len(work.times) > 1))
    assert len(work.times) == 2
    assert caplog.records == []


def test_conflicts_without_end_do_not_spin():
    work = Work(*[ConflictError("always", status=409)] * 100)
    asyncio.run(run_for(ReconcileLoop("fight", work, interval=60), 0.7))
    assert len(work.times) <= 4


def test_a_wake_cuts_a_long_pause_short(monkeypatch):
    async def play():
        monkeypatch.setattr(loops, "_FIRST_PAUSE", 30)
        monkeypatch.setattr(loops, "_LEAST_REST", 0.1)
        work = Work(ApiError("away"))
        loop = ReconcileLoop("cut", work, interval=60)

        async def act():
            await asyncio.sleep(0.02)
            loop.wake()

        await run_for(loop, 0.5, act, lambda: len(work.times) > 1)
        assert len(work.times) == 2

    asyncio.run(play())


def test_a_run_that_hangs_is_ended(monkeypatch, caplog):
    async def play():
        monkeypatch.setattr(loops, "_RUN_LIMIT", 0.05)
        runs = []

        async def work():
            runs.append(1)
            if len(runs) == 1:
                await asyncio.sleep(3600)

        loop = ReconcileLoop("hangs", work, interval=60)
        await run_for(loop, 0.3, until=lambda: len(runs) > 1)
        assert len(runs) == 2

    asyncio.run(play())


def test_last_success():
    async def play():
        loop = ReconcileLoop("success", Work(ApiError("no")), interval=60)
        assert loop.last_success is None
        await run_for(loop, 0.2)
        assert loop.last_success is None
        good = ReconcileLoop("success", Work(), interval=60)
        await run_for(good, 0.05)
        assert good.last_success is not None

    asyncio.run(play())
