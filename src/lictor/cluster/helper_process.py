"""A process beside this one that runs jobs in children of its own, each within limits.

What a job does to its process (time, memory, a crash) stays there. The helper is forked while this
process has no threads yet, and stays small, so that its own forks are cheap.
"""

import asyncio
import contextlib
import gc
import math
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

import msgspec

Work = Callable[[bytes], bytes]

_LENGTH = struct.Struct("<I")
_MEBIBYTE = 1024 * 1024
_MOST_JOBS = 64
_MOST_KNOWN = 4096
# To ask, once somebody is listening; and to wait until somebody is.
_PATIENCE = 5.0
_PAUSES = (0.1, 0.5, 2.0)
# A child that holds so much more than at its beginning has done enough.
_MOST_KEPT = 16 * _MEBIBYTE
# Of its limits, a job that takes no more than this share of each is light.
_LIGHT_SHARE = 0.25


class Limits(msgspec.Struct, frozen=True):
    """What one job may take."""

    cpu_seconds: int = 3
    # Longer, as others may need the processor too.
    wall_seconds: float = 30.0
    # Beyond what the process has before it begins.
    memory: int = 128 * _MEBIBYTE


class JobOutcome(msgspec.Struct, frozen=True):
    """What came of a job: what it returned, or why there is nothing."""

    result: bytes = b""
    failure: str = ""
    # It was done well, and nowhere near its limits.
    is_light: bool = False


class _Order(msgspec.Struct, frozen=True):
    jobs: list[bytes]
    limits: Limits
    # What is known by the same mark to have been done well is not done again.
    marks: list[bytes] = []
    noted: bytes = b""
    is_light: bool = False


class Helper(Protocol):
    """Runs jobs one after the other; whoever asks waits for those before."""

    async def run(
        self, jobs: Sequence[bytes], limits: Limits, marks: Sequence[bytes] = ()
    ) -> list[JobOutcome]:
        """The outcomes of jobs, in their order; OSError where the helper is gone.

        `marks`: one for each job, where nobody needs what it returns.
        """
        ...

    async def note(self, mark: bytes, *, is_light: bool) -> None:
        """What has this mark was done well."""
        ...

    def close(self) -> None: ...


class HelperProcess:
    """A helper of this process alone."""

    def __init__(self, work: Work, rehearse: Callable[[], None] | None = None) -> None:
        """`rehearse` is called in the helper before any job, so that none must load modules."""
        own, other = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _serve_parent(other, work, rehearse)
        other.close()
        own.setblocking(False)  # noqa: FBT003  (it has no name)
        self._socket = own
        self._lock = asyncio.Lock()

    async def run(
        self, jobs: Sequence[bytes], limits: Limits, marks: Sequence[bytes] = ()
    ) -> list[JobOutcome]:
        async with self._lock:
            return await _exchange(self._socket, _Order(list(jobs), limits, list(marks)))

    async def note(self, mark: bytes, *, is_light: bool) -> None:
        # Nobody else asks here, and whoever does knows it.
        ...

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


