"""Tries policies in another process before they are compiled in this one: the client's side.

A trial finds a reason why a policy must not be compiled, or nothing. Reviews of policies, before
they are stored, run in the same process, within the same limits.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from typing import NoReturn, Protocol

import msgspec
import orjson

from lictor.core.raw import JsonObject

log = logging.getLogger(__name__)

_MEBIBYTE = 1024 * 1024
_LENGTH = struct.Struct("<I")
# Pauses between attempts to reach a helper that is being restarted.
_PAUSES = (0.1, 0.5, 2.0)
_MAX_KNOWN = 4096
# The fields of the metadata that a compiler reads.
_COMPILED_METADATA = ("name", "namespace", "labels", "annotations")
# Lists of plain names in JSON text, and one such name. Quotes inside texts are escaped.
_NAME_LISTS = re.compile(rb'"(?:names|namespaces)":\[(?:"[a-z0-9-]{1,63}",?)+\]')
_PLAIN_NAME = re.compile(rb'"[a-z0-9-]{1,63}"(?=[],])')
# The first byte of a job.
TRIAL, REVIEW = b"t", b"r"
# Shorter than the timeout of the API server for the webhook.
_REVIEW_SECONDS = 7.0
# Reviews of one namespace at the same time: each may take seconds.
_MAX_REVIEWS = 8


class Limits(msgspec.Struct, frozen=True):
    """What one job may use."""

    cpu_seconds: int = 3
    # Longer, as other processes may need the processor too.
    wall_seconds: float = 30.0
    # Beyond what the process has before it begins.
    memory: int = 128 * _MEBIBYTE
    # CPU seconds after which the job is stopped, to be started again in another lane; 0: never.
    slow_after: float = 0.0
    # Jobs of one namespace that may be running or waiting; 0: any number.
    max_pending: int = 0


class JobOutcome(msgspec.Struct, frozen=True):
    """The result of a job, or why there is none."""

    result: bytes = b""
    failure: str = ""
    # It succeeded, and used little of its limits.
    is_light: bool = False
    # It was stopped at its time limit.
    is_late: bool = False


class JobBatch(msgspec.Struct, frozen=True):
    """Jobs on their way to the helper."""

    jobs: list[bytes]
    limits: Limits
    # A job whose mark is known to have succeeded is not run again.
    marks: list[bytes] = []
    # The namespace of each job; empty for the whole cluster.
    owners: list[str] = []
    # A job that succeeded elsewhere.
    known_mark: bytes = b""
    is_light: bool = False


class Job(msgspec.Struct, frozen=True):
    """A policy, and what it is compiled with."""

    policy: JsonObject
    exceptions: tuple[JsonObject, ...] = ()
    # Definitions of custom kinds, without their schemas.
    crds: tuple[JsonObject, ...] = ()

    @property
    def namespace(self) -> str:
        """The namespace of the policy; empty for the whole cluster."""
        return find_namespace(self.policy)


def find_namespace(document: JsonObject) -> str:
    """The namespace of a policy; empty for one of the whole cluster."""
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""


class TrialResult(msgspec.Struct, frozen=True):
    """What is known about a policy before it is compiled."""

    # Why it must not be compiled; empty if it may be.
    reason: str = ""
    # It was tried and took little: if a process dies while compiling it, that may be an accident.
    is_light: bool = False


class Helper(Protocol):
    """Runs jobs: those of the whole cluster in a separate child, the others in turns."""

    async def run(
        self,
        jobs: Sequence[bytes],
        limits: Limits,
        marks: Sequence[bytes] = (),
        owners: Sequence[str] = (),
    ) -> list[JobOutcome]:
        """The outcomes of jobs, in their order; OSError if the helper is gone.

        `marks`: one for each job whose result is not needed. `owners`: the namespaces. If the
        caller is cancelled, the jobs are stopped.
        """
        ...

    async def add_known(self, mark: bytes, *, is_light: bool) -> None:
        """Note that the job with this mark succeeded elsewhere."""
        ...

    def close(self) -> None: ...


class Trials:
    """Tries policies, in a helper of this process or in one that several processes share."""

    def __init__(self, helper: Helper, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._helper = helper
        # Fingerprints of policies that were tried and found harmless, the oldest first. A trial
        # costs more than compiling, and the same policy is admitted, stored and watched.
        self._harmless: dict[bytes, TrialResult] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def try_policies(self, jobs: Sequence[Job]) -> list[TrialResult]:
        """For each policy whether it may be compiled."""
        marks = [_fingerprint(job) for job in jobs]
        unknown = {
            mark: job for mark, job in zip(marks, jobs, strict=True) if mark not in self._harmless
        }
        found = {mark: self._harmless[mark] for mark in marks if mark not in unknown}
        if unknown:
            results = await self._try(list(unknown.values()), list(unknown))
            found.update(zip(unknown, results, strict=True))
        return [found[mark] for mark in marks]

    def add_harmless(self, job: Job, *, is_light: bool) -> None:
        """Note that a policy was compiled elsewhere, within the same limits."""
        mark = _fingerprint(job)
        self._remember(mark, TrialResult(is_light=is_light))
        # In the background: if it fails, other processes try the policy once more.
        task = asyncio.get_running_loop().create_task(self._send_known(mark, is_light=is_light))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_known(self, mark: bytes, *, is_light: bool) -> None:
        with contextlib.suppress(OSError):
            await self._helper.add_known(mark, is_light=is_light)

    def _remember(self, mark: bytes, result: TrialResult) -> None:
        self._harmless[mark] = result
        while len(self._harmless) > _MAX_KNOWN:
            del self._harmless[next(iter(self._harmless))]

    async def _try(self, jobs: Sequence[Job], marks: Sequence[bytes]) -> list[TrialResult]:
        try:
            encoded = [TRIAL + msgspec.msgpack.encode(job) for job in jobs]
            owners = [job.namespace for job in jobs]
            outcomes = await self._helper.run(encoded, self._limits, marks, owners)
        except OSError as error:
            # Expressions have their own limits: better without this one than no policies.
            log.exception("policies not tried before they are compiled", exc_info=error)
            return [TrialResult() for _ in jobs]
        results = [TrialResult(format_failure(each), each.is_light) for each in outcomes]
        for mark, result in zip(marks, results, strict=True):
            if not result.reason:
                self._remember(mark, result)
        return results

    async def review(self, data: bytes, namespace: str = "") -> JobOutcome:
        """The outcome of a review; OSError if the helper is gone."""
        limits = msgspec.structs.replace(
            self._limits, wall_seconds=_REVIEW_SECONDS, max_pending=_MAX_REVIEWS
        )
        (outcome,) = await self._helper.run([REVIEW + data], limits, owners=[namespace])
        return outcome

    def close(self) -> None:
        self._helper.close()


def format_failure(outcome: JobOutcome) -> str:
    """Why a policy was not compiled; empty if it was."""
    if not outcome.failure:
        return ""
    return f"the policy cannot be compiled within the limits: {outcome.failure}"


def _fingerprint(job: Job) -> bytes:
    """Equal for equal content, without what the API server has added to it.

    Plain names make no difference: policies of many teams differ in nothing else.
    """
    documents = [
        (each.get("apiVersion"), each.get("kind"), each.get("spec"), _pick_metadata(each))
        for each in (job.policy, *job.exceptions)
    ]
    kinds = [(each["metadata"].get("uid"), each["spec"]) for each in job.crds]
    try:
        data = orjson.dumps([documents, kinds], option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        # Too deep, or a number too large: equal to no other.
        return os.urandom(32)
    return sha256(_NAME_LISTS.sub(_blank_names, data)).digest()


def _blank_names(names: re.Match[bytes]) -> bytes:
    return _PLAIN_NAME.sub(b'""', names[0])


def _pick_metadata(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata") or {}
    picked = {name: metadata.get(name) for name in _COMPILED_METADATA}
    # As a list, so that `_NAME_LISTS` finds it.
    picked["names"] = [picked.pop("name"), picked.pop("namespace") or "-"]
    return picked


# The trials of this process; empty if policies are compiled without.
CURRENT: list[Trials] = []


def current_trials() -> Trials | None:
    """The trials of this process; None if policies are compiled without."""
    return CURRENT[0] if CURRENT else None


async def find_reason(document: JsonObject) -> str:
    """Why a policy must not be compiled in this process; empty if it may be."""
    trials = current_trials()
    if trials is None:
        return ""
    (result,) = await trials.try_policies([Job(document)])
    return result.reason


class SharedHelper:
    """The client of a helper that several processes share, by the Unix socket it listens on.

    The helper may be restarted meanwhile: then the request is sent again.
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
        return await self._send(JobBatch(list(jobs), limits, list(marks), list(owners)))

    async def add_known(self, mark: bytes, *, is_light: bool) -> None:
        await self._send(JobBatch([], Limits(), known_mark=mark, is_light=is_light))

    async def _send(self, batch: JobBatch) -> list[JobOutcome]:
        for pause in _PAUSES:
            try:
                return await self._send_once(batch)
            except OSError:
                await asyncio.sleep(pause)
        return await self._send_once(batch)

    async def _send_once(self, batch: JobBatch) -> list[JobOutcome]:
        async with self._connect() as connection:
            answer = await exchange(connection, msgspec.msgpack.encode(batch))
            return msgspec.msgpack.decode(answer, type=list[JobOutcome])

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)  # noqa: FBT003  (positional only)
            await asyncio.get_running_loop().sock_connect(connection, self._address)
            yield connection

    def close(self) -> None: ...


