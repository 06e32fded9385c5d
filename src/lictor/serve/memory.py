"""How much memory may this webhook process take, and has it taken too much to go on?"""

import contextlib
import ctypes
import gc
import os
import resource
from pathlib import Path

from lictor.serve.capacity import find_memory

# What a process may take beyond what it has at its start, however small its share is: compiled
# policies are in it, and what is left must do for requests. Native code does not survive without.
_LEAST_ROOM = 128 * 1024 * 1024
# The buffers that a TLS connection reserves, and the few pages of them that it really uses.
_RESERVED_BY_CONNECTION = 272 * 1024
_USED_BY_CONNECTION = 48 * 1024
# The limit moves in steps of so many connections, and is ahead by one step.
_STEP = 64
# Of the room between what it needs and what it may take, this share may stay in use for good.
_GROWTH_SHARE = 0.5
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
        self._limit = max(share, _read_data() + _LEAST_ROOM)
        self._step = -1
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
            limit = self._limit + (step + 1) * _STEP * _RESERVED_BY_CONNECTION
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))

    def has_grown(self, now: float, connections: int, *, is_ready: bool) -> bool:
        """Is more in use for good than a new process would need? Gives back what it can first."""
        self.used = _read_used()
        if not is_ready:
            return False
        if not self._settled_at:
            self._settled_at = now + _SETTLING_SECONDS
        if now < self._settled_at or not self._usual:
            self._usual = self.used
            return False
        if not self._is_too_much(connections) or now < self._trimmed_at + _TRIM_SECONDS:
            return False
        self._trimmed_at = now
        gc.collect()
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
    """Hold this process within its container's memory, or what was said.

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
    """What RLIMIT_DATA counts."""
    return int(_STATM.read_text().split()[5]) * _PAGE


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
