"""Whose rule is compiled next, where several threads ask for rules that nobody has compiled yet?"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Of namespaces whose policies were compiled; where there are more, all begin anew.
_MOST_KNOWN = 1024


class FairShares:
    """Who is next: whoever has taken least, of those who wait; what is for all goes first.

    Nobody saves up time by waiting for nothing: who comes anew has taken as much as who is served.
    """

    def __init__(self) -> None:
        # Seconds, by namespace.
        self._taken: dict[str, float] = {}
        self._least = 0.0

    def choose(self, waiting: Sequence[str]) -> int:
        """The position of the one that is next."""
        chosen = min(range(len(waiting)), key=lambda number: self.find(waiting[number]))
        self._least = max(self._least, self.find(waiting[chosen]))
        return chosen

    def find(self, namespace: str) -> float:
        """What counts as taken by a namespace."""
        return max(self._taken.get(namespace, 0.0), self._least) if namespace else -1.0

    def add(self, namespace: str, seconds: float) -> None:
        """A namespace has taken so much more."""
        if len(self._taken) >= _MOST_KNOWN:
            self._taken.clear()
        if namespace:
            self._taken[namespace] = self.find(namespace) + seconds


class CompileTurns:
    """One rule at a time; policies of the namespace that has taken least so far come first.

    Rules of one policy share what they are compiled with, and some of what is shared by all is
    loaded when first used. Whoever writes policies that take long to compile waits for others, who
    wait for one rule of theirs at most.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._waiting: list[str] = []
        self._shares = FairShares()

    @contextmanager
    def take(self, namespace: str) -> Iterator[None]:
        """Wait for the turn of a policy of this namespace; empty for one of the whole cluster."""
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
