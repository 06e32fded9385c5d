"""The work queue of every controller: items with due times, each of them once."""

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from lictor.core.errors import LictorError
from lictor.kubernetes.compile_turns import FairShares

log = logging.getLogger(__name__)

# Stale entries of moved or dropped items remain in the heap; this many may.
_SLACK = 1000

Item = TypeVar("Item", bound=Hashable)


class DueQueue(Generic[Item]):
    """Items by their due time, in a heap."""

    def __init__(self) -> None:
        self._due: dict[Item, float] = {}
        self._heap: list[tuple[float, int, Item]] = []
        # Of two items with the same due time, the first added comes first.
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, item: object) -> bool:
        return item in self._due

    def put(self, item: Item, due: float) -> bool:
        """Add an item, or move it; False if nothing has changed."""
        if self._due.get(item) == due:
            return False
        self._due[item] = due
        self._push(item, due)
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._rebuild()
        return True

    def find(self, item: Item) -> float | None:
        """When an item is due; None if it is not queued."""
        return self._due.get(item)

    def drop(self, item: Item) -> None:
        """Remove an item."""
        self._due.pop(item, None)

    def drop_where(self, is_dropped: Callable[[Item], bool]) -> None:
        """Remove all matching items."""
        self._due = {item: due for item, due in self._due.items() if not is_dropped(item)}
        self._rebuild()

    @property
    def next_due(self) -> float | None:
        """When the next item is due."""
        self._skip()
        return self._heap[0][0] if self._heap else None

    def take(self, now: float, limit: int) -> list[Item]:
        """Remove the items that are due, the earliest first, up to a limit."""
        taken: list[Item] = []
        while len(taken) < limit:
            self._skip()
            if not self._heap or self._heap[0][0] > now:
                break
            item = heapq.heappop(self._heap)[2]
            del self._due[item]
            taken.append(item)
        return taken

    def _skip(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def _push(self, item: Item, due: float) -> None:
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, item))

    def _rebuild(self) -> None:
        self._heap = []
        for item, due in self._due.items():
            self._push(item, due)


class _FairQueue(Generic[Item]):
    """A queue for each owner; of due items, the owner with the least use is next."""

    def __init__(self, owner: Callable[[Item], str]) -> None:
        self._owner = owner
        self._queues: dict[str, DueQueue[Item]] = {}
        self._shares = FairShares()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, item: Item, due: float) -> None:
        self._queues.setdefault(self._owner(item), DueQueue()).put(item, due)

    def find(self, item: Item) -> float | None:
        queue = self._queues.get(self._owner(item))
        return None if queue is None else queue.find(item)

    def keep(self, items: set[Item]) -> None:
        for queue in self._queues.values():
            queue.drop_where(lambda item: item not in items)

    @property
    def next_due(self) -> float | None:
        found = [due for queue in self._queues.values() if (due := queue.next_due) is not None]
        return min(found, default=None)

    def take(self, now: float) -> Item | None:
        """The next item; None if none is due."""
        self._queues = {owner: queue for owner, queue in self._queues.items() if queue}
        ready = [
            owner
            for owner, queue in self._queues.items()
            if (due := queue.next_due) is not None and due <= now
        ]
        if not ready:
            return None
        (item,) = self._queues[ready[self._shares.choose(ready)]].take(now, 1)
        return item

    def count(self, item: Item, seconds: float) -> None:
        """Account the duration of an item."""
        self._shares.add(self._owner(item), seconds)


class WorkQueue(Generic[Item]):
    """Reconciles items with a fixed number of workers; no item is processed concurrently.

    `owner` returns the owner of an item (a namespace): many items of one do not delay others.

    `reconcile` returns True if an item is done, a number of seconds after which to reconcile it
    again, or False (or raises) if it failed. Pauses after failures grow from the first to the
    second of `pauses`; an item that is added meanwhile does not wait for them, unless
    `waits_after_failure`.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[Item], Awaitable[bool | float]],
        *,
        workers: int = 2,
        pauses: tuple[float, float] = (0.1, 30.0),
        waits_after_failure: bool = False,
        owner: Callable[[Item], str] = lambda _: "",
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self._workers = max(workers, 1)
        self._pauses = pauses
        self._waits_after_failure = waits_after_failure
        self._owner = owner
        self._waiting = _FairQueue(owner)
        self._busy: set[Item] = set()
        # Added while they were processed: when they are due again.
        self._again: dict[Item, float] = {}
        self._failures: dict[Item, int] = {}
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item, delay: float = 0.0) -> None:
        """Reconcile an item soon, or after a delay; the earliest of several calls counts."""
        due = time.monotonic() + delay
        if item in self._busy:
            self._again[item] = min(due, self._again.get(item, due))
        else:
            known = self._waiting.find(item)
            self._put(item, due if known is None else min(due, known))

    def keep(self, items: set[Item]) -> None:
        """Remove all items but these."""
        self._waiting.keep(items)
        self._failures = {item: times for item, times in self._failures.items() if item in items}

    async def run(self) -> None:
        """Work until cancelled; the queue is cleared then."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            self._waiting = _FairQueue(self._owner)
            for known in (self._busy, self._again, self._failures):
                known.clear()

    async def _work(self) -> None:
        while True:
            item = await self._take()
            self._busy.add(item)
            began = time.monotonic()
            try:
                outcome = await self._try(item)
            finally:
                self._busy.discard(item)
                self._waiting.count(item, time.monotonic() - began)
            self._settle(item, outcome)

    async def _take(self) -> Item:
        while (item := self._waiting.take(time.monotonic())) is None:
            self._added.clear()
            next_due = self._waiting.next_due
            pause = None if next_due is None else max(next_due - time.monotonic(), 0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._added.wait()
        return item

    async def _try(self, item: Item) -> bool | float:
        try:
            return await self._reconcile(item)
        except (LictorError, TimeoutError) as error:
            # A conflict, or a webhook's denial: the next attempt may succeed.
            log.info("reconcile failed, retrying", extra={"what": self._name, "why": str(error)})
        except Exception:
            log.exception("reconcile failed, retrying", extra={"what": self._name, "item": item})
        return False

    def _settle(self, item: Item, outcome: bool | float) -> None:  # noqa: FBT001
        again = self._again.pop(item, None)
        if outcome is not False:
            self._failures.pop(item, None)
        if again is not None and not (outcome is False and self._waits_after_failure):
            self._put(item, again)
        elif outcome is False:
            times = self._failures[item] = self._failures.get(item, 0) + 1
            first, longest = self._pauses
            self._put(item, time.monotonic() + min(first * 2 ** min(times - 1, 16), longest))
        elif outcome is not True:
            self._put(item, time.monotonic() + outcome)

    def _put(self, item: Item, due: float) -> None:
        self._waiting.put(item, due)
        self._added.set()


async def cancel_all(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
