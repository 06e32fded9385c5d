"""Work that is done one after the other, again where it fails, and once however often asked for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from lictor.errors import LictorError

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0

Task = TypeVar("Task", bound=Hashable)


class Round(Generic[Task]):
    """A queue of things to look after. Looking twice does no harm, so each waits only once."""

    def __init__(self, name: str, look: Callable[[Task], Awaitable[bool]], hands: int = 2) -> None:
        # `look` gives whether all is done; what is not is looked at again.
        self._name = name
        self._look = look
        self._hands = hands
        self._queue: asyncio.Queue[Task] = asyncio.Queue()
        self._waiting: set[Task] = set()
        self._busy: set[Task] = set()
        self._again: set[Task] = set()
        self._failures: dict[Task, int] = {}
        self._timers: dict[Task, asyncio.TimerHandle] = {}

    def ask(self, task: Task) -> None:
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
                for _ in range(self._hands):
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
                self.ask(task)
            elif is_done:
                self._failures.pop(task, None)
            else:
                self._ask_later(task)

    async def _try(self, task: Task) -> bool:
        try:
            return await self._look(task)
        except LictorError as error:
            # Someone else was faster, or a webhook said no: the world may be another next time.
            log.info("will be tried again", extra={"what": self._name, "why": str(error)})
        except Exception:
            log.exception("will be tried again", extra={"what": self._name})
        return False

    def _ask_later(self, task: Task) -> None:
        count = self._failures[task] = self._failures.get(task, 0) + 1
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(count - 1, 16))
        if old := self._timers.pop(task, None):
            old.cancel()
        loop = asyncio.get_running_loop()
        self._timers[task] = loop.call_later(pause, self._ring, task)

    def _ring(self, task: Task) -> None:
        self._timers.pop(task, None)
        self.ask(task)
