"""Policies become programs beside other work: tried in another process first, then on a thread."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from lictor.cluster.compile_ledger import FIRST_PAUSE, LEDGER, LONGEST_PAUSE
from lictor.cluster.compile_trial import Job, Trials
from lictor.errors import CompileError
from lictor.model.program import Program

log = logging.getLogger(__name__)

_BATCH = 16
# While a policy is compiled, requests must not wait long for the interpreter.
_SWITCH_SECONDS = 0.001


class Task(msgspec.Struct, frozen=True):
    """One policy to prepare."""

    uid: str
    # What changes when the policy does, or an exception from it.
    mark: str
    job: Job
    compile: Callable[[], tuple[Program, ...]]
    # What stands in for it where it must not be compiled.
    fail: Callable[[CompileError], tuple[Program, ...]]


class Prepared(msgspec.Struct, frozen=True):
    """The programs of a policy; the reason where they only answer with an error."""

    mark: str
    programs: tuple[Program, ...]
    reason: str = ""
    # When it is worth another try, by the clock that never goes back.
    retry_at: float = float("inf")


class Preparation:
    """Prepares policies one after the other, and keeps what it made, by their uids."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self.made: dict[str, Prepared] = {}

    def is_current(self, uid: str, mark: str) -> bool:
        """Is this policy prepared as it is, or must it wait for another try?"""
        made = self.made.get(uid)
        return made is not None and made.mark == mark and time.monotonic() < made.retry_at

    def find_pause(self) -> float | None:
        """Seconds until a policy that was not compiled is to be tried again; None: no policy is."""
        first = min((made.retry_at for made in self.made.values()), default=float("inf"))
        return None if first == float("inf") else max(first - time.monotonic(), 0.0)

    async def prepare(self, tasks: Sequence[Task]) -> None:
        """Make the programs of policies. What was made before stays until there is something."""
        for start in range(0, len(tasks), _BATCH):
            batch = tasks[start : start + _BATCH]
            reasons = await self._trials.find_reasons([task.job for task in batch])
            for task, reason in zip(batch, reasons, strict=True):
                self.made[task.uid] = await self._prepare_one(task, reason)

    def keep(self, uids: set[str]) -> None:
        """Forget all others."""
        for gone in self.made.keys() - uids:
            del self.made[gone]

    async def _prepare_one(self, task: Task, reason: str) -> Prepared:
        identity = f"{task.uid}:{task.mark}"
        pause = LONGEST_PAUSE
        if not reason:
            reason, pause = LEDGER.find_reason(identity)
        if reason:
            return _refuse(task, reason, pause)
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with LEDGER.compiling(identity):
                loop = asyncio.get_running_loop()
                made = await loop.run_in_executor(self._thread, task.compile)
        except Exception as error:
            # A mistake of ours over one policy must not end the process, over and over.
            log.exception("policy broke the compiler", extra={"uid": task.uid})
            return _refuse(task, f"this should not have happened ({type(error).__name__})", pause)
        finally:
            sys.setswitchinterval(usual)
        return Prepared(task.mark, made)


def _refuse(task: Task, reason: str, pause: float) -> Prepared:
    log.error("policy not compiled", extra={"uid": task.uid, "why": reason})
    failing = task.fail(CompileError(reason))
    return Prepared(task.mark, failing, reason, time.monotonic() + max(pause, FIRST_PAUSE))
