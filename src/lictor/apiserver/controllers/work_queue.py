"""Work that is done one after the other, again where it fails, and once however often asked for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from lictor.errors import LictorError

log = logging.getLogger(__name__)

Item = TypeVar("Item", bound=Hashable)


class WorkQueue(Generic[Item]):
    """A queue of things to look after. Looking twice does no harm, so each waits only once."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[Item], Awaitable[bool | float]],
        *,
        workers: int = 2,
        pauses: tuple[float, float] = (0.1, 30.0),
        waits_after_failure: bool = False,
    ) -> None:
        # `reconcile` gives True where all is done, False where it failed, and a number of seconds
        # after which to look again. Pauses after failures grow from the first to the second one;
        # what changed meanwhile does not wait for them, unless it `waits_after_failure`.
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._pauses = pauses
        self._waits_after_failure = waits_after_failure
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._waiting: set[Item] = set()
        self._busy: set[Item] = set()
        self._again: set[Item] = set()
        self._failures: dict[Item, int] = {}
        self._timers: dict[Item, asyncio.TimerHandle] = {}

    def add(self, item: Item) -> None:
        """Look at it soon."""
        if timer := self._timers.pop(item, None):
            timer.cancel()
        if item in self._busy:
            self._again.add(item)
        elif item not in self._waiting:
            self._waiting.add(item)
            self._queue.put_nowait(item)

    async def run(self) -> None:
        """Look at whatever is asked for, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            self._waiting.discard(item)
            self._busy.add(item)
            try:
                outcome = await self._try(item)
            finally:
                self._busy.discard(item)
            self._settle(item, outcome)

    async def _try(self, item: Item) -> bool | float:
        try:
            return await self._reconcile(item)
        except LictorError as error:
            # Someone else was faster, or a webhook said no: it may be otherwise next time.
            log.info("will be tried again", extra={"what": self._name, "why": str(error)})
        except Exception:
            log.exception("will be tried again", extra={"what": self._name, "item": item})
        return False

    def _settle(self, item: Item, outcome: bool | float) -> None:  # noqa: FBT001
        has_changed = item in self._again
        self._again.discard(item)
        if outcome is not False:
            self._failures.pop(item, None)
        if has_changed and not (outcome is False and self._waits_after_failure):
            self.add(item)
        elif outcome is False:
            count = self._failures[item] = self._failures.get(item, 0) + 1
            first, longest = self._pauses
            self._add_later(item, min(longest, first * 2 ** min(count - 1, 16)))
        elif outcome is not True:
            self._add_later(item, outcome)

    def _add_later(self, item: Item, seconds: float) -> None:
        if old := self._timers.pop(item, None):
            old.cancel()
        loop = asyncio.get_running_loop()
        self._timers[item] = loop.call_later(seconds, self.add, item)
