"""How many processes, and how much memory for each, does this container allow?"""

import asyncio
import contextlib
import ctypes
import logging
import math
import os
import resource
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from lictor.core.errors import UsageError
from lictor.core.lang.quantity import parse_quantity
from lictor.core.lang.wasm_module import reserved_bytes

log = logging.getLogger(__name__)

_AGAIN = 1.0


async def keep_running(run: Callable[[], Awaitable[None]], again: float = _AGAIN) -> None:
    """Run until it ends; begin anew where it ran out of memory.

    A rule on a thread that takes all the memory gets an error soon. Code that allocates in that
    moment must not end the process, and with it all requests that it has in hand.
    """
    while True:
        try:
            await run()
            return
        except* MemoryError:
            log.warning("out of memory", extra={"work": getattr(run, "__qualname__", "")})
        await asyncio.sleep(again)


# What a process may take beyond what it has at its start, however small its share is: compiled
# policies are in it, and what is left must do for requests. Native code does not survive without.
_LEAST_ROOM = 192 * 1024 * 1024
# The buffers that a TLS connection reserves, and the few pages of them that it really uses.
_RESERVED_BY_CONNECTION = 272 * 1024
_USED_BY_CONNECTION = 48 * 1024
# The limit moves in steps of so many connections, and is ahead by one step.
_STEP = 64
# Of the memory between what it needs and its limit, this share may stay in use.
_GROWTH_SHARE = 0.25
# Stacks of threads are reserved in full, too.
_STACK = 4 * 1024 * 1024
# What is left for answers where a rule took everything else.
_RESERVE = 32 * 1024 * 1024
_LEAST_GROWTH = 32 * 1024 * 1024
_SETTLING_SECONDS = 5.0
_TRIM_SECONDS = 10.0
# mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# Of a container's memory: programs and libraries, and what helpers of controllers take.
_FILES_OF_CONTROLLERS = 64 * 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
# proc(5): as if it took half of all the memory more.
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_FIRST_TO_END = "500"


class ProcessMemory:
    """The share of one process: as a limit that the kernel heeds, and as a measure."""

    def __init__(self, share: int) -> None:
        _tune_allocator()
        threading.stack_size(_STACK)
        self._limit = max(share, _read_data() + _LEAST_ROOM)
        self._step = -1
        self._has_given_reserve = False
        # Where it began, once everything was read and compiled.
        self._usual = 0
        self._settled_at = 0.0
        self._trimmed_at = 0.0
        self.used = 0
        self.note_connections(0)

    def note_connections(self, count: int) -> None:
        """Move the limit: buffers of connections are reserved in full, and hardly used."""
        step = -(-count // _STEP)
        if step != self._step:
            self._step = step
            self._set_limit()

    def give_reserve(self) -> None:
        """Allow more memory for an answer, once; the process is replaced then."""
        if not self._has_given_reserve:
            self._has_given_reserve = True
            self._set_limit()

    def _set_limit(self) -> None:
        reserve = _RESERVE if self._has_given_reserve else 0
        connections = (self._step + 1) * _STEP * _RESERVED_BY_CONNECTION
        limit = self._limit + reserve + connections + reserved_bytes()
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))

    def has_grown(self, now: float, connections: int, *, is_ready: bool) -> bool:
        """Is more in use for good than a new process would need? Gives back what it can first.

        No garbage is collected for that: requests would wait, and a new process has none.
        """
        self.used = _read_used()
        if not is_ready:
            return False
        if self._has_given_reserve:
            return True
        if not self._settled_at:
            self._settled_at = now + _SETTLING_SECONDS
        if now < self._settled_at or not self._usual:
            self._usual = self.used
            return False
        if not self._is_too_much(connections) or now < self._trimmed_at + _TRIM_SECONDS:
            return False
        self._trimmed_at = now
        _trim()
        self.used = _read_used()
        return self._is_too_much(connections)

    def _is_too_much(self, connections: int) -> bool:
        room = max((self._limit - self._usual) * _GROWTH_SHARE, _LEAST_GROWTH)
        return self.used - connections * _USED_BY_CONNECTION > self._usual + room


