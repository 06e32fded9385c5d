"""The memory of a webhook process: its limit, and when it is too much."""

import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

from lictor.webhook.capacity import ProcessMemory

MEGABYTE = 1024 * 1024


def _succeeds(test: Callable[[], bool]) -> bool:
    """In a process of its own, and a small one: limits stay where they are set."""
    process = multiprocessing.get_context("spawn").Process(target=_exit_by, args=(test,))
    process.start()
    process.join(60)
    return process.exitcode == 0


def _exit_by(test: Callable[[], bool]) -> None:
    os._exit(not test())


def _refuses_too_much() -> bool:
    ProcessMemory(1)
    try:
        bytearray(300 * MEGABYTE)
    except MemoryError:
        return len(bytearray(30 * MEGABYTE)) > 0
    return False


def _makes_room_for_connections() -> bool:
    memory = ProcessMemory(1)
    before, _ = resource.getrlimit(resource.RLIMIT_DATA)
    memory.note_connections(1000)
    during, _ = resource.getrlimit(resource.RLIMIT_DATA)
    memory.note_connections(0)
    after, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return after == before and 250 * MEGABYTE < during - before < 300 * MEGABYTE


def _gives_a_reserve_once() -> bool:
    memory = ProcessMemory(1)
    before, _ = resource.getrlimit(resource.RLIMIT_DATA)
    for _ in range(3):
        memory.give_reserve()
    after, _ = resource.getrlimit(resource.RLIMIT_DATA)
    # Whoever needed it is to be replaced.
    return after == before + 32 * MEGABYTE and memory.has_grown(1.0, 0, is_ready=True)


def _tells_growth() -> bool:
    memory = ProcessMemory(1)
    told = [memory.has_grown(moment, 0, is_ready=True) for moment in (1.0, 7.0, 8.0)]
    kept = [bytes(1000) for _ in range(100_000)]
    told.append(memory.has_grown(20.0, 0, is_ready=True))
    # Connections are no growth.
    told.append(memory.has_grown(40.0, 2000, is_ready=True))
    kept.clear()
    told.append(memory.has_grown(60.0, 0, is_ready=True))
    return told == [False, False, False, True, False, False]


@pytest.mark.parametrize(
    "test",
    [_refuses_too_much, _makes_room_for_connections, _gives_a_reserve_once, _tells_growth],
    ids=lambda f: f.__name__,
)
def test_memory_has_a_limit_and_a_measure(test: Callable[[], bool]) -> None:
    assert _succeeds(test)


@pytest.mark.parametrize(("said", "megabytes", "code"), [("256Mi", 150, 0), ("256Mi", 400, 7)])
def test_controllers_run_out_of_memory_before_the_kernel_ends_them(
    said: str, megabytes: int, code: int
) -> None:
    script = (
        "import sys\n"
        "from lictor.webhook.capacity import limit_controllers\n"
        f"limit_controllers({said!r})\n"
        "try:\n"
        f"    bytearray({megabytes} << 20)\n"
        "except MemoryError:\n"
        "    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == code
