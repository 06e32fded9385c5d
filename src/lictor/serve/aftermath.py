"""What follows a request after its answer: rules that only audit, and whoever waits for results."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from lictor.errors import DeadlineError, SlowRequestError
from lictor.model.request import Request
from lictor.model.result import Status, Verdict
from lictor.serve.book import Book
from lictor.serve.chambers import Chamber
from lictor.serve.instruments import QUEUE_DROPPED, QUEUE_LENGTH
from lictor.serve.judge import Judge
from lictor.serve.slow_requests import SlowRequests

log = logging.getLogger(__name__)

_SECONDS = 30.0
_COMPLAIN_EVERY = 10.0
# Of reviews that wait; in memory they take about three times as much.
_MOST_BYTES = 8 * 1024 * 1024
# Smaller ones are counted, but only their number is bounded: large ones must not crowd them out.
_SMALL_BYTES = 16 * 1024


class Outcome(msgspec.Struct, frozen=True):
    """A request that has been answered, and everything that rules said of it."""

    request: Request
    allowed: bool
    mutating: bool
    # Before the answer, after it, and by rules that make or change other objects.
    now: Verdict
    later: Verdict | None = None
    triggered: Verdict | None = None


class Sink(Protocol):
    """Somebody who wants to know: events, reports, update requests."""

    @property
    def wants_passes(self) -> bool:
        """Also where every rule passed?"""
        ...

    @property
    def takes_triggers(self) -> bool:
        """Does anything come of rules that make or change other objects?"""
        ...

    def take(self, outcome: Outcome) -> None:
        """Take note; must not block."""
        ...


class _Item(msgspec.Struct, frozen=True):
    chamber: Chamber
    outcome: Outcome
    size: int


class Aftermath:
    """A queue between answers and what follows from them, bounded in number and in bytes."""

    def __init__(
        self,
        judge: Judge,
        sinks: Sequence[Sink],
        book: Book,
        *,
        capacity: int,
        workers: int,
        slow: SlowRequests | None = None,
    ) -> None:
        self._judge = judge
        self._slow = slow or SlowRequests("")
        self._sinks = tuple(sinks)
        self._book = book
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(max(capacity, 1))
        self._workers = max(workers, 1)
        # Bytes of the reviews that wait or are being worked on.
        self._held = 0
        self._complained = 0.0
        self._lost = 0

    def follow(self, chamber: Chamber, outcome: Outcome, size: int = 0) -> None:
        """Let what follows happen soon. Never waits: on a full queue the request is told lost.

        `size`: bytes of the review. One review alone always has room.
        """
        if not self._concerns(chamber, outcome):
            return
        if size > _SMALL_BYTES and self._held and self._held + size > _MOST_BYTES:
            self._lose("queue full of large requests")
            return
        try:
            self._queue.put_nowait(_Item(chamber, outcome, size))
            self._held += size
        except asyncio.QueueFull:
            self._lose("queue full")

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is left to do, but not for ever."""
        try:
            await asyncio.wait_for(self._queue.join(), seconds)
        except TimeoutError:
            left = self._queue.qsize()
            self._book.count(QUEUE_DROPPED, ("shutdown",), left)
            log.error("not all audited before the end", extra={"left": left})

    def measure(self) -> None:
        """Note the length of the queue."""
        self._book.level(QUEUE_LENGTH, self._queue.qsize())

    def _concerns(self, chamber: Chamber, outcome: Outcome) -> bool:
        if outcome.allowed and chamber.later.programs:
            return True
        sinks = self._sinks
        if not sinks:
            return False
        if outcome.allowed and chamber.triggered.programs and any(s.takes_triggers for s in sinks):
            return True
        results = outcome.now.results
        return bool(results) and (
            any(sink.wants_passes for sink in sinks)
            or any(r.status is not Status.PASS for r in results)
        )

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                await self._finish(item)
            except Exception:
                # One request must not keep the others from what follows.
                log.exception("what follows a request failed", extra=_name(item.outcome.request))
            finally:
                self._held -= item.size
                self._queue.task_done()
            # Requests come first.
            await asyncio.sleep(0)

    async def _finish(self, item: _Item) -> None:
        chamber, outcome = item.chamber, item.outcome
        if outcome.allowed:
            try:
                outcome = msgspec.structs.replace(
                    outcome,
                    later=await self._judge_later(chamber, outcome),
                    triggered=await self._judge_triggered(chamber, outcome),
                )
            except SlowRequestError:
                await self._finish_elsewhere(chamber, outcome.request)
                return
        for sink in self._sinks:
            sink.take(outcome)

    async def _finish_elsewhere(self, chamber: Chamber, request: Request) -> None:
        """Where this would keep others waiting: asked again, a process that has time tells all."""
        try:
            await self._slow.ask(chamber.way.path, request, time.monotonic() + _SECONDS)
        except SlowRequestError as error:
            self._lose(str(error), reason="slow")

    async def _judge_later(self, chamber: Chamber, outcome: Outcome) -> Verdict | None:
        if not chamber.later.programs:
            return None
        deadline = time.monotonic() + _SECONDS
        try:
            return await self._judge.judge(chamber.later, chamber.asking, outcome.request, deadline)
        except DeadlineError as error:
            self._lose(str(error), reason="deadline")
            return None

    async def _judge_triggered(self, chamber: Chamber, outcome: Outcome) -> Verdict | None:
        if not chamber.triggered.programs or not any(s.takes_triggers for s in self._sinks):
            return None
        deadline = time.monotonic() + _SECONDS
        return await self._judge.judge(chamber.triggered, chamber.asking, outcome.request, deadline)

    def _lose(self, why: str, *, reason: str = "full") -> None:
        self._book.count(QUEUE_DROPPED, (reason,))
        self._lost += 1
        now = time.monotonic()
        if now - self._complained > _COMPLAIN_EVERY:
            log.warning("requests not audited", extra={"why": why, "count": self._lost})
            self._complained, self._lost = now, 0


def _name(request: Request) -> dict[str, str]:
    admission = request.admission or {}
    return {
        "kind": request.kind.kind,
        "namespace": str(admission.get("namespace") or ""),
        "object": str(admission.get("name") or ""),
    }