class SharedHelper:
    """The client of a helper that several processes share, by the Unix socket it listens on.

    Who listens may be started again meanwhile: then it is asked again.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    async def run(
        self, jobs: Sequence[bytes], limits: Limits, marks: Sequence[bytes] = ()
    ) -> list[JobOutcome]:
        return await self._ask(_Order(list(jobs), limits, list(marks)))

    async def note(self, mark: bytes, *, is_light: bool) -> None:
        await self._ask(_Order([], Limits(), noted=mark, is_light=is_light))

    async def _ask(self, order: _Order) -> list[JobOutcome]:
        for pause in _PAUSES:
            try:
                return await self._ask_once(order)
            except OSError:
                await asyncio.sleep(pause)
        return await self._ask_once(order)

    async def _ask_once(self, order: _Order) -> list[JobOutcome]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)  # noqa: FBT003  (it has no name)
            await asyncio.get_running_loop().sock_connect(connection, self._address)
            return await _exchange(connection, order)

    def close(self) -> None: ...


async def _exchange(channel: socket.socket, order: _Order) -> list[JobOutcome]:
    data = msgspec.msgpack.encode(order)
    await asyncio.get_running_loop().sock_sendall(channel, _LENGTH.pack(len(data)) + data)
    (length,) = _LENGTH.unpack(await _receive(channel, _LENGTH.size))
    return msgspec.msgpack.decode(await _receive(channel, length), type=list[JobOutcome])


async def _receive(channel: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        wanted = min(size - len(received), _MEBIBYTE)
        chunk = await asyncio.get_running_loop().sock_recv(channel, wanted)
        if not chunk:
            raise ConnectionResetError("the helper process is gone")
        received += chunk
    return bytes(received)


# --- in the helper


def _serve_parent(channel: socket.socket, work: Work, rehearse: Callable[[], None] | None) -> None:
    """The helper's whole life."""
    try:
        _detach_from_parent(channel.fileno())
        runner = _Runner(work, rehearse)
        while (data := _read_frame(channel)) is not None:
            _write_frame(channel, runner.answer(data))
    finally:
        os._exit(0)


def serve_several(door: socket.socket, work: Work, rehearse: Callable[[], None] | None) -> NoReturn:
    """The whole life of a helper that is shared, in a process of its own; until SIGTERM.

    Whoever connects waits for those who came before.
    """
    _detach_from_parent(door.fileno())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    runner = _Runner(work, rehearse)
    while True:
        connection, _ = door.accept()
        # Whoever asks may have ended.
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_PATIENCE)
            if (data := _read_frame(connection)) is not None:
                _write_frame(connection, runner.answer(data))


def _detach_from_parent(kept: int) -> None:
    """Hold nothing of the parent's open, and end with it."""
    os.closerange(3, kept)
    os.closerange(kept + 1, 65536)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()


def _end_with_parent() -> None:
    import ctypes

    pr_set_pdeathsig = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class _Child(msgspec.Struct):
    """A process that runs jobs, and how many it has run."""

    pid: int
    channel: socket.socket
    # What it held at its beginning.
    memory: int
    jobs: int = 0

    @property
    def is_worn(self) -> bool:
        return self.jobs >= _MOST_JOBS or _read_memory(self.pid) > self.memory + _MOST_KEPT


