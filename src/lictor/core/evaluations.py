"""Which policy each thread evaluates, in shared memory, to find the one that crashed a process.

The engine records the policy before it runs its rules. If the process dies, its parent reads the
record and quarantines the policy: no process evaluates it again until it changes.
"""

import mmap
import os
import re
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Final, TypeAlias

QUARANTINED: Final = (
    "a process died while it evaluated the policy; it is evaluated again when it changes"
)
_SIZE = 16
# The policy, the process, the thread, and whether that is the main thread.
_CELL = struct.Struct(f"<{_SIZE}sQQQ")
_IDENTITY = struct.Struct(f"{_SIZE}s")
_NOTHING = bytes(_SIZE)
_CELLS = 4096
_COUNT = struct.Struct("<Q")
MOST_QUARANTINED = 1024
# Signals that native code causes. SIGKILL may have hit the process by chance, such as from the
# kernel's OOM killer: it takes two deaths.
_CRASHES = frozenset(
    (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS)
)
_FAULTING = re.compile(rb"Current thread 0x([0-9a-f]+)")


def identify(text: str) -> bytes:
    """The record of a policy: its uid and what changes when the policy does."""
    return blake2b(text.encode(), digest_size=_SIZE).digest()


Note: TypeAlias = Callable[[bytes], None]


class _Place(threading.local):
    """Writes into the cell of this thread; None before it has one."""

    note: Note | None = None


class EvaluationLedger:
    """A table in shared memory; created before processes fork."""

    def __init__(self) -> None:
        self._cells = mmap.mmap(-1, _CELLS * _CELL.size)
        self._quarantine = mmap.mmap(-1, _COUNT.size + MOST_QUARANTINED * _SIZE)
        self.place = _Place()
        # Parent process only: policies that were running once at a SIGKILL.
        self._suspected: set[bytes] = set()
        os.register_at_fork(after_in_child=self._leave_place)

    def begin(self, identity: bytes) -> None:
        """Record that this thread evaluates a policy, until the next one or b""."""
        (self.place.note or self.take_place())(identity)

    @contextmanager
    def evaluating(self, identity: bytes) -> Iterator[None]:
        """Record a policy that is evaluated outside the engine, until the block ends."""
        self.begin(identity)
        try:
            yield
        finally:
            self.begin(b"")

    def settle(self, process: int, code: int, trace: bytes) -> bool:
        """Quarantine the policy that crashed a process; called by its parent, with its exit code.

        `trace`: output of faulthandler. Returns True if a policy is quarantined now.
        """
        noted = [cell for cell in self._list_cells() if cell[2] == process]
        for start, *_ in noted:
            self._cells[start : start + _CELL.size] = bytes(_CELL.size)
        culprit = _find_culprit([cell for cell in noted if cell[1] != _NOTHING], trace)
        if culprit is None or -code not in (*_CRASHES, signal.SIGKILL):
            return False
        if -code == signal.SIGKILL and culprit not in self._suspected:
            self._suspected.add(culprit)
            return False
        return self.add(culprit)

    def holds(self, identity: bytes) -> bool:
        return self.count > 0 and self._quarantine.find(identity, _COUNT.size) >= 0

    @property
    def count(self) -> int:
        """Number of policies quarantined so far."""
        count: int = _COUNT.unpack_from(self._quarantine)[0]
        return count

    def list_quarantined(self) -> list[bytes]:
        """The quarantined policies, in the order of their cells."""
        ends = range(_SIZE, (min(self.count, MOST_QUARANTINED) + 1) * _SIZE, _SIZE)
        held = self._quarantine[_COUNT.size :]
        return [held[end - _SIZE : end] for end in ends]

    def add(self, identity: bytes) -> bool:
        """Quarantine a policy; False if it already is.

        Another process may take the same cell at the same time. A policy lost that way is added
        again: from the Lease it came from, or after the next crash.
        """
        if self.holds(identity):
            return False
        count = self.count
        start = _COUNT.size + count % MOST_QUARANTINED * _SIZE
        self._quarantine[start : start + _SIZE] = identity
        _COUNT.pack_into(self._quarantine, 0, count + 1)
        return True

    def _list_cells(self) -> Iterator[tuple[int, bytes, int, int, int]]:
        for start in range(0, _CELLS * _CELL.size, _CELL.size):
            yield start, *_CELL.unpack_from(self._cells, start)

    def take_place(self) -> Note:
        """Take a free cell; returns what writes into it without a Python frame."""
        # Other threads search too: each starts at another cell and checks who owns it.
        process, thread = os.getpid(), threading.get_ident()
        is_main = threading.current_thread() is threading.main_thread()
        first = hash((process, thread)) % _CELLS
        for step in range(_CELLS):
            start = (first + step) % _CELLS * _CELL.size
            if _CELL.unpack_from(self._cells, start)[1:3] not in ((0, 0), (process, thread)):
                continue
            _CELL.pack_into(self._cells, start, _NOTHING, process, thread, is_main)
            if _CELL.unpack_from(self._cells, start)[1:3] == (process, thread):
                break
        # If all are taken, this one is shared: a wrong record is better than no answer.
        self.place.note = partial(_IDENTITY.pack_into, self._cells, start)
        return self.place.note

    def _leave_place(self) -> None:
        self.place = _Place()
        self._suspected = set()


def _find_culprit(noted: list[tuple[int, bytes, int, int, int]], trace: bytes) -> bytes | None:
    """The policy of the thread that got the signal; other threads may only have waited."""
    found = _FAULTING.search(trace)
    if found is not None:
        thread = int(found[1], 16)
        return next((cell[1] for cell in noted if cell[3] == thread), None)
    main = [cell[1] for cell in noted if cell[4]]
    alone = {cell[1] for cell in noted}
    return main[0] if main else alone.pop() if len(alone) == 1 else None


# Shared by all processes forked from the one that imports this module.
EVALUATIONS = EvaluationLedger()
