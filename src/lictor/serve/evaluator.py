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
_QUICK_THREAD_SECONDS = 0.05
_LOOK_EVERY = 0.05
_THREADS = 16

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
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="judge")
        # When each evaluation on a thread began.
        self._began: dict[int, float] = {}
        # Classes of requests in which a rule took for ever, and until when that counts.
        self._slow: dict[RequestClass, float] = {}
        # The same where slow requests are handed over, by namespace: policies differ in that.
        self._handed: dict[tuple[RequestClass, str], float] = {}

    @property
    def oldest(self) -> float:
        """For how many seconds the longest evaluation on a thread has been going on."""
        return time.monotonic() - min(self._began.values()) if self._began else 0.0

    async def evaluate(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        """The verdict; DeadlineError where there is no time for it."""
        if self._hands_over:
            return await self._evaluate_quickly(engine, request, deadline)
        if not engine.find_needs(request) & Needs.LOOKUPS:
            verdict = self._evaluate_here(engine, request, deadline)
            if self._guard is None or not self._guard.take_asked():
                return verdict
        return await self._evaluate_on_thread(engine, request, deadline)

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
            if not engine.find_needs(request) & Needs.LOOKUPS:
                verdict = self._evaluate_within(engine, request, deadline)
                if self._guard is None or not self._guard.take_asked():
                    return verdict
            return await self._evaluate_on_thread(engine, request, deadline)
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
        self, engine: Engine, request: Request, deadline: float
    ) -> Verdict:
        left = deadline - time.monotonic()
        if len(self._began) >= self._threads * 4:
            raise DeadlineError("too many requests wait for answers from outside")
        ticket = id(request)
        context = contextvars.copy_context()
        if self._guard is not None:
            context.run(self._guard.begin_request, request, deadline - left * _MARGIN)
        context.run(is_brief.set, self._hands_over)
        work = ThreadWork(lambda: context.run(engine.evaluate, request, deadline=deadline))
        context.run(interruption.set, work.interruption)
        future = asyncio.get_running_loop().run_in_executor(self._pool, work.run)
        self._began[ticket] = time.monotonic()
        future.add_done_callback(lambda done: self._end(ticket, done))
        if self._hands_over:
            await self._watch(work, future, deadline)
        try:
            return await asyncio.wait_for(
                asyncio.shield(future), max(deadline - time.monotonic(), 0.0)
            )
        except TimeoutError:
            raise work.interrupt() from None

    async def _watch(
        self, work: ThreadWork, future: "asyncio.Future[Verdict]", deadline: float
    ) -> None:
        """Until it is done, or over; TooSlowError where it computes for too long."""
        while time.monotonic() < deadline:
            done, _ = await asyncio.wait({future}, timeout=_LOOK_EVERY)
            if done:
                return
            if work.computed > _QUICK_THREAD_SECONDS:
                work.interrupt()
                raise TooSlowError("the rules took too long")

    def _end(self, ticket: int, done: "asyncio.Future[Verdict]") -> None:
        self._began.pop(ticket, None)
        if not done.cancelled():
            # Looked at, so that nobody complains of an answer that came too late.
            done.exception()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
