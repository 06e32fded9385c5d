"""Which policies are being compiled right now, and by whom: known to all processes of one parent.

Where a process died over a policy, nobody compiles that policy again until some time has passed.
"""

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

# What is compiled, by which process, since when. An entry stays where its process dies.
_ENTRY = struct.Struct("<16sQd")
_NOTHING = bytes(_ENTRY.size)
_ENTRIES = 512
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 600.0


class CompileLedger:
    """A table in shared memory; made before processes are forked."""

    def __init__(self, entries: int = _ENTRIES) -> None:
        self._entries = entries
        self._memory = mmap.mmap(-1, entries * _ENTRY.size)

    @contextmanager
    def compiling(self, identity: str) -> Iterator[None]:
        """Note that this process compiles something, until it is done."""
        place = self._find_room()
        _ENTRY.pack_into(self._memory, place, _digest(identity), os.getpid(), time.monotonic())
        try:
            yield
        finally:
            self._memory[place : place + _ENTRY.size] = _NOTHING

    def find_reason(self, identity: str) -> tuple[str, float]:
        """Why this must not be compiled for so many seconds; empty where it may be."""
        ends = list(self._list_deaths(_digest(identity)))
        if not ends:
            return "", 0.0
        pause = min(FIRST_PAUSE * 2 ** (len(ends) - 1), LONGEST_PAUSE)
        left = max(ends) + pause - time.monotonic()
        if left <= 0:
            return "", 0.0
        died = "a process" if len(ends) == 1 else f"{len(ends)} processes"
        return f"{died} died while compiling the policy; it is tried again after a while", left

    def _list_deaths(self, digest: bytes) -> Iterator[float]:
        """When processes began to compile this that did not live to finish it."""
        start = 0
        while (at := self._memory.find(digest, start)) >= 0:
            start = at + 1
            if at % _ENTRY.size:
                continue
            _, pid, since = _ENTRY.unpack_from(self._memory, at)
            if pid and not _is_alive(pid):
                yield since

    def _find_room(self) -> int:
        """A free place: others look for one too, and begin elsewhere. Else that of the oldest."""
        first = os.getpid() % self._entries
        places = [(first + step) % self._entries * _ENTRY.size for step in range(self._entries)]
        for place in places:
            if not _ENTRY.unpack_from(self._memory, place)[1]:
                return place
        return min(places, key=lambda place: float(_ENTRY.unpack_from(self._memory, place)[2]))


# One for all processes that are forked from the one that imports this.
LEDGER = CompileLedger()


def _digest(identity: str) -> bytes:
    return blake2b(identity.encode(), digest_size=16).digest()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
