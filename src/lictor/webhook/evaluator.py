"""The one place where the webhook calls the engine: with a deadline, and on the right thread."""

import asyncio
import contextvars
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any, Protocol

from lictor.core.engine import Engine
from lictor.core.errors import DeadlineError, NotCompiledError, SlowRequestError, TooSlowError
from lictor.core.lang.wasm_records import brief_seconds
from lictor.core.match.metadata import read_text
from lictor.core.model.program import Needs
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Verdict
from lictor.webhook.interrupts import ThreadWork

# A rule without lookups takes milliseconds. One that takes longer delays all other requests.
LOOP_SECONDS = 2.0
# For requests like one that took all of that: others must not wait for each of them as long.
HASTY_SECONDS = 0.5
_HASTY_FOR = 30.0
# Seconds between two that were slow for the same reason.
_RELATED = 5.0
_MOST_SLOW = 256
# Lookups end before the request does, so that other rules are still heard.
_MARGIN = 0.1
# And not all at once: hundreds that wait for a registry in vain would hold up everyone else at
# the moment at which they give up. This part of the time is shared out in so many steps.
_SPREAD = 0.1
_TURNS = 64
# Of the processor, where a process for slow requests is at hand: then others are not kept waiting.
QUICK_SECONDS = 0.02
# Threads share the processor with the loop, which gets its turn every few milliseconds.
_QUICK_THREAD_SECONDS = 0.03
_LOOK_EVERY = 0.02
# Bytes of a review. Converting a larger one is native code, which nothing interrupts: where people
# of a namespace wrote rules for it, the other process takes it at once.
_LARGE = 128 * 1024
_THREADS = 16
# Requests that wait for registries have separate threads, and many: they hardly compute. What
# they do compute is mostly ours: an image has up to a hundred signatures, a Pod many images.
_IMAGE_THREADS = 256
_IMAGE_THREAD_SECONDS = 0.25
# Namespaces for which rules are compiled at the same time: policies that take long to compile
# delay no other namespace.
_COMPILE_THREADS = 16
# Mutations, one after the other, that make rules match which are not compiled yet.
_MOST_MOVES = 8
# So many requests for each thread may wait, those that have one included.
_WAITING_PER_THREAD = 4

RequestClass = tuple[GroupVersionKind, str, Operation]


