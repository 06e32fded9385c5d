"""Pending requests to registries: equal requests are sent once, and a registry that does not
answer must not block requests to others.

A waiting caller occupies a thread, and threads are few.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Hashable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lictor.core.errors import ImageNotFoundError, LookupFailedError
from lictor.images.repository_name import Repository

T = TypeVar("T")

# A registry counts as unresponsive if no request has finished for this many seconds.
_PATIENCE = 1.0
# The limit of callers that wait for an unresponsive registry; and for all of them together, beyond
# which registries without any response yet are refused.
_MOST_FOR_ONE = 16
_MOST_FOR_ALL = 64
_MOST_REMEMBERED = 1024


class _Line:
    """The callers that wait for one registry."""

    def __init__(self) -> None:
        self.waiting = 0
        # When a request last finished, or the first of these started to wait.
        self.since = 0.0
        self.has_answered = False


class WaitingLines:
    """The callers that wait for registries. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    @contextlib.contextmanager
    def wait(self, registry: str) -> Iterator[None]:
        """Wait while the block runs; raises LookupFailedError if too many wait in vain."""
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
        """A request has finished; `is_answer`: the registry has answered."""
        line = self._lines.get(registry)
        if line is not None:
            line.since = self._clock()
            line.has_answered = line.has_answered or is_answer

    def _check(self, registry: str, line: _Line) -> None:
        if line.waiting >= _MOST_FOR_ONE and self._is_silent(line):
            raise LookupFailedError(
                f"{registry} does not answer, and {line.waiting} requests wait for it already"
            )
        if not line.has_answered and self._count_silent() >= _MOST_FOR_ALL:
            raise LookupFailedError(
                f"{registry} has never answered, and too many requests wait for registries that "
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
        # At the end, so that the least recently used are first.
        self._lines[registry] = found
        return found

    def _drop_one(self) -> None:
        for registry, line in self._lines.items():
            if not line.waiting:
                del self._lines[registry]
                return


class SharedRequests:
    """Equal concurrent requests are sent once. Belongs to one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._fetching: dict[Hashable, asyncio.Task[Any]] = {}
        self._lines = WaitingLines()

    async def ask(
        self, key: tuple[Hashable, ...], fetch: Callable[[], Coroutine[None, None, T]]
    ) -> T:
        registry = find_registry(key)
        with self._lines.wait(registry):
            task = self._fetching.get(key)
            if task is None:
                task = self._fetching[key] = asyncio.create_task(self._limit(registry, fetch()))
                task.add_done_callback(lambda _: self._fetching.pop(key, None))
                task.add_done_callback(
                    lambda done: self._lines.note_end(registry, is_answer=_is_answer(done))
                )
            # A caller that gives up does not cancel the request for the others.
            found: T = await asyncio.shield(task)
            return found

    async def _limit(self, registry: str, work: Coroutine[None, None, T]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except TimeoutError:
            raise LookupFailedError(
                f"{registry} did not answer within {self._seconds:g} s"
            ) from None


def find_registry(key: tuple[Hashable, ...]) -> str:
    """The registry, or the host of a URL, of a request."""
    asked = key[1]
    return asked.registry if isinstance(asked, Repository) else urlsplit(str(asked)).netloc


def _is_answer(done: asyncio.Task[Any]) -> bool:
    """Whether there was a response, even if only "not found"."""
    if done.cancelled():
        return False
    error = done.exception()
    return error is None or isinstance(error, ImageNotFoundError)