def offer_to_kernel() -> None:
    """Where all processes together take too much, this one is ended before those that answer."""
    with contextlib.suppress(OSError):
        _OOM_SCORE.write_text(_FIRST_TO_END)


def limit_controllers(said: str) -> None:
    """Hold this process within its container's memory, or the given limit.

    A policy that takes too much gets an error; else the kernel would end the process, and with it
    the work for all other namespaces, again and again.
    """
    total = find_memory(said)
    if total is not None:
        ProcessMemory(total - _FILES_OF_CONTROLLERS)


def _read_used() -> int:
    """Memory that is no file's; what is shared with the parent counts."""
    fields = _STATM.read_text().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


def _read_data() -> int:
    """What RLIMIT_DATA counts, less what engines of Wasm only reserve."""
    return int(_STATM.read_text().split()[5]) * _PAGE - reserved_bytes()


def _tune_allocator() -> None:
    """Buffers of connections go back to the system with them, instead of staying with the heap."""
    with contextlib.suppress(AttributeError, OSError):
        change = ctypes.CDLL(None).mallopt
        change(_MMAP_THRESHOLD, 128 * 1024)
        change(_TRIM_THRESHOLD, 4 * 1024 * 1024)
        change(_ARENA_MAX, 2)


def _trim() -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


_GROUP = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_MEGABYTE = 1024 * 1024
# Less does not suffice for a worker.
_LEAST_MEMORY = 96 * _MEGABYTE
# Also without a limit: what a policy may use before it is stopped.
_MOST_MEMORY = 2048 * _MEGABYTE
_PARENT_MEMORY = 32 * _MEGABYTE
# The rest is for what is not counted: sockets' buffers, files in memory.
_USABLE = 0.95
_SUCCESSOR_SHARE = 0.5
# In version 1 of control groups, a very large number means no limit.
_NO_LIMIT = 1 << 60


def count_cores(group: Path = _GROUP) -> int:
    """The cores that this process may use, rounded up: those of its CPU quota where it has one."""
    cores = len(os.sched_getaffinity(0))
    quota = _read_quota(group)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _read_quota(group: Path) -> float | None:
    """Version 2 of control groups, or version 1; None where there is no limit."""
    whole = _read_text(group / "cpu.max")
    if whole is not None:
        quota, _, period = whole.partition(" ")
    else:
        quota = _read_text(group / "cpu" / "cpu.cfs_quota_us") or ""
        period = _read_text(group / "cpu" / "cpu.cfs_period_us") or ""
    try:
        return float(quota) / float(period) if float(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None


def find_memory(said: str = "", group: Path = _GROUP, own: Path = _OWN_GROUP) -> int | None:
    """Bytes for all processes together: the given limit, or the container's; None: no limit."""
    if said:
        return _parse_memory(said)
    limits = [limit for limit in _list_limits(group, own) if limit < _NO_LIMIT]
    return min(limits, default=None)


def _parse_memory(said: str) -> int:
    try:
        return int(parse_quantity(said).value)
    except ValueError as error:
        raise UsageError(f"--memoryLimit: {said} is no quantity of memory such as 512Mi") from error


def _list_limits(group: Path, own: Path) -> Iterator[int]:
    """Of the control groups around this process, from its own to the outermost that it sees."""
    for line in (_read_text(own) or "0::/").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = group, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = group / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = root / path.strip("/")
        for folder in (inner, *inner.parents):
            if folder == root or root in folder.parents:
                text = _read_text(folder / name) or ""
                if text.isdigit():
                    yield int(text)


def divide_memory(total: int | None, workers: int, *, has_control: bool) -> int:
    """Bytes that one worker may take, so that all processes together stay within the total.

    There must be memory for the parent, for controllers beside the workers, and for a new worker
    while it takes the place of another.
    """
    if total is None:
        return _MOST_MEMORY
    shares = workers + (1 if has_control else 0) + _SUCCESSOR_SHARE
    share = int((total * _USABLE - _PARENT_MEMORY) / shares)
    return min(max(share, _LEAST_MEMORY), _MOST_MEMORY)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None
