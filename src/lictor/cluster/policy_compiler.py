"""Compiles policies in the background: tried in another process first, then on a thread."""

import asyncio
import logging
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b

import msgspec

from lictor.cluster.compile_trial import Job, Trials
from lictor.errors import CompileError
from lictor.model.program import Program

# What is compiled, by which process, since when. An entry stays where its process dies.
_ENTRY = struct.Struct("<16sQd")
_NOTHING = bytes(_ENTRY.size)
_ENTRIES = 512
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 600.0


class CompileLedger:
    """A table in shared memory; made before processes are forked."""

    def __init__(self, entries: int = _ENTRIES) -> None:
        self._entries = entries
        self._memory = mmap.mmap(-1, entries * _ENTRY.size)

    @contextmanager
    def compiling(self, identity: str) -> Iterator[None]:
        """Note that this process compiles something, until it is done."""
        place = self._find_room()
        _ENTRY.pack_into(self._memory, place, _digest(identity), os.getpid(), time.monotonic())
        try:
            yield
        finally:
            self._memory[place : place + _ENTRY.size] = _NOTHING

    def find_reason(self, identity: str) -> tuple[str, float]:
        """Why this must not be compiled for so many seconds; empty where it may be."""
        ends = list(self._list_deaths(_digest(identity)))
        if not ends:
            return "", 0.0
        pause = min(FIRST_PAUSE * 2 ** (len(ends) - 1), LONGEST_PAUSE)
        left = max(ends) + pause - time.monotonic()
        if left <= 0:
            return "", 0.0
        died = "a process" if len(ends) == 1 else f"{len(ends)} processes"
        return f"{died} died while compiling the policy; it is tried again after a while", left

    def _list_deaths(self, digest: bytes) -> Iterator[float]:
        """When processes began to compile this that did not live to finish it."""
        start = 0
        while (at := self._memory.find(digest, start)) >= 0:
            start = at + 1
            if at % _ENTRY.size:
                continue
            _, pid, since = _ENTRY.unpack_from(self._memory, at)
            if pid and not _is_alive(pid):
                yield since

    def _find_room(self) -> int:
        """A free place: others look for one too, and begin elsewhere. Else that of the oldest."""
        first = os.getpid() % self._entries
        places = [(first + step) % self._entries * _ENTRY.size for step in range(self._entries)]
        for place in places:
            if not _ENTRY.unpack_from(self._memory, place)[1]:
                return place
        return min(places, key=lambda place: float(_ENTRY.unpack_from(self._memory, place)[2]))


# One for all processes that are forked from the one that imports this.
LEDGER = CompileLedger()


def _digest(identity: str) -> bytes:
    return blake2b(identity.encode(), digest_size=16).digest()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


log = logging.getLogger(__name__)

_BATCH = 16
# While a policy is compiled, requests must not wait long for the interpreter.
_SWITCH_SECONDS = 0.001


class CompileTask(msgspec.Struct, frozen=True):
    """One policy to prepare."""

    uid: str
    # What changes when the policy does, or an exception from it.
    mark: str
    job: Job
    compile: Callable[[], tuple[Program, ...]]
    # What stands in for it where it must not be compiled.
    fail: Callable[[CompileError], tuple[Program, ...]]


class CompiledPolicy(msgspec.Struct, frozen=True):
    """The programs of a policy; the reason where they only answer with an error."""

    mark: str
    programs: tuple[Program, ...]
    reason: str = ""
    # When it is worth another try, by the clock that never goes back.
    retry_at: float = float("inf")


class PolicyCompiler:
    """Prepares policies one after the other, and keeps what it made, by their uids."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self.made: dict[str, CompiledPolicy] = {}

    def is_current(self, uid: str, mark: str) -> bool:
        """Is this policy prepared as it is, or must it wait for another try?"""
        made = self.made.get(uid)
        return made is not None and made.mark == mark and time.monotonic() < made.retry_at

    def find_pause(self) -> float | None:
        """Seconds until a policy that was not compiled is to be tried again; None: no policy is."""
        first = min((made.retry_at for made in self.made.values()), default=float("inf"))
        return None if first == float("inf") else max(first - time.monotonic(), 0.0)

    async def prepare(self, tasks: Sequence[CompileTask]) -> None:
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

    async def _prepare_one(self, task: CompileTask, reason: str) -> CompiledPolicy:
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
        return CompiledPolicy(task.mark, made)


def _refuse(task: CompileTask, reason: str, pause: float) -> CompiledPolicy:
    log.error("policy not compiled", extra={"uid": task.uid, "why": reason})
    failing = task.fail(CompileError(reason))
    return CompiledPolicy(task.mark, failing, reason, time.monotonic() + max(pause, FIRST_PAUSE))