class HelperProcess(SharedHelper):
    """A helper of this process alone."""

    def __init__(self, serve: Callable[[socket.socket], NoReturn]) -> None:
        """`serve` runs in the helper, on a socket that passes one connection for each batch."""
        super().__init__("")
        own, other = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                serve(other)
            finally:
                os._exit(0)
        other.close()
        self._socket = own

    async def _send(self, batch: JobBatch) -> list[JobOutcome]:
        # It is not restarted.
        return await self._send_once(batch)

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[socket.socket]:
        connection, other = socket.socketpair()
        with connection:
            with other:
                connection.setblocking(False)  # noqa: FBT003  (positional only)
                socket.send_fds(self._socket, [b"c"], [other.fileno()])
            yield connection

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


# --- frames: a length, and as many bytes


async def exchange(channel: socket.socket, data: bytes) -> bytes:
    """Send a frame, and receive one."""
    await send_frame(channel, data)
    return await receive_frame(channel)


async def send_frame(channel: socket.socket, data: bytes) -> None:
    """Send a frame as a whole."""
    await asyncio.get_running_loop().sock_sendall(channel, _LENGTH.pack(len(data)) + data)


async def receive_frame(channel: socket.socket) -> bytes:
    """Receive a frame; OSError if the connection ends before."""
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
