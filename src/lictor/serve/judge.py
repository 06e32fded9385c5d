"""The one place where the server calls the engine: with a deadline, and on the right thread."""

import asyncio
import contextvars
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from lictor.engine import Engine
from lictor.errors import DeadlineError, TooSlowError
from lictor.model.request import GroupVersionKind, Operation, Request
from lictor.model.result import Verdict
from lictor.serve.thread_work import ThreadWork

# A rule that asks nobody takes milliseconds. One that takes longer holds up everyone else.
LOOP_SECONDS = 2.0
# For requests like one that took all of that: others must not wait for each of them as long.
HASTY_SECONDS = 0.5
_HASTY_FOR = 30.0
_MOST_SLOW = 256
# Questions to the outside world end before the request does, so that other rules are still heard.
_MARGIN = 0.1
_THREADS = 16

Class = tuple[GroupVersionKind, str, Operation]
Asking = set[Class]


class Guard(Protocol):
    """Knows whether a rule wanted to ask the outside world."""

    def take_asked(self) -> bool: ...

    def begin_request(self, request: Request, deadline: float) -> None:
        """What is asked from now on, in this context, is asked for one request."""
        ...


class Alarm(Protocol):
    """Interrupts the main thread with a DeadlineError."""

    def set(self, seconds: float) -> None: ...

    def clear(self) -> None: ...


class NoAlarm:
    """Where nothing can be interrupted: the engine still looks at the clock between rules."""

    def set(self, seconds: float) -> None: ...

    def clear(self) -> None: ...


class NoGuard:
    """Where there is no world to ask."""

    def take_asked(self) -> bool:
        return False

    def begin_request(self, request: Request, deadline: float) -> None: ...


class Judge:
    """Runs engines. Rules that ask the outside world run on threads, the others right here."""

    def __init__(
        self, guard: Guard | None = None, alarm: Alarm | None = None, threads: int = _THREADS
    ) -> None:
        self._guard = guard or NoGuard()
        self._alarm = alarm or NoAlarm()
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="judge")
        # When each judgement on a thread began.
        self._began: dict[int, float] = {}
        # Classes of requests in which a rule took for ever, and until when that counts.
        self._slow: dict[Class, float] = {}

    @property
    def oldest(self) -> float:
        """For how many seconds the longest judgement on a thread has been going on."""
        return time.monotonic() - min(self._began.values()) if self._began else 0.0

    async def judge(
        self, engine: Engine, asking: Asking, request: Request, deadline: float
    ) -> Verdict:
        """The verdict; DeadlineError where there is no time for it.

        `asking` are the classes of requests that need the outside world; more are added as they
        are found.
        """
        key = (request.kind, request.subresource, request.operation)
        if key not in asking:
            verdict = self._judge_here(engine, key, request, deadline)
            if not self._guard.take_asked():
                return verdict
            asking.add(key)
        return await self._judge_on_thread(engine, request, deadline)

    def _judge_here(self, engine: Engine, key: Class, request: Request, deadline: float) -> Verdict:
        began = time.monotonic()
        is_slow = bool(self._slow) and self._slow.get(key, 0.0) > began
        limit = min(deadline, began + (HASTY_SECONDS if is_slow else LOOP_SECONDS))
        try:
            self._alarm.set(max(limit - began, 0.001))
            return engine.evaluate(request, deadline=limit)
        except DeadlineError as error:
            raise TooSlowError(str(error)) from error
        finally:
            self._alarm.clear()
            if time.monotonic() - began >= LOOP_SECONDS:
                self._note_slow(key)

    def _note_slow(self, key: Class) -> None:
        if len(self._slow) >= _MOST_SLOW:
            self._slow.clear()
        self._slow[key] = time.monotonic() + _HASTY_FOR

    async def _judge_on_thread(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        left = deadline - time.monotonic()
        if len(self._began) >= self._threads * 4:
            raise DeadlineError("too many requests wait for answers from outside")
        ticket = id(request)
        context = contextvars.copy_context()
        context.run(self._guard.begin_request, request, deadline - left * _MARGIN)
        work = ThreadWork(lambda: context.run(engine.evaluate, request, deadline=deadline))
        future = asyncio.get_running_loop().run_in_executor(self._pool, work.run)
        self._began[ticket] = time.monotonic()
        future.add_done_callback(lambda done: self._end(ticket, done))
        try:
            return await asyncio.wait_for(asyncio.shield(future), max(left, 0.0))
        except TimeoutError:
            raise work.interrupt() from None

    def _end(self, ticket: int, done: "asyncio.Future[Verdict]") -> None:
        self._began.pop(ticket, None)
        if not done.cancelled():
            # Looked at, so that nobody complains of an answer that came too late.
            done.exception()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
