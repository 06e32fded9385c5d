"""Work spread over processes, forked after compiling; results keep their order.

Worker k of n does the chunks k, k+n, k+2n... and writes each answer to its own pipe; the parent
reads the pipes in turn. There is no queue, the order is that of one process, and a full pipe slows
its writer down.
"""

import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from lictor.core.errors import LictorError

Task = TypeVar("Task")
Answer = TypeVar("Answer")

# Below this many resources a second process costs more than it saves.
WORTHWHILE_TASKS = 300
_LENGTH = struct.Struct("!cQ")


class WorkerError(LictorError):
    """A worker process ended before its work was done."""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def choose_processes(tasks: int, wanted: int) -> int:
    """Return the number of processes: as requested, or by the amount of work."""
    if not hasattr(os, "fork"):
        return 1
    if wanted > 0:
        return min(wanted, max(tasks, 1))
    return min(usable_cores(), 1 + tasks // WORTHWHILE_TASKS)


def map_chunks(
    work: Callable[[Sequence[Task]], Answer],
    chunks: Sequence[Sequence[Task]],
    processes: int,
) -> Iterator[Answer]:
    """Return the answers of `work` to the chunks, in order, computed by several processes."""
    if processes <= 1 or len(chunks) <= 1:
        return map(work, chunks)
    return _map_on_processes(work, chunks, processes)


def _map_on_processes(
    work: Callable[[Sequence[Task]], Answer], chunks: Sequence[Sequence[Task]], processes: int
) -> Iterator[Answer]:
    workers: list[tuple[int, BinaryIO]] = []
    try:
        for k in range(processes):
            workers.append(_start_worker(work, chunks[k::processes], workers))
        for index in range(len(chunks)):
            yield _receive(workers[index % processes][1])
    finally:
        # Closed first: a worker that still writes then ends by a broken pipe.
        for _, stream in workers:
            stream.close()
        for process, _ in workers:
            os.waitpid(process, 0)


def _start_worker(
    work: Callable[[Sequence[Task]], Answer],
    chunks: Sequence[Sequence[Task]],
    others: Sequence[tuple[int, BinaryIO]],
) -> tuple[int, BinaryIO]:
    sys.stdout.flush()
    sys.stderr.flush()
    readable, writable = os.pipe()
    process = os.fork()
    if process:
        os.close(writable)
        return process, os.fdopen(readable, "rb", buffering=1 << 16)
    os.close(readable)
    for _, stream in others:
        # A pipe that another worker holds open would never break, and its writer never end.
        os.close(stream.fileno())
    _run_worker(work, chunks, writable)
    raise AssertionError("a worker never returns")


def _run_worker(
    work: Callable[[Sequence[Task]], Answer], chunks: Sequence[Sequence[Task]], pipe: int
) -> None:
    code = 1
    try:
        with os.fdopen(pipe, "wb", buffering=1 << 16) as stream:
            for chunk in chunks:
                kind, payload = _answer(work, chunk)
                stream.write(_LENGTH.pack(kind, len(payload)))
                stream.write(payload)
                stream.flush()
        code = 0
    except BrokenPipeError:
        code = 0
    finally:
        # Not sys.exit: the buffers and exit handlers belong to the parent.
        os._exit(code)


def _answer(work: Callable[[Sequence[Task]], Answer], chunk: Sequence[Task]) -> tuple[bytes, bytes]:
    try:
        return b"A", pickle.dumps(work(chunk), pickle.HIGHEST_PROTOCOL)
    except LictorError as error:
        return b"E", f"{error}".encode()


def _receive(stream: BinaryIO) -> Answer:  # type: ignore[type-var]  # the caller knows what its work answers
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise WorkerError("a worker process ended unexpectedly")
    kind, length = _LENGTH.unpack(header)
    payload = stream.read(length)
    if len(payload) < length:
        raise WorkerError("a worker process ended unexpectedly")
    if kind == b"E":
        raise WorkerError(payload.decode())
    answer: Answer = pickle.loads(payload)  # noqa: S301  (our own child wrote it)
    return answer
