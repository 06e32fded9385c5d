"""What happens after a request was answered: rules that only audit, and the result sinks."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import msgspec

from lictor.core.errors import DeadlineError, SlowRequestError
from lictor.core.model.request import Request
from lictor.core.model.result import Status, Verdict
from lictor.kubernetes.metrics import QUEUE_DROPPED, QUEUE_LENGTH
from lictor.webhook.counters import Counters
from lictor.webhook.evaluator import Evaluator
from lictor.webhook.policy_sets import PolicySet, PolicySets
from lictor.webhook.slow_requests import SlowRequests

log = logging.getLogger(__name__)

_SECONDS = 30.0
_COMPLAIN_EVERY = 10.0
# Of reviews that wait; in memory they take about three times as much.
_MOST_BYTES = 8 * 1024 * 1024
# Smaller ones are counted, but only their number is bounded: large ones must not crowd them out.
_SMALL_BYTES = 16 * 1024
# Requests of one namespace that may wait at once until rules are compiled; others stand in line.
_MOST_COMPILING = 32
_TURN_SECONDS = 0.02
# Failures that wait at once for new exceptions; more of them are reported without waiting.
_MOST_WAITING = 64


class AdmissionOutcome(msgspec.Struct, frozen=True):
    """A request that has been answered, and the results of all rules."""

    request: Request
    allowed: bool
    mutating: bool
    # Before the answer, after it, and by rules that make or change other objects.
    verdict: Verdict
    audit: Verdict | None = None
    triggered: Verdict | None = None


class ResultSink(Protocol):
    """Receives results: events, reports, update requests."""

    @property
    def wants_passes(self) -> bool:
        """Also where every rule passed?"""
        ...

    @property
    def takes_triggers(self) -> bool:
        """Does anything come of rules that make or change other objects?"""
        ...

    def take(self, outcome: AdmissionOutcome) -> None:
        """Take note; must not block."""
        ...


class _Item(msgspec.Struct, frozen=True):
    policy_set: PolicySet
    outcome: AdmissionOutcome
    size: int
    # By the clock that never goes back.
    since: float

    @property
    def has_uncompiled_rules(self) -> bool:
        """Would it have to wait until rules are compiled?"""
        engines = (self.policy_set.audit, self.policy_set.triggered)
        request = self.outcome.request
        return self.outcome.allowed and any(
            engine.programs and engine.find_known_needs(request) is None for engine in engines
        )


class PostAdmission:
    """A queue between answers and what follows from them, bounded in number and in bytes."""

    def __init__(
        self,
        evaluator: Evaluator,
        sinks: Sequence[ResultSink],
        counters: Counters,
        *,
        capacity: int,
        workers: int,
        slow: SlowRequests | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._slow = slow or SlowRequests("")
        # Where failures are evaluated again, with exceptions that were created just before.
        self.policy_sets: PolicySets | None = None
        self._sinks = tuple(sinks)
        self.has_sinks = bool(self._sinks)
        self._takes_triggers = any(sink.takes_triggers for sink in self._sinks)
        self._counters = counters
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(max(capacity, 1))
        self._workers = max(workers, 1)
        # Bytes of the reviews that wait or are being worked on.
        self._held = 0
        # Of each namespace, those that wait until rules are compiled.
        self._compiling: Counter[str] = Counter()
        # Failures that wait for exceptions which may have been created just before.
        self._waiting: set[asyncio.Task[None]] = set()
        self._complained = 0.0
        self._lost = 0

    def follow(self, policy_set: PolicySet, outcome: AdmissionOutcome, size: int = 0) -> None:
        """Queue what follows from an answer; if the queue is full, it is counted as lost.

        `size`: bytes of the review. One review alone is always queued.
        """
        if (outcome.request.admission or {}).get("dryRun") or policy_set.route.is_audit:
            return
        is_followed = outcome.allowed and (
            policy_set.audit.programs or (policy_set.triggered.programs and self._takes_triggers)
        )
        if not is_followed:
            # Only the sinks could want to know of it.
            results = outcome.verdict.results
            if not results or not self._sinks:
                return
            if all(result.status is Status.PASS for result in results) and not any(
                sink.wants_passes for sink in self._sinks
            ):
                return
        if size > _SMALL_BYTES and self._held and self._held + size > _MOST_BYTES:
            self._lose("queue full of large requests")
            return
        try:
            self._queue.put_nowait(_Item(policy_set, outcome, size, time.monotonic()))
            self._held += size
        except asyncio.QueueFull:
            self._lose("queue full")

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work(group))

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is left to do, but not for ever."""
        try:
            async with asyncio.timeout(seconds):
                await self._queue.join()
        except TimeoutError:
            left = self._queue.qsize()
            self._counters.count(QUEUE_DROPPED, ("shutdown",), left)
            log.error("not all audited before the end", extra={"left": left})

    def measure(self) -> None:
        """Note the length of the queue."""
        self._counters.set_gauge(QUEUE_LENGTH, self._queue.qsize())

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            item = await self._queue.get()
            namespace = _name(item.outcome.request)["namespace"]
            if not item.has_uncompiled_rules:
                await self._complete(item)
            elif self._compiling[namespace] < _MOST_COMPILING:
                # Others must not wait until policies of one namespace are compiled.
                self._compiling[namespace] += 1
                group.create_task(self._complete_later(item, namespace))
            else:
                await self._put_back(item)
            # Requests come first.
            await asyncio.sleep(0)

    async def _put_back(self, item: _Item) -> None:
        """Behind the others, where many of its namespace wait already; but not for ever."""
        await asyncio.sleep(_TURN_SECONDS)
        if time.monotonic() - item.since > _SECONDS or self._queue.full():
            self._lose("policies take long to compile", reason="deadline")
            self._forget(item)
            return
        self._queue.put_nowait(item)
        self._queue.task_done()

    async def _complete_later(self, item: _Item, namespace: str) -> None:
        try:
            await self._complete(item)
        finally:
            self._compiling -= Counter((namespace,))

    async def _complete(self, item: _Item) -> None:
        is_waiting = False
        try:
            outcome = await self._evaluate(item.policy_set, item.outcome)
            if outcome is not None:
                is_waiting = self._wait_for_exceptions(item, outcome)
                if not is_waiting:
                    self._hand_out(outcome)
        except Exception:
            # One request must not keep the others from what follows.
            log.exception("what follows a request failed", extra=_name(item.outcome.request))
        finally:
            if not is_waiting:
                self._forget(item)

    def _wait_for_exceptions(self, item: _Item, outcome: AdmissionOutcome) -> bool:
        """Whether a failure is reported later, as an exception may have been created just now."""
        audited = outcome.audit.results if outcome.audit is not None else ()
        if (
            self.policy_sets is None
            or not self.policy_sets.can_lag
            or len(self._waiting) >= _MOST_WAITING
            or not any(result.status is Status.FAIL for result in audited)
        ):
            return False
        task = asyncio.create_task(self._complete_renewed(self.policy_sets, item, outcome))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return True

    async def _complete_renewed(
        self, sets: PolicySets, item: _Item, outcome: AdmissionOutcome
    ) -> None:
        try:
            renewed = await sets.renew(item.policy_set, time.monotonic() + _SECONDS)
            if renewed is not None:
                audit = await self._evaluate_audit_rules(renewed, outcome)
                outcome = msgspec.structs.replace(outcome, audit=audit)
        except Exception:
            log.exception("what follows a request failed", extra=_name(item.outcome.request))
        finally:
            self._hand_out(outcome)
            self._forget(item)

    def _hand_out(self, outcome: AdmissionOutcome) -> None:
        for sink in self._sinks:
            sink.take(outcome)

    def _forget(self, item: _Item) -> None:
        self._held -= item.size
        self._queue.task_done()

    async def _evaluate(
        self, policy_set: PolicySet, outcome: AdmissionOutcome
    ) -> AdmissionOutcome | None:
        """The outcome with audits and triggers; None if another process reports it."""
        if not outcome.allowed:
            return outcome
        try:
            return msgspec.structs.replace(
                outcome,
                audit=await self._evaluate_audit_rules(policy_set, outcome),
                triggered=await self._evaluate_triggers(policy_set, outcome),
            )
        except SlowRequestError:
            await self._finish_elsewhere(policy_set, outcome.request)
            return None

    async def _finish_elsewhere(self, policy_set: PolicySet, request: Request) -> None:
        """If it would delay other requests: the process for slow requests reports it."""
        try:
            await self._slow.ask(policy_set.route.path, request, time.monotonic() + _SECONDS)
        except SlowRequestError as error:
            self._lose(str(error), reason="slow")

    async def _evaluate_audit_rules(
        self, policy_set: PolicySet, outcome: AdmissionOutcome
    ) -> Verdict | None:
        if not policy_set.audit.programs:
            return None
        deadline = time.monotonic() + _SECONDS
        try:
            return await self._evaluator.evaluate(policy_set.audit, outcome.request, deadline)
        except DeadlineError as error:
            self._lose(str(error), reason="deadline")
            return None

    async def _evaluate_triggers(
        self, policy_set: PolicySet, outcome: AdmissionOutcome
    ) -> Verdict | None:
        if not policy_set.triggered.programs or not self._takes_triggers:
            return None
        deadline = time.monotonic() + _SECONDS
        return await self._evaluator.evaluate(policy_set.triggered, outcome.request, deadline)

    def _lose(self, why: str, *, reason: str = "full") -> None:
        self._counters.count(QUEUE_DROPPED, (reason,))
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
