"""Runs jobs in a child process, one after the other, each within limits; whose turn it is.

What a job does to its process (time, memory, a crash) stays there.
"""

import asyncio
import contextlib
import math
import os
import resource
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable

import msgspec

from lictor.kubernetes.compile_turns import FairShares

Work = Callable[[bytes], bytes]

_LENGTH = struct.Struct("<I")
_MEBIBYTE = 1024 * 1024
_MOST_JOBS = 64
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
    # Seconds of CPU time after which it is slow, and may be begun again elsewhere; 0: never.
    slow_after: float = 0.0
    # Orders of one namespace that may be under way at once; 0: any number.
    most_orders: int = 0


class JobOutcome(msgspec.Struct, frozen=True):
    """What came of a job: what it returned, or why there is nothing."""

    result: bytes = b""
    failure: str = ""
    # It was done well, and nowhere near its limits.
    is_light: bool = False
    # It had no more than the time that it may take; what else is wrong with it is not known.
    is_late: bool = False


class _Task(msgspec.Struct, frozen=True):
    job: bytes
    limits: Limits


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


class Lane:
    """Runs jobs in a child. One child does many: to fork costs more than most jobs.

    A job that fails is the end of its child, and so is a number of jobs: what they leave behind
    must not add up. A job that nobody waits for any more is the end of its child, too.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._child: _Child | None = None
        self._is_taken = False
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._shares = FairShares()

    @contextlib.asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Wait for the turn of a namespace: that of the one that has taken least so far."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append((owner, turn))
        self._call_next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release()
            raise
        began = loop.time()
        try:
            yield
        finally:
            self._shares.add(owner, loop.time() - began)
            self._release()

    def _release(self) -> None:
        self._is_taken = False
        self._call_next()

    def _call_next(self) -> None:
        self._waiting = [each for each in self._waiting if not each[1].cancelled()]
        if self._is_taken or not self._waiting:
            return
        chosen = self._shares.choose([owner for owner, _ in self._waiting])
        _, turn = self._waiting.pop(chosen)
        self._is_taken = True
        turn.set_result(None)

    async def run(self, job: bytes, limits: Limits) -> JobOutcome:
        """Whoever calls has the turn."""
        child = self._child = self._child or self._fork()
        child.jobs += 1
        outcome, is_late = None, False
        try:
            async with asyncio.timeout(limits.wall_seconds):
                task = msgspec.msgpack.encode(_Task(job, limits))
                answer = await exchange(child.channel, task)
            outcome = msgspec.msgpack.decode(answer, type=JobOutcome)
        except TimeoutError:
            is_late = True
        except OSError:
            is_late = False
        finally:
            must_end = outcome is None or bool(outcome.failure) or child.is_worn
            code = self._end(child) if must_end else 0
            is_late = is_late or code == -signal.SIGPROF
        if outcome is not None:
            return outcome
        return JobOutcome(failure=_explain_end(code, limits, is_late=is_late), is_late=is_late)

    def _fork(self) -> _Child:
        own, other = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _work_in_child(other, self._work)
        other.close()
        own.setblocking(False)  # noqa: FBT003  (it has no name)
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


def _explain_end(code: int, limits: Limits, *, is_late: bool) -> str:
    if code == -signal.SIGXCPU:
        return f"it takes more than {limits.cpu_seconds} s of CPU time"
    if is_late:
        return f"it takes more than {limits.wall_seconds:g} s"
    end = signal.Signals(-code).name if code < 0 else f"code {code}"
    return f"the process that tried it died ({end})"


def close_others(kept: int) -> None:
    """Hold nothing else open that was inherited."""
    os.closerange(3, kept)
    os.closerange(kept + 1, 65536)


def end_with_parent() -> None:
    """Be killed where the parent dies."""
    import ctypes

    pr_set_pdeathsig = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


# --- in a child of the helper


def _work_in_child(channel: socket.socket, work: Work) -> None:
    try:
        close_others(channel.fileno())
        end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Where a container runs out of memory, a job is what can best be done without.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        while (data := _read_frame(channel)) is not None:
            task = msgspec.msgpack.decode(data, type=_Task)
            _limit_memory(task.limits.memory)
            _limit_time(task.limits.cpu_seconds)
            # Ends the process, unless something else does before.
            signal.setitimer(signal.ITIMER_PROF, task.limits.slow_after)
            outcome = _work_on(task.job, work, task.limits)
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


async def exchange(channel: socket.socket, data: bytes) -> bytes:
    """Send a frame, and receive one."""
    await send_frame(channel, data)
    return await receive_frame(channel)


async def send_frame(channel: socket.socket, data: bytes) -> None:
    """Until all of it is sent."""
    await asyncio.get_running_loop().sock_sendall(channel, _LENGTH.pack(len(data)) + data)


async def receive_frame(channel: socket.socket) -> bytes:
    """OSError where the other side ends before."""
    (length,) = _LENGTH.unpack(await _receive(channel, _LENGTH.size))
    return await _receive(channel, length)


async def _receive(channel: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        wanted = min(size - len(received), _MEBIBYTE)
        chunk = await asyncio.get_running_loop().sock_recv(channel, wanted)
        if not chunk:
            raise ConnectionResetError("the other process is gone")
        received += chunk
    return bytes(received)
