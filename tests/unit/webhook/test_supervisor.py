"""The parent and its children: real processes that die, hang and end."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from lictor.kubernetes.metrics import RECYCLED, RESTARTS
from lictor.webhook.counters import Counters, read_tables
from lictor.webhook.slots import ProcessSlot
from lictor.webhook.supervisor import SupervisedProcess, Supervisor

Child = Callable[[ProcessSlot], None]


def _wait_for_end(slot: ProcessSlot) -> None:
    """A child that lives until it is told to end."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    while not ended:
        slot.beat()
        time.sleep(0.02)


def _die(slot: ProcessSlot) -> None:
    counters = Counters()
    counters.count("born")
    slot.write(counters.dump())
    slot.beat()
    time.sleep(0.05)
    raise SystemExit(3)


def _hang(slot: ProcessSlot) -> None:
    slot.beat()
    time.sleep(60)


def _ignore_the_end(slot: ProcessSlot) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        slot.beat()
        time.sleep(0.02)


class _Run:
    """A supervisor in a process of its own, as it is in life."""

    def __init__(
        self, child: Child, *, patience: float = 0.0, grace: float = 5.0, niceness: int = 0
    ) -> None:
        self.slot, self.departed = ProcessSlot(65536), ProcessSlot(65536)
        post = SupervisedProcess("child", child, self.slot, patience=patience, niceness=niceness)
        supervisor = Supervisor([post], self.departed, grace=grace)
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=lambda: os._exit(supervisor.run()))
        self.process.start()

    def wait(self, test: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not test():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> int | None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.join(90)
        return self.process.exitcode

    def count(self, metric: str) -> float:
        tables = read_tables(self.departed.read())
        return sum(v for name, _, v in tables.counters if name == metric) if tables else 0


def test_all_end_well_when_told() -> None:
    run = _Run(_wait_for_end)
    run.wait(lambda: run.slot.last_beat > 0)
    assert run.end() == 0


def test_what_is_told_to_end_before_it_has_begun_ends_well() -> None:
    run = _Run(_hang)
    run.wait(lambda: run.slot.last_beat > 0)
    assert run.end() == 0


def _run_beside_a_thread(supervisor: Supervisor, slot: ProcessSlot) -> None:
    """A thread that blocks no signals, like those of libraries, gets the SIGTERM."""

    def take_the_signal() -> None:
        while not slot.last_beat:
            time.sleep(0.02)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    threading.Thread(target=take_the_signal, daemon=True).start()
    os._exit(supervisor.run())


def test_a_signal_that_another_thread_receives_ends_all_well() -> None:
    slot = ProcessSlot(65536)
    post = SupervisedProcess("child", _wait_for_end, slot)
    supervisor = Supervisor([post], ProcessSlot(65536), grace=5.0)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_run_beside_a_thread, args=(supervisor, slot))
    process.start()
    process.join(90)
    assert process.exitcode == 0


def test_what_dies_is_replaced_and_its_counts_stay() -> None:
    run = _Run(_die)
    run.wait(lambda: run.count(RESTARTS) >= 2)
    assert run.count("born") == run.count(RESTARTS)
    run.end()


def test_what_hangs_is_replaced() -> None:
    run = _Run(_hang, patience=0.3)
    run.wait(lambda: run.count(RESTARTS) >= 1)
    run.end()


def _tell_niceness(slot: ProcessSlot) -> None:
    slot.write(str(os.nice(0)).encode())
    _wait_for_end(slot)


def test_what_takes_long_gives_way() -> None:
    run = _Run(_tell_niceness, niceness=3)
    run.wait(lambda: bool(run.slot.read()))
    assert int(run.slot.read()) == min(os.nice(0) + 3, 19)
    assert run.end() == 0


def _grow(slot: ProcessSlot) -> None:
    """A child that soon wants to be replaced."""
    slot.tell(is_ready=True, has_grown=True)
    _wait_for_end(slot)


def _become_ready(slot: ProcessSlot) -> None:
    slot.beat()
    time.sleep(0.3)
    slot.tell(is_ready=True, has_grown=False)
    _wait_for_end(slot)


def test_what_has_grown_is_replaced_when_another_is_ready() -> None:
    old, new, departed = ProcessSlot(65536), ProcessSlot(65536), ProcessSlot(65536)
    post = SupervisedProcess(
        "child", _grow, old, successor=SupervisedProcess("child", _become_ready, new)
    )
    run = _Run.__new__(_Run)
    run.slot, run.departed = old, departed
    supervisor = Supervisor([post], departed, grace=5.0)
    run.process = multiprocessing.get_context("fork").Process(
        target=lambda: os._exit(supervisor.run())
    )
    run.process.start()
    seen: list[tuple[bool, bool]] = []

    def is_done() -> bool:
        seen.append((old.last_beat > 0, new.is_ready))
        return run.count(RECYCLED) == 1 and old.last_beat == 0

    run.wait(is_done)
    # At no moment was nobody there.
    begun = next((number for number, (is_old, _) in enumerate(seen) if is_old), len(seen))
    assert all(is_old or is_new for is_old, is_new in seen[begun:])
    assert run.count(RESTARTS) == 0
    assert run.end() == 0


def test_what_does_not_end_is_killed() -> None:
    run = _Run(_ignore_the_end, grace=0.5)
    run.wait(lambda: run.slot.last_beat > 0)
    assert run.end() == 1


@pytest.mark.parametrize("size", [10, 5000])
def test_slots_hold_what_fits(size: int) -> None:
    slot = ProcessSlot(4096)
    slot.write(b"first")
    assert slot.write(b"x" * size) is (size < 4000)
    assert slot.read() == (b"x" * size if size < 4000 else b"first")
    slot.beat()
    assert slot.last_beat > 0
    slot.clear()
    assert (slot.read(), slot.last_beat) == (b"", 0.0)
