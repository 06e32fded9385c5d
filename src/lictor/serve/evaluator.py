"""The one place where the webhook calls the engine: with a deadline, and on the right thread."""

import asyncio
import contextvars
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from lictor.engine import Engine
from lictor.errors import DeadlineError, SlowRequestError, TooSlowError
from lictor.lang.cel.growth import is_brief
from lictor.lang.cel.native import interruption
from lictor.model.program import Needs
from lictor.model.request import GroupVersionKind, Operation, Request
from lictor.model.result import Verdict
from lictor.serve.interrupts import ThreadWork

# A rule that asks nobody takes milliseconds. One that takes longer holds up everyone else.
LOOP_SECONDS = 2.0
# For requests like one that took all of that: others must not wait for each of them as long.
HASTY_SECONDS = 0.5
_HASTY_FOR = 30.0
_MOST_SLOW = 256
# Lookups end before the request does, so that other rules are still heard.
_MARGIN = 0.1
# Of the processor, where a process for slow requests is at hand: then others are not kept waiting.
QUICK_SECONDS = 0.02
# Threads share the processor with the loop, which gets its turn every few milliseconds.
_QUICK_THREAD_SECONDS = 0.03
_LOOK_EVERY = 0.02
_THREADS = 16
# Requests that wait for registries have threads of their own, and many: they hardly compute. What
# they do compute is mostly ours: an image has up to a hundred signatures, a Pod many images.
_IMAGE_THREADS = 256
_IMAGE_THREAD_SECONDS = 0.25
# So many requests for each thread may wait, those that have one included.
_WAITING_PER_THREAD = 4

RequestClass = tuple[GroupVersionKind, str, Operation]


class LookupGuard(Protocol):
    """Knows whether a rule wanted to make a lookup."""

    def take_asked(self) -> bool: ...

    def begin_request(self, request: Request, deadline: float) -> None:
        """What is asked from now on, in this context, is asked for one request."""
        ...


class Alarm(Protocol):
    """Interrupts the main thread with a DeadlineError."""

    def set(self, seconds: float) -> None: ...

    def set_cpu(self, seconds: float) -> None: ...

    def clear(self) -> None: ...

    def clear_cpu(self) -> bool: ...


class _ThreadLane:
    """Threads for requests of one sort, so that the others need not wait for these."""

    def __init__(self, name: str, threads: int, computing_seconds: float) -> None:
        self.computing_seconds = computing_seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        # When each evaluation began.
        self.began: dict[int, float] = {}
        self._capacity = threads * _WAITING_PER_THREAD

    @property
    def is_full(self) -> bool:
        return len(self.began) >= self._capacity


