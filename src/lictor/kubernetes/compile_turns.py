"""Schedules the compilation of rules when several threads need uncompiled ones."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# The number of namespaces whose use is tracked; beyond it, all start anew.
_MOST_KNOWN = 1024


class FairShares:
    """Chooses who is next: the namespace with the least use; cluster-wide policies first.

    Idle time is not credited: a new namespace starts with the use of the one being served.
    """

    def __init__(self) -> None:
        # Seconds, by namespace.
        self._taken: dict[str, float] = {}
        self._least = 0.0

    def choose(self, waiting: Sequence[str]) -> int:
        """The index of the next one."""
        chosen = min(range(len(waiting)), key=lambda number: self.find(waiting[number]))
        self._least = max(self._least, self.find(waiting[chosen]))
        return chosen

    def find(self, namespace: str) -> float:
        """The accounted use of a namespace."""
        return max(self._taken.get(namespace, 0.0), self._least) if namespace else -1.0

    def add(self, namespace: str, seconds: float) -> None:
        """Add to the use of a namespace."""
        if len(self._taken) >= _MOST_KNOWN:
            self._taken.clear()
        if namespace:
            self._taken[namespace] = self.find(namespace) + seconds


class CompileTurns:
    """One rule at a time; policies of the namespace with the least use come first.

    Rules of one policy share compile state, and some of the global state is loaded on first use.
    Namespaces with policies that are slow to compile wait for others, which wait for at most one
    of their rules.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._waiting: list[str] = []
        self._shares = FairShares()

    @contextmanager
    def take(self, namespace: str) -> Iterator[None]:
        """Wait for the turn of a policy of this namespace; empty for a cluster-wide one."""
        with self._changed:
            self._waiting.append(namespace)
            try:
                self._changed.wait_for(lambda: self._may_go(namespace))
                self._is_taken = True
            finally:
                self._waiting.remove(namespace)
        began = time.thread_time()
        try:
            yield
        finally:
            self._give_back(namespace, time.thread_time() - began)

    def _may_go(self, namespace: str) -> bool:
        if self._is_taken:
            return False
        return self._waiting[self._shares.choose(self._waiting)] == namespace

    def _give_back(self, namespace: str, seconds: float) -> None:
        with self._changed:
            self._is_taken = False
            self._shares.add(namespace, seconds)
            self._changed.notify_all()
