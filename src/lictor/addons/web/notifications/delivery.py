"""One target's queue: batches, limits, pauses after failures; it waits alone and harms no other."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice

from lictor.addons.web.notifications.messages import NotificationBatch
from lictor.addons.web.notifications.sending import BatchSender, TargetPace
from lictor.addons.web.records import ReportedResult
from lictor.core.errors import UndeliveredError
from lictor.kubernetes.client import TokenBucket
from lictor.kubernetes.metrics import open_counter, open_gauge

log = logging.getLogger(__name__)

_METRICS = "lictor_notifications"
# What waits for a target that does not answer: some ten megabytes at most.
MOST_WAITING = 10_000
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
# A pause is between half of what it could be and all of it: targets are not hit in step.
_LEAST_SHARE = 0.5
_MOST_REASONS = 50
# At the end, for a request that has begun.
_LAST_SECONDS = 5.0


class TargetQueue:
    """Results that wait for one target, by key. Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        kind: str,
        pace: TargetPace,
        send: BatchSender,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._counts = TargetCounts(name, kind)
        self._pace = pace
        self._send = send
        self._on_change = on_change
        burst = max(pace.per_minute // 10, 1)
        self._bucket = TokenBucket(pace.per_minute / 60, burst, time.monotonic)
        self._waiting: dict[int, ReportedResult] = {}
        self._left_out = 0
        self._filled = asyncio.Event()
        # After a refusal of many at once fewer are sent, to find out which of them it is about.
        self._size = pace.batch_size
        self._failures = 0
        self._logged: set[str] = set()

    @property
    def waiting(self) -> Iterable[int]:
        """The keys of results that the target has not got yet."""
        return self._waiting.keys()

    def offer(self, key: int, result: ReportedResult) -> None:
        """Queue a result; one that exceeds the limit is only counted."""
        if len(self._waiting) >= MOST_WAITING:
            if not self._left_out:
                log.warning("notifications are left out: the target is behind", extra=self._facts())
            self._left_out += 1
            self._counts.dropped["full"].inc()
            return
        self._waiting[key] = result
        self._counts.waiting.set(len(self._waiting))
        self._filled.set()

    def clear(self) -> None:
        """Forget what waits: someone else sends it."""
        self._waiting.clear()
        self._counts.waiting.set(0)
        self._filled.clear()

    async def run(self) -> None:
        """Send what comes until cancelled."""
        while True:
            await self._filled.wait()
            await asyncio.sleep(self._pace.wait)
            while self._waiting:
                await self._deliver(self._take())
            self._filled.clear()

    def _take(self) -> tuple[tuple[int, ...], NotificationBatch]:
        chosen = dict(islice(self._waiting.items(), self._size))
        batch = NotificationBatch(tuple(chosen.values()), datetime.now(UTC), self._left_out)
        return tuple(chosen), batch

    async def _deliver(self, taken: tuple[tuple[int, ...], NotificationBatch]) -> None:
        """Send one batch, the same again and again, until it arrived or is refused for good."""
        keys, batch = taken
        while True:
            await self._bucket.take()
            try:
                await self._send_whole(keys, batch)
            except UndeliveredError as error:
                if error.is_final:
                    self._refuse(keys, error)
                    return
                await self._rest(error)
            except Exception as error:
                log.error("notification not sent", extra=self._facts(), exc_info=error)
                self._refuse(keys, UndeliveredError("it could not be built"))
                return
            else:
                self._note_success(keys, batch)
                return

    async def _send_whole(self, keys: tuple[int, ...], batch: NotificationBatch) -> None:
        sending = asyncio.ensure_future(self._send(batch))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            # Wait for a request in progress: the next leader must know whether it succeeded.
            await asyncio.wait({sending}, timeout=_LAST_SECONDS)
            if sending.done() and not sending.cancelled() and sending.exception() is None:
                self._note_success(keys, batch)
            sending.cancel()
            raise

    def _note_success(self, keys: tuple[int, ...], batch: NotificationBatch) -> None:
        self._remove(keys)
        self._left_out -= batch.left_out
        self._failures = 0
        self._size = min(self._size * 2, self._pace.batch_size)
        self._counts.sent.inc(len(keys))
        self._counts.succeeded.set_to_current_time()
        if self._logged:
            self._logged.clear()
            log.info("notifications arrive again", extra=self._facts())

    def _refuse(self, keys: tuple[int, ...], error: UndeliveredError) -> None:
        self._counts.failed.inc()
        self._log_failure(error)
        if len(keys) > 1:
            self._size = len(keys) // 2
            return
        self._counts.dropped["refused"].inc()
        self._remove(keys)

    async def _rest(self, error: UndeliveredError) -> None:
        self._counts.failed.inc()
        self._log_failure(error)
        pause = min(_FIRST_PAUSE * 2 ** min(self._failures, 20), _LONGEST_PAUSE)
        self._failures += 1
        share = random.uniform(_LEAST_SHARE, 1.0)  # noqa: S311
        await asyncio.sleep(max(pause * share, error.retry_after))

    def _remove(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._waiting.pop(key, None)
        self._counts.waiting.set(len(self._waiting))
        self._on_change()

    def _log_failure(self, error: UndeliveredError) -> None:
        reason = str(error)[:300]
        if reason not in self._logged and len(self._logged) < _MOST_REASONS:
            self._logged.add(reason)
            log.warning("notifications do not arrive", extra={**self._facts(), "why": reason})

    def _facts(self) -> dict[str, object]:
        return {"target": self.name, "waiting": len(self._waiting)}


class TargetCounts:
    """The metrics of one target, at zero from the beginning."""

    def __init__(self, target: str, kind: str) -> None:
        labels = target, kind
        self.sent = open_counter(f"{_METRICS}_sent").labels(*labels)
        self.failed = open_counter(f"{_METRICS}_failed").labels(*labels)
        dropped = open_counter(f"{_METRICS}_dropped")
        self.dropped = {reason: dropped.labels(*labels, reason) for reason in ("full", "refused")}
        self.waiting = open_gauge(f"{_METRICS}_waiting").labels(*labels)
        self.succeeded = open_gauge(f"{_METRICS}_last_success_timestamp_seconds").labels(*labels)
        self.waiting.set(0)
