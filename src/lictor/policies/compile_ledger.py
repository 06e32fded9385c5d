"""Which process compiles which policy, and in which order: in memory that all processes share."""

import logging
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b

from msgspec.structs import replace

from lictor.core.errors import CompileError, LictorError
from lictor.core.evaluations import identify
from lictor.core.model.program import Case, Check, DeferredCheck, Program
from lictor.core.model.result import Result
from lictor.kubernetes.compile_turns import CompileTurns

log = logging.getLogger(__name__)

# What is compiled, by which process, since when. An entry stays if its process dies.
_ENTRY = struct.Struct("<16sQd")
_NOTHING = bytes(_ENTRY.size)
_ENTRIES = 512
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 600.0
# Deaths farther apart are not related.
_RELATED_SECONDS = 1800.0


class CompileLedger:
    """A table in shared memory; created before processes are forked."""

    def __init__(self, entries: int = _ENTRIES) -> None:
        self._entries = entries
        self._memory = mmap.mmap(-1, entries * _ENTRY.size)

    @contextmanager
    def compiling(self, identity: str) -> Iterator[None]:
        """Note that this process compiles something, until it has finished."""
        place = self._find_entry()
        _ENTRY.pack_into(self._memory, place, _digest(identity), os.getpid(), time.monotonic())
        try:
            yield
        finally:
            self._memory[place : place + _ENTRY.size] = _NOTHING

    def find_reason(self, identity: str, *, forgives_one: bool = False) -> tuple[str, float]:
        """Why this must not be compiled, and for how many seconds; empty if it may be."""
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
        """Did a process die while compiling this?"""
        return bool(self._list_deaths(identity))

    def is_compiling(self, identity: str) -> bool:
        """Does a process compile this now?"""
        return any(_is_alive(pid) for pid, _ in self._list_entries(_digest(identity)))

    def _list_deaths(self, identity: str) -> list[float]:
        """When the processes that died while compiling this began."""
        entries = self._list_entries(_digest(identity))
        ends = [since for pid, since in entries if not _is_alive(pid)]
        return [end for end in ends if end > max(ends) - _RELATED_SECONDS]

    def _list_entries(self, digest: bytes) -> Iterator[tuple[int, float]]:
        """The processes that began to compile this and have not finished, and when."""
        start = 0
        while (at := self._memory.find(digest, start)) >= 0:
            start = at + 1
            if at % _ENTRY.size:
                continue
            _, pid, since = _ENTRY.unpack_from(self._memory, at)
            if pid:
                yield pid, since

    def _find_entry(self) -> int:
        """A free entry, or the oldest; each process begins to look at another one."""
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


# Rules that are compiled when first used take turns, on all threads.
_TURNS = CompileTurns()
INTERNAL_ERROR = "internal error: the policy broke the compiler ({})"


class CompileGuard:
    """Compiles the deferred checks of one policy: in turn, noted in the ledger."""

    __slots__ = ("_identity", "_namespace")

    def __init__(self, identity: str, namespace: str) -> None:
        self._identity = identity
        self._namespace = namespace

    def __call__(self, compile_check: Callable[[], Check]) -> Check:
        try:
            with _TURNS.take(self._namespace), LEDGER.compiling(self._identity):
                return compile_check()
        except (LictorError, MemoryError):
            # There was no time or no memory: that is no fault of the policy.
            raise
        except Exception as error:
            # A bug in the compiler must not prevent the evaluation of other policies.
            log.exception("policy broke the compiler", extra={"policy": self._identity})
            return _fail(INTERNAL_ERROR.format(type(error).__name__))


def _fail(reason: str) -> Check:
    def check(_: Case) -> tuple[Result, ...]:
        raise CompileError(reason)

    return check


def guard_programs(programs: Iterable[Program], identity: str) -> tuple[Program, ...]:
    """The programs of a policy, with its identity; what is compiled later is guarded."""
    guarded: list[Program] = []
    for program in programs:
        guard = CompileGuard(identity, program.policy.namespace)
        for rule in program.rules:
            for check in (rule.check, rule.applies):
                if isinstance(check, DeferredCheck):
                    check.guard = guard
        guarded.append(replace(program, identity=identify(identity)))
    return tuple(guarded)
