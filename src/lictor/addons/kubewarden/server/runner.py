"""Where is a policy evaluated so that others do not wait for it? On the loop, or on a thread."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lictor.addons.kubewarden.family.entries import PolicyResponse
from lictor.core.errors import SlowRequestError
from lictor.core.lang.wasm_records import ContextResource, HostCalls, brief_seconds
from lictor.webhook.slow_requests import FairTurns, TurnLimits

# A policy that took longer than the loop can wait is evaluated on a thread for so long.
_REMEMBERED_SECONDS = 10.0
_THREADS = 8
# What other requests can wait for one.
_BRIEF_SECONDS = 0.02
# Of one policy at the same time: other slow policies need threads, too.
_MOST_OF_A_POLICY = _THREADS // 2
# Of one policy, and of all: later requests would wait in vain.
_MOST_IN_LINE, _MOST_WAITING = 64, 512
_LESS_IMPORTANT = 5


class ThreadedHost:
    """A host that is called on threads only: its answers may take longer than the loop can wait."""

    def __init__(self, inner: HostCalls, begin: Callable[[], None], *, has_context: bool) -> None:
        """`begin` sets the deadline of answers."""
        self._inner = inner
        self._begin = begin
        self._has_context = has_context

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:
        if namespace != "tracing":
            self._refuse_hurry()
            self._begin()
        return self._inner.call(namespace, operation, payload)

    def context(self) -> Sequence[ContextResource]:
        if not self._has_context:
            return ()
        self._refuse_hurry()
        self._begin()
        return self._inner.context()

    def _refuse_hurry(self) -> None:
        if brief_seconds.get() is not None:
            raise SlowRequestError("the policy makes a host call")


def evaluate_briefly(evaluate: Callable[[], PolicyResponse]) -> PolicyResponse:
    """The answer, or SlowRequestError where it takes longer than the loop can wait."""
    token = brief_seconds.set(_BRIEF_SECONDS)
    try:
        return evaluate()
    finally:
        brief_seconds.reset(token)


class PolicyRunner:
    """Runs evaluations. Guests release the interpreter, so threads do not hold up the loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "policy", initializer=_give_way)
        self._turns = FairTurns(
            TurnLimits(_MOST_OF_A_POLICY, _THREADS, _MOST_IN_LINE, _MOST_WAITING)
        )
        self._slow_until: dict[str, float] = {}

    async def run(
        self,
        policy: str,
        evaluate: Callable[[], PolicyResponse],
        *,
        patience: float,
    ) -> PolicyResponse:
        """The answer. SlowRequestError where no thread was free for so many seconds."""
        if self._slow_until.get(policy, 0.0) < time.monotonic():
            try:
                return evaluate_briefly(evaluate)
            except SlowRequestError:
                self._slow_until[policy] = time.monotonic() + _REMEMBERED_SECONDS
        async with self._turns.take(policy, patience):
            return await asyncio.get_running_loop().run_in_executor(self._pool, evaluate)

    def close(self) -> None:
        """Without waiting for policies that may never end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    """A thread that computes for seconds leaves the core to the one that answers."""
    with contextlib.suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), own + _LESS_IMPORTANT)
