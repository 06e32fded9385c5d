"""Who may wait for a registry: one that keeps silent must not hold all who could ask others.

Whoever waits holds a thread, and threads are few.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from lictor.errors import LookupFailedError

# After so many seconds in which no question came to an end, a registry counts as silent.
_PATIENCE = 1.0
# So many may wait for one that is silent; and for all of these together, before one that nobody
# has ever heard of is waited for as well.
_MOST_FOR_ONE = 16
_MOST_FOR_ALL = 64
_MOST_REMEMBERED = 1024


class _Line:
    """Those who wait for one registry."""

    def __init__(self) -> None:
        self.waiting = 0
        # When a question came to an end for the last time, or the first of these began to wait.
        self.since = 0.0
        self.has_answered = False


class WaitingLines:
    """The lines before all registries. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    @contextlib.contextmanager
    def wait(self, registry: str) -> Iterator[None]:
        """Stand in line while the block runs; LookupFailedError where too many do so in vain."""
        line = self._find(registry)
        self._check(registry, line)
        if not line.waiting:
            line.since = self._clock()
        line.waiting += 1
        try:
            yield
        finally:
            line.waiting -= 1

    def note_end(self, registry: str, *, is_answer: bool) -> None:
        """A question came to an end; `is_answer` where the registry had something to say."""
        line = self._lines.get(registry)
        if line is not None:
            line.since = self._clock()
            line.has_answered = line.has_answered or is_answer

    def _check(self, registry: str, line: _Line) -> None:
        if line.waiting >= _MOST_FOR_ONE and self._is_silent(line):
            raise LookupFailedError(
                f"{registry} does not answer, and {line.waiting} questions wait for it already"
            )
        if not line.has_answered and self._count_silent() >= _MOST_FOR_ALL:
            raise LookupFailedError(
                f"{registry} has never answered, and too many questions wait for registries that "
                "do not answer"
            )

    def _is_silent(self, line: _Line) -> bool:
        return line.waiting > 0 and self._clock() - line.since > _PATIENCE

    def _count_silent(self) -> int:
        return sum(line.waiting for line in self._lines.values() if self._is_silent(line))

    def _find(self, registry: str) -> _Line:
        found = self._lines.pop(registry, None) or _Line()
        if len(self._lines) >= _MOST_REMEMBERED:
            self._drop_one()
        # At its end, so that those that were not asked for long are at the beginning.
        self._lines[registry] = found
        return found

    def _drop_one(self) -> None:
        for registry, line in self._lines.items():
            if not line.waiting:
                del self._lines[registry]
                return