async def in_task() -> None:
    """Suspend unless a task runs this already: timeouts need one (see `App.__call__`)."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)


class LookupGuard(Protocol):
    """Knows whether a rule tried to make a lookup on the thread of the event loop."""

    was_used: bool

    def begin_request(self, request: Request, deadline: float) -> None:
        """Lookups from now on, in this context, are made for one request."""
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
        # Those that are ended where they compute for too long, and who waits for each.
        self.watched: dict[ThreadWork, asyncio.Future[Verdict]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._capacity = threads * _WAITING_PER_THREAD

    @property
    def is_full(self) -> bool:
        return len(self.began) >= self._capacity

    def watch(self, work: ThreadWork, answer: "asyncio.Future[Verdict]") -> None:
        """End it where it computes for too long: the answer is a TooSlowError then."""
        self.watched[work] = answer
        answer.add_done_callback(lambda _: self.watched.pop(work, None))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        # One task looks after all: hundreds may wait for a registry, and as many tasks that wake up
        # at the same time would delay all other requests.
        while self.watched:
            await asyncio.sleep(max(_LOOK_EVERY, self.computing_seconds))
            for work, answer in tuple(self.watched.items()):
                if work.computed > self.computing_seconds and not answer.done():
                    work.interrupt()
                    answer.set_exception(TooSlowError("the rules took too long"))


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
        self._lookups = _ThreadLane("evaluate", threads, _QUICK_THREAD_SECONDS)
        self._images = _ThreadLane("images", _IMAGE_THREADS, _IMAGE_THREAD_SECONDS)
        self._compilers = ThreadPoolExecutor(_COMPILE_THREADS, thread_name_prefix="compile")
        # By namespace of the request.
        self._compiling: dict[str, asyncio.Future[None]] = {}
        self._turns = cycle(range(_TURNS))
        # Classes of requests in which a rule took for ever, and until when that counts.
        self._slow: dict[RequestClass, float] = {}
        # The same where slow requests are handed over, by namespace: policies differ in that.
        self._handed: dict[tuple[RequestClass, str], float] = {}
        # When one was slow for the last time.
        self._suspected: dict[tuple[RequestClass, str], float] = {}

    @property
    def oldest(self) -> float:
        """For how many seconds the longest evaluation on a thread has been going on."""
        began = [*self._lookups.began.values(), *self._images.began.values()]
        return time.monotonic() - min(began) if began else 0.0

    async def evaluate(
        self, engine: Engine, request: Request, deadline: float, *, size: int = 0
    ) -> Verdict:
        """The verdict; DeadlineError if there is no time for it. `size`: bytes of the review.

        Evaluates on this thread, without suspending, unless a rule must be compiled first or makes
        lookups.
        """
        if self._hands_over and (size > _LARGE or self._handed):
            self._refuse_slow(engine, request, size)
        needs = engine.find_known_needs(request)
        # Most rules need nothing, and testing a flag costs more than one of them.
        if needs is Needs.NOTHING or (needs is not None and not needs & Needs.LOOKUPS):
            evaluate = self._evaluate_briefly if self._hands_over else self._evaluate_on_loop
            guard = self._guard
            try:
                verdict = evaluate(engine, request, deadline)
                if guard is None or not guard.was_used:
                    return verdict
            except NotCompiledError:
                pass
            if guard is not None:
                guard.was_used = False
        await in_task()
        return await self._evaluate_off_loop(engine, request, deadline)

    async def _evaluate_off_loop(
        self, engine: Engine, request: Request, deadline: float
    ) -> Verdict:
        """For rules that make lookups or are not compiled yet."""
        if engine.find_known_needs(request) is None:
            await self._prepare(engine, request, deadline)
            if engine.find_known_needs(request) is not None:
                return await self.evaluate(engine, request, deadline)
        needs = engine.find_needs(request)
        for _ in range(_MOST_MOVES):
            try:
                return await self._evaluate_on_thread(engine, request, deadline, needs)
            except NotCompiledError as error:
                moved = error.request
                if not isinstance(moved, Request):
                    raise
                await self._prepare(engine, moved, deadline)
            except (SlowRequestError, TooSlowError) as error:
                if not self._hands_over:
                    raise
                self._note_handed(_classify(request))
                raise SlowRequestError(str(error)) from error
        raise TooSlowError("no time left to compile the policies")

    async def _prepare(self, engine: Engine, request: Request, deadline: float) -> None:
        """Compile the rules that may match the request, not on the thread of the event loop."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                await self._compile(engine, request)
        except TimeoutError:
            told = "no time left to compile the policies"
            if engine.meets_policies_of(_find_home(request), request):
                # Who writes such policies must not get past others by that.
                raise TooSlowError(told) from None
            raise DeadlineError(told) from None

    async def _compile(self, engine: Engine, request: Request) -> None:
        """On one thread for each namespace: one with slow policies must not delay others."""
        home = _find_home(request)
        while (before := self._compiling.get(home)) is not None:
            await asyncio.wait((before,))
            if engine.find_known_needs(request) is not None:
                return
        loop = asyncio.get_running_loop()
        compiling = loop.run_in_executor(self._compilers, engine.prepare, request)
        self._compiling[home] = compiling
        compiling.add_done_callback(lambda _: self._compiling.pop(home, None))
        # It is of use to others even where this request gives up.
        await asyncio.shield(compiling)

    def _evaluate_on_loop(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        key = (request.kind, request.subresource, request.operation)
        began = time.monotonic()
        is_slow = bool(self._slow) and self._slow.get(key, 0.0) > began
        limit = min(deadline, began + (HASTY_SECONDS if is_slow else LOOP_SECONDS))
        try:
            if self._alarm is not None:
                self._alarm.set(max(limit - began, 0.001))
            return engine.evaluate(request, deadline=limit, compiles=False)
        except DeadlineError as error:
            raise TooSlowError(str(error)) from error
        finally:
            if self._alarm is not None:
                self._alarm.clear()
            if time.monotonic() - began >= LOOP_SECONDS:
                self._note_slow(key)

    def _refuse_slow(self, engine: Engine, request: Request, size: int) -> None:
        """SlowRequestError where it is known beforehand that it will cost much."""
        if size > _LARGE and engine.meets_policies_of(_read_namespace(request), request):
            raise SlowRequestError("a large object, and policies of its namespace")
        if self._handed and self._handed.get(_classify(request), 0.0) > time.monotonic():
            raise SlowRequestError("requests like this one took too long")

    def _note_handed(self, asked: tuple[RequestClass, str]) -> None:
        """Where two like it were slow, more are not tried here for a while.

        One may have been chance, and would send all others of its namespace to wait with those that
        take long.
        """
        now = time.monotonic()
        if now - self._suspected.get(asked, -_RELATED) < _RELATED:
            _make_room(self._handed)
            self._handed[asked] = now + _HASTY_FOR
        _make_room(self._suspected)
        self._suspected[asked] = now

    def _evaluate_briefly(self, engine: Engine, request: Request, deadline: float) -> Verdict:
        """The verdict, where it costs little; SlowRequestError where it does not."""
        if self._alarm is None:
            return engine.evaluate(request, deadline=deadline, compiles=False)
        token = brief_seconds.set(QUICK_SECONDS)
        self._alarm.set_cpu(QUICK_SECONDS)
        try:
            verdict = engine.evaluate(request, deadline=deadline, compiles=False)
        except (SlowRequestError, TooSlowError) as error:
            self._note_handed(_classify(request))
            raise SlowRequestError(str(error)) from error
        finally:
            has_rung = self._alarm.clear_cpu()
            brief_seconds.reset(token)
        if has_rung:
            # The rule that was interrupted is an error in this verdict.
            self._note_handed(_classify(request))
            raise SlowRequestError("the rules took too long")
        return verdict

    def _note_slow(self, key: RequestClass) -> None:
        _make_room(self._slow)
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
            until = deadline - left * (_MARGIN + _SPREAD * next(self._turns) / _TURNS)
            context.run(self._guard.begin_request, request, until)
        evaluate = partial(engine.evaluate, deadline=deadline, compiles=False)
        work = ThreadWork(lambda: context.run(evaluate, request))
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(lane.pool, work.run)
        lane.began[ticket] = time.monotonic()
        answer: asyncio.Future[Verdict] = loop.create_future()
        future.add_done_callback(lambda done: _end(lane, ticket, done, answer))
        if self._hands_over:
            lane.watch(work, answer)
        try:
            return await asyncio.wait_for(answer, max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            raise work.interrupt() from None

    def close(self) -> None:
        for lane in (self._lookups, self._images):
            lane.pool.shutdown(wait=False, cancel_futures=True)
        self._compilers.shutdown(wait=False, cancel_futures=True)


def _make_room(noted: "dict[Any, float]") -> None:
    if len(noted) >= _MOST_SLOW:
        noted.clear()


def _classify(request: Request) -> tuple[RequestClass, str]:
    """What requests that are alike have in common, and the namespace: policies differ in that."""
    key = (request.kind, request.subresource, request.operation)
    return key, _read_namespace(request)


def _read_namespace(request: Request) -> str:
    return str((request.admission or {}).get("namespace") or "")


def _find_home(request: Request) -> str:
    """Whose policies are compiled for a request, beside those that concern everyone."""
    return _read_namespace(request) or read_text(request.resource, "namespace")


def _end(
    lane: _ThreadLane,
    ticket: int,
    done: "asyncio.Future[Verdict]",
    answer: "asyncio.Future[Verdict]",
) -> None:
    lane.began.pop(ticket, None)
    if done.cancelled():
        answer.cancel()
        return
    # Retrieved, so that asyncio does not log an answer that came too late.
    error = done.exception()
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
