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
from collections.abc import Callable, Sequence

import msgspec

Work = Callable[[bytes], bytes]

_LENGTH = struct.Struct("<I")
_MEBIBYTE = 1024 * 1024
_MOST_JOBS = 64
# A child that holds so much more than at its beginning has done enough.
_MOST_KEPT = 16 * _MEBIBYTE


class Limits(msgspec.Struct, frozen=True):
    """What one job may take."""

    cpu_seconds: int = 3
    # Longer, as others may need the processor too.
    wall_seconds: float = 30.0
    # Beyond what the process has before it begins.
    memory: int = 128 * _MEBIBYTE


class Outcome(msgspec.Struct, frozen=True):
    """What came of a job: what it returned, or why there is nothing."""

    result: bytes = b""
    failure: str = ""


class _Order(msgspec.Struct, frozen=True):
    jobs: list[bytes]
    limits: Limits


class HelperProcess:
    """Runs jobs one after the other; whoever asks waits for those before."""

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

    async def run(self, jobs: Sequence[bytes], limits: Limits) -> list[Outcome]:
        """The outcomes of jobs, in their order; OSError where the helper is gone."""
        data = msgspec.msgpack.encode(_Order(list(jobs), limits))
        async with self._lock:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(self._socket, _LENGTH.pack(len(data)) + data)
            (length,) = _LENGTH.unpack(await self._receive(_LENGTH.size))
            answer = await self._receive(length)
        return msgspec.msgpack.decode(answer, type=list[Outcome])

    async def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            wanted = min(size - len(parts), _MEBIBYTE)
            part = await asyncio.get_running_loop().sock_recv(self._socket, wanted)
            if not part:
                raise ConnectionResetError("the helper process is gone")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """End the helper."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


# --- in the helper


def _serve_parent(channel: socket.socket, work: Work, rehearse: Callable[[], None] | None) -> None:
    """The helper's whole life."""
    try:
        _part_from_parent(channel.fileno())
        if rehearse is not None:
            rehearse()
        gc.freeze()
        runner = _Runner(work)
        while (data := _read_frame(channel)) is not None:
            order = msgspec.msgpack.decode(data, type=_Order)
            outcomes = [runner.run(job, order.limits) for job in order.jobs]
            _write_frame(channel, msgspec.msgpack.encode(outcomes))
    finally:
        os._exit(0)


def _part_from_parent(kept: int) -> None:
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

    def __init__(self, work: Work) -> None:
        self._work = work
        self._child: _Child | None = None

    def run(self, job: bytes, limits: Limits) -> Outcome:
        child = self._child
        if child is None:
            child = self._child = self._fork()
        child.jobs += 1
        outcome, is_late = _ask(child, msgspec.msgpack.encode(_Order([job], limits)), limits)
        if outcome is not None and not outcome.failure and not child.is_worn:
            return outcome
        code = self._end(child)
        return outcome or Outcome(failure=_explain_end(code, limits, is_late=is_late))

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


def _ask(child: _Child, order: bytes, limits: Limits) -> tuple[Outcome | None, bool]:
    """What became of a job; None where the child died, and whether it only took too long."""
    child.channel.settimeout(limits.wall_seconds)
    try:
        _write_frame(child.channel, order)
        answer = _read_frame(child.channel)
    except TimeoutError:
        return None, True
    except OSError:
        return None, False
    return (None if answer is None else msgspec.msgpack.decode(answer, type=Outcome)), False


# --- in a child of the helper


def _work_in_child(channel: socket.socket, work: Work) -> None:
    try:
        _end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while (data := _read_frame(channel)) is not None:
            order = msgspec.msgpack.decode(data, type=_Order)
            _limit_memory(order.limits.memory)
            _limit_time(order.limits.cpu_seconds)
            outcome = _work_on(order.jobs[0], work, order.limits)
            _write_frame(channel, msgspec.msgpack.encode(outcome))
    finally:
        os._exit(0)


def _work_on(job: bytes, work: Work, limits: Limits) -> Outcome:
    try:
        return Outcome(result=work(job))
    except MemoryError:
        return Outcome(failure=f"it needs more than {limits.memory // _MEBIBYTE} MiB of memory")
    except Exception as error:  # noqa: BLE001  (whatever it is, it must be told)
        return Outcome(failure=f"{type(error).__name__}: {error}"[:500])


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
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), _MEBIBYTE))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _explain_end(code: int, limits: Limits, *, is_late: bool) -> str:
    if code == -signal.SIGXCPU:
        return f"it takes more than {limits.cpu_seconds} s of CPU time"
    if is_late:
        return f"it takes more than {limits.wall_seconds:g} s"
    return f"the process that tried it died ({_name_end(code)})"


def _name_end(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"code {code}"
