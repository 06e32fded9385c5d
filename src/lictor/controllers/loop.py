"""Runs a reconcile coroutine: at start, after changes, at an interval, after errors."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Protocol

from lictor.core.errors import ConflictError, LictorError
from lictor.kubernetes.cache import Change
from lictor.kubernetes.metrics import WEBHOOK_ANSWER, WEBHOOK_HEALTHY, open_counter, open_gauge

_RECONCILE, _REQUEUE, _DROP = (
    f"kyverno_controller_{what}" for what in ("reconcile", "requeue", "drop")
)


def show_controller(name: str) -> None:
    """Create the counters of a controller, at zero."""
    for metric in (_RECONCILE, _REQUEUE, _DROP):
        open_counter(metric).labels(name)


def count_reconcile(name: str) -> None:
    """A run began."""
    open_counter(_RECONCILE).labels(name).inc()


def count_requeue(name: str) -> None:
    """A run failed and will be repeated."""
    open_counter(_REQUEUE).labels(name).inc()


def show_heartbeat(stamp: str, *, healthy: bool) -> None:
    """Export when a webhook answered last, and whether that is recent."""
    try:
        moment = datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        moment = 0.0
    open_gauge(WEBHOOK_ANSWER).set(moment)
    open_gauge(WEBHOOK_HEALTHY).set(1 if healthy else 0)


log = logging.getLogger(__name__)

# A burst of changes becomes one run: wait this long for its end.
_SETTLE = 0.1
# While changes keep coming, a loop uses at most this part of the thread that also answers requests:
# a client that applies hundreds of policies waits for those answers.
_SHARE = 0.02
_LONGEST_SETTLE = 6.0
# After this long without another change the burst is over.
_LULL = 0.3
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# Even a loop that is woken continuously pauses this long for a failing API server.
_LEAST_REST = 1.0
# One run may not hang forever: it is cancelled and restarted.
_RUN_LIMIT = 300.0
_MAX_REASONS = 100


class WakeSource(Protocol):
    """What wakes a loop; every Cache is one."""

    async def wait(self) -> None: ...

    def listen(self, listener: Callable[[Change], None], /) -> None: ...


class ReconcileLoop:
    """Runs `reconcile` again and again, one run at a time, until cancelled.

    How a loop is written: one file in `control`, one class or function that makes the coroutine
    and hands back a ReconcileLoop.

        def build_status_loop(client: Client, policies: Cache) -> ReconcileLoop:
            async def reconcile() -> None:
                for policy in policies.list():          # level-triggered: what is there now
                    wanted = compute_status(policy)     # the same for everyone who computes it
                    if policy.get("status") != wanted:  # write only what differs
                        await client.patch(...)
            return ReconcileLoop("policy-status", reconcile, interval=900.0, caches=(policies,))

    Rules that make two concurrent leaders harmless: compute from the current state, not from the
    event; write only differences; no clock, randomness or process identity in what is written
    (unless it is renewed on purpose).

    `reconcile` raises its errors; the loop logs each reason once, and retries with growing pauses.
    Sources other than a Cache (a store, settings) call `wake` themselves:
    `store.listen(loop.wake)`.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[], Awaitable[None]],
        *,
        interval: float,
        caches: Iterable[WakeSource] = (),
        leader_only: bool = True,
        on_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.leader_only = leader_only
        self._reconcile = reconcile
        self._on_stop = on_stop
        self._interval = interval
        self._caches = tuple(caches)
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._told: set[str] = set()
        self._last_success: float | None = None
        # The thread time of the last run, including concurrent tasks.
        self._effort = 0.0
        for watched in self._caches:
            watched.listen(self.wake)

    @property
    def last_success(self) -> float | None:
        """When the last run ended well (monotonic clock); None before that."""
        return self._last_success

    def wake(self, *_: object) -> None:
        """Run soon, after a change. Any number of calls become one run."""
        self._woken.set()

    def wake_later(self, seconds: float) -> None:
        """Run again after so long, if nothing else wakes the loop before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.wake)

    async def run(self) -> None:
        """Wait for the caches, then reconcile until cancelled; then call `on_stop`."""
        try:
            await self._run()
        finally:
            if self._on_stop is not None:
                await self._on_stop()

    async def _run(self) -> None:
        show_controller(self.name)
        for watched in self._caches:
            await watched.wait()
        pause = 0.0
        while True:
            self._woken.clear()
            failure = await self._run_once()
            if failure is None:
                pause = 0.0
                await self._rest(self._interval)
                continue
            count_requeue(self.name)
            pause = _grow(pause, failure)
            await self._rest(pause, least=min(pause, _LEAST_REST))

    async def _run_once(self) -> Exception | None:
        count_reconcile(self.name)
        began = time.thread_time()
        try:
            async with asyncio.timeout(_RUN_LIMIT):
                await self._reconcile()
        except Exception as error:  # noqa: BLE001  (a fault in one loop may not end the others)
            self._log(error)
            return error
        finally:
            self._effort = time.thread_time() - began
        self._last_success = time.monotonic()
        if self._told:
            self._told.clear()
            log.info("controller recovered", extra={"controller": self.name})
        return None

    async def _rest(self, seconds: float, *, least: float = 0.0) -> None:
        await asyncio.sleep(least)
        try:
            async with asyncio.timeout(max(seconds - least, 0.0)):
                await self._woken.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE)
        await self._await_lull(min(self._effort / _SHARE, _LONGEST_SETTLE) - _SETTLE)

    async def _await_lull(self, seconds: float) -> None:
        """Wait until no more changes come, up to a time limit."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._woken.clear()
            try:
                async with asyncio.timeout(min(left, _LULL)):
                    await self._woken.wait()
            except TimeoutError:
                return

    def _log(self, error: Exception) -> None:
        if isinstance(error, ConflictError):
            log.debug("conflict", extra={"controller": self.name, "why": str(error)[:200]})
            return
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        if reason in self._told or len(self._told) >= _MAX_REASONS:
            return
        self._told.add(reason)
        expected = isinstance(error, LictorError | TimeoutError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "reconcile failed",
            extra={"controller": self.name, "why": reason},
            exc_info=None if expected else error,
        )


def _grow(pause: float, failure: Exception) -> float:
    # After a conflict, the new state is available: retry almost at once.
    first = _SETTLE if isinstance(failure, ConflictError) else _FIRST_PAUSE
    return min(max(pause * 2, first), _LONGEST_PAUSE)