class _Runner:
    """Runs jobs in a child. One child does many: to fork costs more than most jobs.

    A job that fails is the end of its child, and so is a number of jobs: what they leave behind
    must not add up.
    """

    def __init__(self, work: Work, rehearse: Callable[[], None] | None) -> None:
        if rehearse is not None:
            rehearse()
        gc.freeze()
        self._work = work
        self._child: _Child | None = None
        # The marks of what was done well, the oldest first, and whether that was light.
        self._known: dict[bytes, bool] = {}

    def answer(self, data: bytes) -> bytes:
        """The outcomes of an order."""
        order = msgspec.msgpack.decode(data, type=_Order)
        if order.noted:
            self._note(order.noted, is_light=order.is_light)
        marks = order.marks or [b""] * len(order.jobs)
        pairs = zip(order.jobs, marks, strict=True)
        return msgspec.msgpack.encode([self._run_new(*pair, order.limits) for pair in pairs])

    def _run_new(self, job: bytes, mark: bytes, limits: Limits) -> JobOutcome:
        if mark in self._known:
            return JobOutcome(is_light=self._known[mark])
        outcome = self.run(job, limits)
        if mark and not outcome.failure:
            self._note(mark, is_light=outcome.is_light)
        return outcome

    def _note(self, mark: bytes, *, is_light: bool) -> None:
        self._known[mark] = is_light
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def run(self, job: bytes, limits: Limits) -> JobOutcome:
        child = self._child = self._child or self._fork()
        child.jobs += 1
        outcome, is_late = _ask(child, msgspec.msgpack.encode(_Order([job], limits)), limits)
        if outcome is not None and not outcome.failure and not child.is_worn:
            return outcome
        code = self._end(child)
        return outcome or JobOutcome(failure=_explain_end(code, limits, is_late=is_late))

    def _fork(self) -> _Child:
        own, other = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            own.close()
            _work_in_child(other, self._work)
        other.close()
        return _Child(pid, own, _read_memory(pid))

    def _end(self, child: _Child) -> int:
        """End a child; what it had ended with, where it was before us."""
        self._child = None
        child.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _read_memory(pid: int) -> int:
    """Bytes of data that a process has of its own; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        return 0


def _ask(child: _Child, order: bytes, limits: Limits) -> tuple[JobOutcome | None, bool]:
    """What became of a job; None where the child died, and whether it only took too long."""
    child.channel.settimeout(limits.wall_seconds)
    try:
        _write_frame(child.channel, order)
        answer = _read_frame(child.channel)
    except TimeoutError:
        return None, True
    except OSError:
        return None, False
    return (None if answer is None else msgspec.msgpack.decode(answer, type=JobOutcome)), False


# --- in a child of the helper


def _work_in_child(channel: socket.socket, work: Work) -> None:
    try:
        _end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Where a container runs out of memory, a job is what can best be done without.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        while (data := _read_frame(channel)) is not None:
            order = msgspec.msgpack.decode(data, type=_Order)
            _limit_memory(order.limits.memory)
            _limit_time(order.limits.cpu_seconds)
            outcome = _work_on(order.jobs[0], work, order.limits)
            _write_frame(channel, msgspec.msgpack.encode(outcome))
    finally:
        os._exit(0)


def _work_on(job: bytes, work: Work, limits: Limits) -> JobOutcome:
    began = resource.getrusage(resource.RUSAGE_SELF)
    try:
        return JobOutcome(work(job), is_light=_is_light(began, limits))
    except MemoryError:
        return JobOutcome(failure=f"it needs more than {limits.memory // _MEBIBYTE} MiB of memory")
    except Exception as error:  # noqa: BLE001  (whatever it is, it must be told)
        return JobOutcome(failure=f"{type(error).__name__}: {error}"[:500])


def _is_light(began: resource.struct_rusage, limits: Limits) -> bool:
    now = resource.getrusage(resource.RUSAGE_SELF)
    seconds = now.ru_utime + now.ru_stime - began.ru_utime - began.ru_stime
    # The most that it ever had, in KiB; what an earlier job had is not counted again.
    memory = (now.ru_maxrss - began.ru_maxrss) * 1024
    return seconds <= limits.cpu_seconds * _LIGHT_SHARE and memory <= limits.memory * _LIGHT_SHARE


def _limit_memory(more: int) -> None:
    limit = _read_memory(os.getpid()) + more
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _limit_time(more: int) -> None:
    # The kernel counts whole seconds: one more, or a job might get none at all.
    used = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + more, hard))


# --- frames: a length, and so many bytes


def _write_frame(channel: socket.socket, data: bytes) -> None:
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _read_frame(channel: socket.socket) -> bytes | None:
    head = _read_exactly(channel, _LENGTH.size)
    return None if head is None else _read_exactly(channel, _LENGTH.unpack(head)[0])


def _read_exactly(channel: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        chunk = channel.recv(min(size - len(received), _MEBIBYTE))
        if not chunk:
            return None
        received += chunk
    return bytes(received)


def _explain_end(code: int, limits: Limits, *, is_late: bool) -> str:
    if code == -signal.SIGXCPU:
        return f"it takes more than {limits.cpu_seconds} s of CPU time"
    if is_late:
        return f"it takes more than {limits.wall_seconds:g} s"
    end = signal.Signals(-code).name if code < 0 else f"code {code}"
    return f"the process that tried it died ({end})"
