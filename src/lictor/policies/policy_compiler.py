"""Compiles policies in the background: tried in another process first, then on a thread."""

import asyncio
import logging
import mmap
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, LictorError, NotYetError
from lictor.core.evaluations import EVALUATIONS, QUARANTINED, identify
from lictor.core.model.program import Case, Check, DeferredCheck, Program
from lictor.core.model.result import Result
from lictor.kubernetes.compile_turns import CompileTurns, FairShares
from lictor.policies.compile_trial import Job, TrialResult, Trials

# What is compiled, by which process, since when. An entry stays where its process dies.
_ENTRY = struct.Struct("<16sQd")
_NOTHING = bytes(_ENTRY.size)
_ENTRIES = 512
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 600.0
# Deaths farther apart have nothing to do with each other.
_RELATED_SECONDS = 1800.0


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

    def find_reason(self, identity: str, *, forgives_one: bool = False) -> tuple[str, float]:
        """Why this must not be compiled for so many seconds; empty where it may be."""
        ends = self._list_deaths(identity)
        if len(ends) <= int(forgives_one):
            return "", 0.0
        pause = min(FIRST_PAUSE * 2 ** (len(ends) - 1), LONGEST_PAUSE)
        left = max(ends) + pause - time.monotonic()
        if left <= 0:
            return "", 0.0
        died = "a process" if len(ends) == 1 else f"{len(ends)} processes"
        return f"{died} died while compiling the policy; it is tried again after a while", left

    def has_deaths(self, identity: str) -> bool:
        """Did a process begin to compile this and not live to finish it?"""
        return bool(self._list_deaths(identity))

    def is_compiling(self, identity: str) -> bool:
        """Does a process compile this now?"""
        return any(_is_alive(pid) for pid, _ in self._list_entries(_digest(identity)))

    def _list_deaths(self, identity: str) -> list[float]:
        """When processes began to compile this that did not live to finish it."""
        entries = self._list_entries(_digest(identity))
        ends = [since for pid, since in entries if not _is_alive(pid)]
        return [end for end in ends if end > max(ends) - _RELATED_SECONDS]

    def _list_entries(self, digest: bytes) -> Iterator[tuple[int, float]]:
        """Who began to compile this and has not finished, and when."""
        start = 0
        while (at := self._memory.find(digest, start)) >= 0:
            start = at + 1
            if at % _ENTRY.size:
                continue
            _, pid, since = _ENTRY.unpack_from(self._memory, at)
            if pid:
                yield pid, since

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

# Several threads ask rules first.
_TURNS = CompileTurns()
_MISTAKE = "this should not have happened ({})"
_BATCH = 16
# For another process that compiles a policy over which one has died already.
_TURN_SECONDS = 10.0
_LOOK_SECONDS = 0.1
# While a policy is compiled, requests must not wait long for the interpreter.
_SWITCH_SECONDS = 0.001


def _name(uid: str, mark: str) -> str:
    """A policy by its uid and mark, without what only this process counts: see `PolicyStore`."""
    return f"{uid}:{mark.rpartition(';')[0] or mark}"


class CompileTask(msgspec.Struct, frozen=True):
    """One policy to prepare."""

    uid: str
    # What changes when the policy does, or an exception from it.
    mark: str
    job: Job
    compile: Callable[[], tuple[Program, ...]]
    # What stands in for it where it must not be compiled.
    fail: Callable[[CompileError], tuple[Program, ...]]

    @property
    def identity(self) -> str:
        """What the policy is known by where processes tell each other of it."""
        return _name(self.uid, self.mark)


class CompiledPolicy(msgspec.Struct, frozen=True):
    """The programs of a policy; the reason where they only answer with an error."""

    mark: str
    programs: tuple[Program, ...]
    reason: str = ""
    # When it is worth another try, by the clock that never goes back.
    retry_at: float = float("inf")
    # Something that it needs is on its way: what answers until then is what was made before.
    is_waiting: bool = False


