"""A process beside this one that runs jobs in children of its own, each within limits.

The helper is forked while this process has no threads yet, and stays small, so that its own forks
are cheap. Nobody who sends it many or slow jobs keeps others waiting.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from lictor.policies.helper_lane import (
    JobOutcome,
    Lane,
    Limits,
    Work,
    close_others,
    end_with_parent,
    exchange,
    receive_frame,
    send_frame,
)

_MOST_KNOWN = 4096
# To ask, once somebody is listening; and to wait until somebody is.
_PATIENCE = 5.0
_PAUSES = (0.1, 0.5, 2.0)
# What a job of a namespace may take at first, of CPU time and in all: most need less, and wait for
# no others than these.
_FIRST_SECONDS = 0.5
_FIRST_WALL_SECONDS = 2.0
_TOO_MANY = "too many policies of namespace {} are being tried already; try again later"


class _Order(msgspec.Struct, frozen=True):
    jobs: list[bytes]
    limits: Limits
    # What is known by the same mark to have been done well is not done again.
    marks: list[bytes] = []
    # The namespace that each job is for; empty for the whole cluster.
    owners: list[str] = []
    noted: bytes = b""
    is_light: bool = False


class Helper(Protocol):
    """Runs jobs: those for the whole cluster in a child of their own, others by turns."""

    async def run(
        self,
        jobs: Sequence[bytes],
        limits: Limits,
        marks: Sequence[bytes] = (),
        owners: Sequence[str] = (),
    ) -> list[JobOutcome]:
        """The outcomes of jobs, in their order; OSError where the helper is gone.

        `marks`: one for each job, where nobody needs what it returns. `owners`: the namespaces.
        Whoever stops waiting stops the jobs.
        """
        ...

    async def note(self, mark: bytes, *, is_light: bool) -> None:
        """What has this mark was done well."""
        ...

    def close(self) -> None: ...


class SharedHelper:
    """The client of a helper that several processes share, by the Unix socket it listens on.

    Who listens may be started again meanwhile: then it is asked again.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    async def run(
        self,
        jobs: Sequence[bytes],
        limits: Limits,
        marks: Sequence[bytes] = (),
        owners: Sequence[str] = (),
    ) -> list[JobOutcome]:
        return await self._ask(_Order(list(jobs), limits, list(marks), list(owners)))

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
        async with self._connect() as connection:
            answer = await exchange(connection, msgspec.msgpack.encode(order))
            return msgspec.msgpack.decode(answer, type=list[JobOutcome])

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)  # noqa: FBT003  (it has no name)
            await asyncio.get_running_loop().sock_connect(connection, self._address)
            yield connection

    def close(self) -> None: ...


class HelperProcess(SharedHelper):
    """A helper of this process alone."""

    def __init__(self, work: Work, rehearse: Callable[[], None] | None = None) -> None:
        """`rehearse` is called in the helper before any job, so that none must load modules."""
        super().__init__("")
        own, other = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _serve(other, _receive_connection, work, rehearse)
            finally:
                os._exit(0)
        other.close()
        self._socket = own

    async def _ask(self, order: _Order) -> list[JobOutcome]:
        # Nobody starts it again.
        return await self._ask_once(order)

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[socket.socket]:
        connection, other = socket.socketpair()
        with connection:
            with other:
                connection.setblocking(False)  # noqa: FBT003  (it has no name)
                socket.send_fds(self._socket, [b"c"], [other.fileno()])
            yield connection

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


# --- in the helper


def serve_several(door: socket.socket, work: Work, rehearse: Callable[[], None] | None) -> NoReturn:
    """The whole life of a helper that is shared, in a process of its own; until SIGTERM."""
    _serve(door, lambda listener: listener.accept()[0], work, rehearse)


def _receive_connection(channel: socket.socket) -> socket.socket:
    """What the parent sends for each order; EOFError where there is no parent any more."""
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise EOFError
    return socket.socket(fileno=descriptors[0])


def _serve(
    door: socket.socket,
    accept: Callable[[socket.socket], socket.socket],
    work: Work,
    rehearse: Callable[[], None] | None,
) -> NoReturn:
    _detach_from_parent(door.fileno())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if rehearse is not None:
        rehearse()
    gc.freeze()
    # No other kind of loop: children are forked while it runs.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_HelperServer(work).serve(door, accept))
    sys.exit(0)


def _detach_from_parent(kept: int) -> None:
    """Hold nothing of the parent's open, and end with it."""
    close_others(kept)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


class _HelperServer:
    """Answers orders. Jobs of namespaces that take long run beside those that do not."""

    def __init__(self, work: Work) -> None:
        self._cluster, self._light, self._heavy = Lane(work), Lane(work), Lane(work)
        # The marks of what was done well, the oldest first, and whether that was light.
        self._known: dict[bytes, bool] = {}
        # Orders that are under way, by namespace.
        self._orders: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(
        self, door: socket.socket, accept: Callable[[socket.socket], socket.socket]
    ) -> None:
        """Until the parent is gone."""
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        door.setblocking(False)  # noqa: FBT003  (it has no name)

        def meet() -> None:
            try:
                connection = accept(door)
            except EOFError:
                end.set()
            except OSError:
                # Whoever asks may have ended.
                return
            else:
                task = loop.create_task(self._meet(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        loop.add_reader(door, meet)
        await end.wait()

    async def _meet(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003  (it has no name)
        with connection, contextlib.suppress(OSError):
            async with asyncio.timeout(_PATIENCE):
                data = await receive_frame(connection)
            loop = asyncio.get_running_loop()
            answering = loop.create_task(self._answer(data))
            # Whoever asks says no more: what comes is the end.
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
                async with asyncio.timeout(_PATIENCE):
                    await send_frame(connection, answering.result())

    async def _answer(self, data: bytes) -> bytes:
        """The outcomes of an order."""
        order = msgspec.msgpack.decode(data, type=_Order)
        if order.noted:
            self._note(order.noted, is_light=order.is_light)
        marks = order.marks or [b""] * len(order.jobs)
        owners = order.owners or [""] * len(order.jobs)
        jobs = zip(order.jobs, marks, owners, strict=True)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run_bounded(*job, order.limits)) for job in jobs]
        return msgspec.msgpack.encode([task.result() for task in running])

    async def _run_bounded(self, job: bytes, mark: bytes, owner: str, limits: Limits) -> JobOutcome:
        if owner and 0 < limits.most_orders <= self._orders[owner]:
            return JobOutcome(failure=_TOO_MANY.format(owner))
        self._orders[owner] += 1
        try:
            return await self._run(job, mark, owner, limits)
        finally:
            self._orders[owner] -= 1
            self._orders += Counter()

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
            self._note(mark, is_light=outcome.is_light)
        return outcome

    def _note(self, mark: bytes, *, is_light: bool) -> None:
        self._known[mark] = is_light
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
