"""The process that runs jobs in children, each within limits.

It is forked while its parent has no threads yet, and stays small, so that its own forks are cheap.
Many or slow jobs of one namespace delay no other namespace.
"""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from lictor.policies.trial_lane import Lane, Work, close_others, end_with_parent
from lictor.policies.trials import JobBatch, JobOutcome, Limits, receive_frame, send_frame

_MAX_KNOWN = 4096
# To receive a batch, and to send its outcomes.
_EXCHANGE_SECONDS = 5.0
# What a job of a namespace may take at first, of CPU time and in all: most need less, and wait for
# no other jobs than these.
_FIRST_SECONDS = 0.5
_FIRST_WALL_SECONDS = 2.0
_TOO_MANY = "too many policies of namespace {} are being tried already; try again later"

Accept = Callable[[socket.socket], socket.socket]


def serve_batches(
    listener: socket.socket, work: Work, preload: Callable[[], None] | None = None
) -> NoReturn:
    """Run jobs for several processes, until SIGTERM. `preload` runs before the first job."""
    _serve(listener, lambda bound: bound.accept()[0], work, preload)


def serve_parent(
    channel: socket.socket, work: Work, preload: Callable[[], None] | None = None
) -> NoReturn:
    """Run jobs for the parent alone, until it ends."""
    _serve(channel, _receive_connection, work, preload)


def _receive_connection(channel: socket.socket) -> socket.socket:
    """The connection of the next batch; EOFError if the parent is gone."""
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise EOFError
    return socket.socket(fileno=descriptors[0])


def _serve(
    listener: socket.socket,
    accept: Accept,
    work: Work,
    preload: Callable[[], None] | None,
) -> NoReturn:
    _detach_from_parent(listener.fileno())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if preload is not None:
        preload()
    gc.freeze()
    # The loop must survive forks of its process.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_HelperServer(work).serve(listener, accept))
    sys.exit(0)


def _detach_from_parent(kept: int) -> None:
    """Close the files of the parent, and end with it."""
    close_others(kept)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


class _HelperServer:
    """Runs batches. Slow jobs of namespaces run beside those that are not."""

    def __init__(self, work: Work) -> None:
        self._cluster, self._light, self._heavy = Lane(work), Lane(work), Lane(work)
        # The marks of jobs that succeeded, the oldest first, and whether they were light.
        self._known: dict[bytes, bool] = {}
        # Jobs that are running or waiting, by namespace.
        self._pending: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket, accept: Accept) -> None:
        """Accept connections until the parent is gone."""
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        listener.setblocking(False)  # noqa: FBT003  (positional only)

        def accept_next() -> None:
            try:
                connection = accept(listener)
            except EOFError:
                end.set()
            except OSError:
                # The client may have ended.
                return
            else:
                task = loop.create_task(self._handle(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        loop.add_reader(listener, accept_next)
        await end.wait()

    async def _handle(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003  (positional only)
        with connection, contextlib.suppress(OSError):
            async with asyncio.timeout(_EXCHANGE_SECONDS):
                data = await receive_frame(connection)
            loop = asyncio.get_running_loop()
            answering = loop.create_task(self._answer(data))
            # The client sends nothing more: what arrives is the end of the connection.
            leaving = loop.create_task(loop.sock_recv(connection, 1))
            both = (answering, leaving)
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                is_wanted = answering.done()
            finally:
                for task in both:
                    task.cancel()
                await asyncio.wait(both)
            if is_wanted:
                async with asyncio.timeout(_EXCHANGE_SECONDS):
                    await send_frame(connection, answering.result())

    async def _answer(self, data: bytes) -> bytes:
        """The outcomes of a batch."""
        batch = msgspec.msgpack.decode(data, type=JobBatch)
        if batch.known_mark:
            self._add_known(batch.known_mark, is_light=batch.is_light)
        marks = batch.marks or [b""] * len(batch.jobs)
        owners = batch.owners or [""] * len(batch.jobs)
        jobs = zip(batch.jobs, marks, owners, strict=True)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run_bounded(*job, batch.limits)) for job in jobs]
        return msgspec.msgpack.encode([task.result() for task in running])

    async def _run_bounded(self, job: bytes, mark: bytes, owner: str, limits: Limits) -> JobOutcome:
        if owner and 0 < limits.max_pending <= self._pending[owner]:
            return JobOutcome(failure=_TOO_MANY.format(owner))
        self._pending[owner] += 1
        try:
            return await self._run(job, mark, owner, limits)
        finally:
            self._pending[owner] -= 1
            self._pending += Counter()

    async def _run(self, job: bytes, mark: bytes, owner: str, limits: Limits) -> JobOutcome:
        if not owner:
            return await self._run_in(self._cluster, job, mark, owner, limits)
        wall = min(limits.wall_seconds, _FIRST_WALL_SECONDS)
        first = replace(limits, wall_seconds=wall, slow_after=_FIRST_SECONDS)
        outcome = await self._run_in(self._light, job, mark, owner, first)
        if not outcome.is_late:
            return outcome
        return await self._run_in(self._heavy, job, mark, owner, limits)

    async def _run_in(
        self, lane: Lane, job: bytes, mark: bytes, owner: str, limits: Limits
    ) -> JobOutcome:
        async with lane.take(owner):
            if mark in self._known:
                return JobOutcome(is_light=self._known[mark])
            outcome = await lane.run(job, limits)
        if mark and not outcome.failure:
            self._add_known(mark, is_light=outcome.is_light)
        return outcome

    def _add_known(self, mark: bytes, *, is_light: bool) -> None:
        self._known[mark] = is_light
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
