"""Runs jobs in a child process, one after the other, each within limits; in fair turns.

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
from lictor.policies.trials import JobOutcome, Limits, exchange

Work = Callable[[bytes], bytes]

_LENGTH = struct.Struct("<I")
_MEBIBYTE = 1024 * 1024
_MAX_JOBS = 64
# A child that has grown by so much is replaced.
_MAX_GROWTH = 16 * _MEBIBYTE
# A job that uses no more than this share of each limit is light.
_LIGHT_SHARE = 0.25


class _Task(msgspec.Struct, frozen=True):
    job: bytes
    limits: Limits


class _Child(msgspec.Struct):
    """A process that runs jobs, and how many it has run."""

    pid: int
    channel: socket.socket
    # Bytes at its start.
    memory: int
    jobs: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.jobs >= _MAX_JOBS or _read_memory(self.pid) > self.memory + _MAX_GROWTH


class Lane:
    """Runs jobs in a child. One child runs many: a fork costs more than most jobs.

    The child ends after a job that failed or was cancelled, and after a number of jobs: what they
    leave behind must not add up.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._child: _Child | None = None
        self._is_taken = False
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._shares = FairShares()

    @contextlib.asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Wait for the turn of a namespace: the one that has used least comes first."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append((owner, turn))
        self._wake_next()
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
        self._wake_next()

    def _wake_next(self) -> None:
        self._waiting = [each for each in self._waiting if not each[1].cancelled()]
        if self._is_taken or not self._waiting:
            return
        chosen = self._shares.choose([owner for owner, _ in self._waiting])
        _, turn = self._waiting.pop(chosen)
        self._is_taken = True
        turn.set_result(None)

    async def run(self, job: bytes, limits: Limits) -> JobOutcome:
        """Run a job; the caller has taken the turn."""
        outcome, code = await self._run_once(job, limits)
        if code == -signal.SIGKILL and not outcome.is_late:
            # Another process killed it, such as the kernel for lack of memory: once is an accident.
            outcome, _ = await self._run_once(job, limits)
        return outcome

    async def _run_once(self, job: bytes, limits: Limits) -> tuple[JobOutcome, int]:
        """The outcome, and the exit code of the child if it had to end."""
        child = self._child = self._child or self._fork()
        child.jobs += 1
        outcome, code, is_late = None, 0, False
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
            if outcome is None or outcome.failure or child.is_used_up:
                code = self._end(child)
        if outcome is not None:
            return outcome, 0
        is_late = is_late or code == -signal.SIGPROF
        failure = _explain_end(code, limits, is_late=is_late)
        return JobOutcome(failure=failure, is_late=is_late), code

    def _fork(self) -> _Child:
        own, other = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _work_in_child(other, self._work)
        other.close()
        own.setblocking(False)  # noqa: FBT003  (positional only)
        return _Child(pid, own, _read_memory(pid))

    def _end(self, child: _Child) -> int:
        """End a child; returns its exit code."""
        self._child = None
        child.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _read_memory(pid: int) -> int:
    """Bytes of private data of a process; 0 if it is gone."""
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
    """Close all other inherited files."""
    os.closerange(3, kept)
    os.closerange(kept + 1, 65536)


def end_with_parent() -> None:
    """Be killed when the parent dies."""
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
        # If the container runs out of memory, the kernel ends a job first.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        while (data := _read_frame(channel)) is not None:
            task = msgspec.msgpack.decode(data, type=_Task)
            _limit_memory(task.limits.memory)
            _limit_time(task.limits.cpu_seconds)
            # SIGPROF ends the process.
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
    except Exception as error:  # noqa: BLE001  (all failures are reported)
        return JobOutcome(failure=f"{type(error).__name__}: {error}"[:500])


def _is_light(began: resource.struct_rusage, limits: Limits) -> bool:
    now = resource.getrusage(resource.RUSAGE_SELF)
    seconds = now.ru_utime + now.ru_stime - began.ru_utime - began.ru_stime
    # The peak, in KiB; that of earlier jobs is not counted again.
    memory = (now.ru_maxrss - began.ru_maxrss) * 1024
    return seconds <= limits.cpu_seconds * _LIGHT_SHARE and memory <= limits.memory * _LIGHT_SHARE


def _limit_memory(more: int) -> None:
    limit = _read_memory(os.getpid()) + more
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _limit_time(more: int) -> None:
    # The kernel counts whole seconds: rounded up, or a job might get none.
    used = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + more, hard))


# --- frames, as in `trials`, for a process without an event loop


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
