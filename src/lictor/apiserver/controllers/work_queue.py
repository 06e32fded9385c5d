"""Work that is done one after the other, again where it fails, and once however often asked for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from lictor.errors import LictorError

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0

Item = TypeVar("Item", bound=Hashable)


class WorkQueue(Generic[Item]):
    """A queue of things to look after. Looking twice does no harm, so each waits only once."""

    def __init__(
        self, name: str, reconcile: Callable[[Item], Awaitable[bool]], workers: int = 2
    ) -> None:
        # `reconcile` gives whether all is done; what is not is looked at again.
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._waiting: set[Item] = set()
        self._busy: set[Item] = set()
        self._again: set[Item] = set()
        self._failures: dict[Item, int] = {}
        self._timers: dict[Item, asyncio.TimerHandle] = {}

    def add(self, task: Item) -> None:
        """Look at it soon."""
        if task in self._busy:
            self._again.add(task)
        elif task not in self._waiting:
            self._waiting.add(task)
            self._queue.put_nowait(task)

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
            task = await self._queue.get()
            self._waiting.discard(task)
            self._busy.add(task)
            try:
                is_done = await self._try(task)
            finally:
                self._busy.discard(task)
            if task in self._again:
                self._again.discard(task)
                self.add(task)
            elif is_done:
                self._failures.pop(task, None)
            else:
                self._add_later(task)

    async def _try(self, task: Item) -> bool:
        try:
            return await self._reconcile(task)
        except LictorError as error:
            # Someone else was faster, or a webhook said no: the world may be another next time.
            log.info("will be tried again", extra={"what": self._name, "why": str(error)})
        except Exception:
            log.exception("will be tried again", extra={"what": self._name})
        return False

    def _add_later(self, task: Item) -> None:
        count = self._failures[task] = self._failures.get(task, 0) + 1
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(count - 1, 16))
        if old := self._timers.pop(task, None):
            old.cancel()
        loop = asyncio.get_running_loop()
        self._timers[task] = loop.call_later(pause, self._ring, task)

    def _ring(self, task: Item) -> None:
        self._timers.pop(task, None)
        self.add(task)