class Evaluator:
    """Runs engines. Rules that make lookups run on threads, the others on the event loop."""

    def __init__(
        self,
        guard: LookupGuard | None = None,
        alarm: Alarm | None = None,
        threads: int = _THREADS,
        *,
        hands_over: bool = False,
    ) -> None:
        """`hands_over`: slow requests raise SlowRequestError: another process takes them."""
        self._hands_over = hands_over
        self._guard = guard
        # Without one, the engine still looks at the clock between rules.
        self._alarm = alarm
        self._lookups = _ThreadLane("judge", threads, _QUICK_THREAD_SECONDS)
        self._images = _ThreadLane("images", _IMAGE_THREADS, _IMAGE_THREAD_SECONDS)
        # Classes of requests in which a rule took for ever, and until when that counts.
        self._slow: dict[RequestClass, float] = {}
        # The same where slow requests are handed over, by namespace: policies differ in that.
        self._handed: dict[tuple[RequestClass, str], float] = {}

    @property
    def oldest(self) -> float:
        """For how many seconds the longest evaluation on a thread has been going on."""
        began = [*self._lookups.began.values(), *self._images.began.values()]
        return time.monotonic() - min(began) if began else 0.0

    async def evaluate(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        """The verdict; DeadlineError where there is no time for it."""
        if self._hands_over:
            return await self._evaluate_quickly(engine, request, deadline)
        needs = engine.find_needs(request)
        if not needs & Needs.LOOKUPS:
            verdict = self._evaluate_here(engine, request, deadline)
            if self._guard is None or not self._guard.take_asked():
                return verdict
        return await self._evaluate_on_thread(engine, request, deadline, needs)

    def _evaluate_here(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        key = (request.kind, request.subresource, request.operation)
        began = time.monotonic()
        is_slow = bool(self._slow) and self._slow.get(key, 0.0) > began
        limit = min(deadline, began + (HASTY_SECONDS if is_slow else LOOP_SECONDS))
        try:
            if self._alarm is not None:
                self._alarm.set(max(limit - began, 0.001))
            return engine.evaluate(request, deadline=limit)
        except DeadlineError as error:
            raise TooSlowError(str(error)) from error
        finally:
            if self._alarm is not None:
                self._alarm.clear()
            if time.monotonic() - began >= LOOP_SECONDS:
                self._note_slow(key)

    async def _evaluate_quickly(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        """The verdict, where it costs little; SlowRequestError where it does not."""
        key = (request.kind, request.subresource, request.operation)
        place = (key, str((request.admission or {}).get("namespace") or ""))
        if self._handed and self._handed.get(place, 0.0) > time.monotonic():
            raise SlowRequestError("requests like this one took too long")
        try:
            needs = engine.find_needs(request)
            if not needs & Needs.LOOKUPS:
                verdict = self._evaluate_within(engine, request, deadline)
                if self._guard is None or not self._guard.take_asked():
                    return verdict
            return await self._evaluate_on_thread(engine, request, deadline, needs)
        except (SlowRequestError, TooSlowError) as error:
            if len(self._handed) >= _MOST_SLOW:
                self._handed.clear()
            self._handed[place] = time.monotonic() + _HASTY_FOR
            raise SlowRequestError(str(error)) from error

    def _evaluate_within(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        """The verdict; TooSlowError after a few milliseconds of computing."""
        if self._alarm is None:
            return engine.evaluate(request, deadline=deadline)
        token = is_brief.set(True)
        self._alarm.set_cpu(QUICK_SECONDS)
        try:
            verdict = engine.evaluate(request, deadline=deadline)
        finally:
            has_rung = self._alarm.clear_cpu()
            is_brief.reset(token)
        if has_rung:
            # The rule that was interrupted is an error in this verdict.
            raise TooSlowError("the rules took too long")
        return verdict

    def _note_slow(self, key: RequestClass) -> None:
        if len(self._slow) >= _MOST_SLOW:
            self._slow.clear()
        self._slow[key] = time.monotonic() + _HASTY_FOR

    async def _evaluate_on_thread(
        self, engine: Engine, request: Request, deadline: float, needs: Needs
    ) -> Verdict:
        left = deadline - time.monotonic()
        lane = self._images if needs & Needs.IMAGES else self._lookups
        if lane.is_full:
            raise DeadlineError("too many requests wait for answers from outside")
        ticket = id(request)
        context = contextvars.copy_context()
        if self._guard is not None:
            context.run(self._guard.begin_request, request, deadline - left * _MARGIN)
        context.run(is_brief.set, self._hands_over)
        work = ThreadWork(lambda: context.run(engine.evaluate, request, deadline=deadline))
        context.run(interruption.set, work.interruption)
        future = asyncio.get_running_loop().run_in_executor(lane.pool, work.run)
        lane.began[ticket] = time.monotonic()
        future.add_done_callback(lambda done: _end(lane, ticket, done))
        if self._hands_over:
            await _watch(work, future, deadline, lane.computing_seconds)
        try:
            return await asyncio.wait_for(
                asyncio.shield(future), max(deadline - time.monotonic(), 0.0)
            )
        except TimeoutError:
            raise work.interrupt() from None

    def close(self) -> None:
        for lane in (self._lookups, self._images):
            lane.pool.shutdown(wait=False, cancel_futures=True)


async def _watch(
    work: ThreadWork, future: "asyncio.Future[Verdict]", deadline: float, computing_seconds: float
) -> None:
    """Until it is done, or over; TooSlowError where it computes for too long."""
    # Hundreds may wait for a registry: looking after each of them all the time would cost more.
    pause = max(_LOOK_EVERY, computing_seconds)
    while time.monotonic() < deadline:
        done, _ = await asyncio.wait({future}, timeout=pause)
        if done:
            return
        if work.computed > computing_seconds:
            work.interrupt()
            raise TooSlowError("the rules took too long")


def _end(lane: _ThreadLane, ticket: int, done: "asyncio.Future[Verdict]") -> None:
    lane.began.pop(ticket, None)
    if not done.cancelled():
        # Looked at, so that nobody complains of an answer that came too late.
        done.exception()
