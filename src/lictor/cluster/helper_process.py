"""A process beside this one that runs jobs in children of its own, each within limits.

What a job does to its process (time, memory, a crash) stays there. The helper is forked while this
process has no threads yet, and stays small, so that its own forks are cheap.
"""

import asyncio
import contextlib
import gc
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence

import msgspec

Work = Callable[[bytes], bytes]

_LENGTH = struct.Struct("<I")
_MEBIBYTE = 1024 * 1024


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
        while (order := _receive(channel)) is not None:
            data = msgspec.msgpack.encode(run_jobs(order.jobs, work, order.limits))
            channel.sendall(_LENGTH.pack(len(data)) + data)
    finally:
        os._exit(0)


def _part_from_parent(kept: int) -> None:
    """Hold nothing of the parent's open, and end with it."""
    import ctypes

    os.closerange(3, kept)
    os.closerange(kept + 1, 65536)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pr_set_pdeathsig = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _receive(channel: socket.socket) -> _Order | None:
    head = _read_exactly(channel, _LENGTH.size)
    if head is None:
        return None
    data = _read_exactly(channel, _LENGTH.unpack(head)[0])
    return None if data is None else msgspec.msgpack.decode(data, type=_Order)


def _read_exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), _MEBIBYTE))
        if not part:
            return None
        parts += part
    return bytes(parts)


def run_jobs(jobs: Sequence[bytes], work: Work, limits: Limits) -> list[Outcome]:
    """Run jobs in children; one child does many, until a job is the end of it."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        outcomes += _run_child(jobs[len(outcomes) :], work, limits)
    return outcomes


def _run_child(jobs: Sequence[bytes], work: Work, limits: Limits) -> list[Outcome]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work_in_child(jobs, work, limits, writer)
    os.close(writer)
    outcomes, is_late = _collect(reader, len(jobs), limits)
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if len(outcomes) < len(jobs):
        code = os.waitstatus_to_exitcode(status)
        outcomes.append(Outcome(failure=_explain_end(code, limits, is_late=is_late)))
    return outcomes


def _work_in_child(jobs: Sequence[bytes], work: Work, limits: Limits, writer: int) -> None:
    try:
        _limit_memory(limits.memory)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for job in jobs:
            used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (used + limits.cpu_seconds, hard))
            data = msgspec.msgpack.encode(_work_on(job, work, limits))
            _write_all(writer, _LENGTH.pack(len(data)) + data)
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
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[5])
    limit = pages * resource.getpagesize() + more
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _write_all(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]


def _collect(reader: int, count: int, limits: Limits) -> tuple[list[Outcome], bool]:
    """What the child tells until it has told all, ends, or takes too long over one job."""
    outcomes: list[Outcome] = []
    data = bytearray()
    deadline = time.monotonic() + limits.wall_seconds
    while len(outcomes) < count:
        ready, _, _ = select.select([reader], [], [], max(deadline - time.monotonic(), 0.0))
        if not ready:
            return outcomes, True
        part = os.read(reader, _MEBIBYTE)
        if not part:
            break
        data += part
        while len(data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
            if len(data) < end:
                break
            outcomes.append(msgspec.msgpack.decode(data[_LENGTH.size : end], type=Outcome))
            del data[:end]
            deadline = time.monotonic() + limits.wall_seconds
    return outcomes, False


def _explain_end(code: int, limits: Limits, *, is_late: bool) -> str:
    if code == -signal.SIGXCPU:
        return f"it takes more than {limits.cpu_seconds} s of CPU time"
    if is_late:
        return f"it takes more than {limits.wall_seconds:g} s"
    return f"the process that tried it died ({_name_end(code)})"


def _name_end(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"code {code}"