class PolicyCompiler:
    """Prepares policies one after the other, and keeps what it made, by their uids."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self.made: dict[str, CompiledPolicy] = {}
        self._shares = FairShares()
        # How often something came that policies may wait for.
        self._news = 0

    def is_current(self, uid: str, mark: str) -> bool:
        """Is this policy prepared as it is, or must it wait for another try?"""
        made = self.made.get(uid)
        if made is None or made.mark != mark or time.monotonic() >= made.retry_at:
            return False
        return made.reason == QUARANTINED or not EVALUATIONS.holds(identify(_name(uid, mark)))

    def find_pause(self) -> float | None:
        """Seconds until a policy that was not compiled is to be tried again; None: no policy is."""
        first = min((made.retry_at for made in self.made.values()), default=float("inf"))
        return None if first == float("inf") else max(first - time.monotonic(), 0.0)

    async def prepare(self, tasks: Sequence[CompileTask], until: float = float("inf")) -> bool:
        """Make the programs of policies. What was made before stays until there is something.

        False where the time (by the clock that never goes back) was over before all were made.
        """
        ordered = self._order_fairly(tasks)
        # Where others wait for what has changed, and each may take seconds to try: one by one.
        size = _BATCH if until == float("inf") else 1
        for start in range(0, len(ordered), size):
            if start and time.monotonic() > until:
                return False
            batch, began = ordered[start : start + size], time.monotonic()
            results = await self._trials.try_policies([task.job for task in batch])
            for task, result in zip(batch, results, strict=True):
                self.made[task.uid] = await self._prepare_one(task, result)
            for namespace in {task.job.namespace for task in batch}:
                self._shares.add(namespace, time.monotonic() - began)
        return True

    def _order_fairly(self, tasks: Sequence[CompileTask]) -> list[CompileTask]:
        """Those of the whole cluster, then one of each namespace, then another: who has many waits
        for others. Those over which a process has died come last.
        """
        namespaces = [task.job.namespace for task in tasks]
        if namespaces:
            self._shares.choose(namespaces)
        seen: Counter[str] = Counter()
        ranks: list[tuple[bool, int, float]] = []
        for task, namespace in zip(tasks, namespaces, strict=True):
            seen[namespace] += 1
            rank = seen[namespace] if namespace else 0
            # Who took long in the last round comes later in this one.
            taken = self._shares.find(namespace)
            ranks.append((LEDGER.has_deaths(task.identity), rank, taken))
        return [tasks[number] for number in sorted(range(len(tasks)), key=ranks.__getitem__)]

    def keep(self, uids: set[str]) -> None:
        """Forget all others."""
        for gone in self.made.keys() - uids:
            del self.made[gone]

    async def _prepare_one(self, task: CompileTask, result: TrialResult) -> CompiledPolicy:
        if EVALUATIONS.holds(identify(task.identity)):
            return _refuse(task, QUARANTINED, float("inf"))
        reason, pause = result.reason, LONGEST_PAUSE
        if not reason:
            await _wait_for_turn(task.identity)
            # What was light in its trial kills nobody by itself: one death may be the fault of
            # whatever else took the memory. An attacker who knows that gets two.
            reason, pause = LEDGER.find_reason(task.identity, forgives_one=result.is_light)
        if reason:
            return _refuse(task, reason, pause)
        return await self._compile(task, pause)

    async def _compile(self, task: CompileTask, pause: float) -> CompiledPolicy:
        usual, heard = sys.getswitchinterval(), self._news
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with LEDGER.compiling(task.identity):
                loop = asyncio.get_running_loop()
                made = await loop.run_in_executor(self._thread, task.compile)
        except NotYetError as error:
            return self._wait_for(task, error, heard)
        except Exception as error:
            # A mistake of ours over one policy must not end the process, over and over.
            log.exception("policy broke the compiler", extra={"uid": task.uid})
            return _refuse(task, _MISTAKE.format(type(error).__name__), pause)
        finally:
            sys.setswitchinterval(usual)
        return CompiledPolicy(task.mark, tuple(_note_later(each, task.identity) for each in made))

    def _wait_for(self, task: CompileTask, error: NotYetError, heard: int) -> CompiledPolicy:
        """`heard`: the news before it was compiled; what came meanwhile is worth another try."""
        before = self.made.get(task.uid)
        programs = before.programs if before is not None else ()
        again = time.monotonic() + error.patience if heard == self._news else 0.0
        return CompiledPolicy(task.mark, programs, str(error), again, is_waiting=True)

    def retry_after(self, uid: str, seconds: float) -> None:
        """Compile a policy again, though it stays the same: what it lacks may be there by then."""
        if uid in self.made:
            again = time.monotonic() + seconds
            self.made[uid] = replace(self.made[uid], retry_at=again)

    def stop_waiting(self) -> None:
        """What policies wait for may have come: they are worth another try now."""
        self._news += 1
        for uid, made in self.made.items():
            if made.is_waiting:
                self.made[uid] = replace(made, retry_at=0.0)


def _note_later(program: Program, identity: str) -> Program:
    """The same program; also while it compiles the rest, or runs, a ledger tells that."""
    namespace = program.policy.namespace
    return replace(
        program,
        identity=identify(identity),
        rules=tuple(
            replace(
                rule,
                check=_note_check(rule.check, identity, namespace),
                applies=rule.applies and _note_check(rule.applies, identity, namespace),
            )
            for rule in program.rules
        ),
    )


def _note_check(check: Check, identity: str, namespace: str) -> Check:
    if not isinstance(check, DeferredCheck):
        return check

    return DeferredCheck(_compile_noted, check, identity, namespace)


def _compile_noted(check: DeferredCheck, identity: str, namespace: str) -> Check:
    try:
        with _TURNS.take(namespace), LEDGER.compiling(identity):
            return check.resolve()
    except (LictorError, MemoryError):
        # Nothing is wrong with the policy: there was no time or no room.
        raise
    except Exception as error:
        # A mistake of ours over one policy must not keep others from being asked.
        log.exception("policy broke the compiler", extra={"policy": identity})
        return _fail(_MISTAKE.format(type(error).__name__))


def _fail(reason: str) -> Check:
    def check(_: Case) -> tuple[Result, ...]:
        raise CompileError(reason)

    return check


async def _wait_for_turn(identity: str) -> None:
    """A policy over which one process has died is compiled by one at a time: not all die of it."""
    deadline = time.monotonic() + _TURN_SECONDS
    while LEDGER.has_deaths(identity) and LEDGER.is_compiling(identity):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _refuse(task: CompileTask, reason: str, pause: float) -> CompiledPolicy:
    log.error("policy not compiled", extra={"uid": task.uid, "why": reason})
    failing = task.fail(CompileError(reason))
    return CompiledPolicy(task.mark, failing, reason, time.monotonic() + max(pause, FIRST_PAUSE))
