"""Questions to registries that wait for their answers: the same question is asked once, and a
registry that keeps silent must not hold all who could ask others.

Whoever waits holds a thread, and threads are few.
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


class SharedQuestions:
    """What several ask for at the same time is fetched once. Belongs to one event loop."""

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
            # One who gives up does not take the answer from the others.
            found: T = await asyncio.shield(task)
            return found

    async def _limit(self, registry: str, work: Coroutine[None, None, T]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except TimeoutError:
            raise LookupFailedError(
                f"{registry} gave no answer within {self._seconds:g} s"
            ) from None


def find_registry(key: tuple[Hashable, ...]) -> str:
    """The registry, or the host of a URL, that a question is for."""
    asked = key[1]
    return asked.registry if isinstance(asked, Repository) else urlsplit(str(asked)).netloc


def _is_answer(done: asyncio.Task[Any]) -> bool:
    """Did somebody say something, if only that it is not there?"""
    if done.cancelled():
        return False
    error = done.exception()
    return error is None or isinstance(error, ImageNotFoundError)
