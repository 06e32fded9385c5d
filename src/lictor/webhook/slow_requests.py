"""Requests that take long to evaluate go to a separate process: others do not wait for them."""

import asyncio
import time
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import orjson

from lictor.core.errors import SlowRequestError
from lictor.core.lang.written_size import ensure_room
from lictor.core.model.request import Request
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import API_VERSION, AdmissionAnswer
from lictor.webhook.tracing import render_parent

# That process evaluates one after the other: later requests would wait in vain.
_MOST_WAITING = 64
# One namespace with slow policies must not block others: so many of its requests are there at
# once, and so many more wait for their turn.
_MOST_OF_A_NAMESPACE = 4
_MOST_IN_LINE = 16


class TurnLimits(msgspec.Struct, frozen=True):
    """How many requests are evaluated at the same time, and how many wait: of one key, and of all.

    A key is a namespace or a policy: one that is slow must not block others.
    """

    most_of_one: int
    most: int
    waiting_of_one: int
    waiting: int


class FairTurns:
    """Limits what is evaluated at the same time; belongs to one event loop."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._left = asyncio.Condition()

    @asynccontextmanager
    async def take(self, key: str, seconds: float | None = None) -> AsyncIterator[None]:
        """Hold a turn; SlowRequestError where there is none within so many seconds."""
        if self._is_full(key):
            await self._wait(key, seconds)
        self._running[key] += 1
        try:
            yield
        finally:
            self._running -= Counter((key,))
            async with self._left:
                self._left.notify_all()

    def _is_full(self, key: str) -> bool:
        limits, running = self._limits, self._running
        return running.total() >= limits.most or running[key] >= limits.most_of_one

    async def _wait(self, key: str, seconds: float | None) -> None:
        limits, waiting = self._limits, self._waiting
        if waiting[key] >= limits.waiting_of_one or waiting.total() >= limits.waiting:
            raise SlowRequestError("too many requests at once that take long to evaluate")
        self._waiting[key] += 1
        try:
            async with asyncio.timeout(seconds), self._left:
                await self._left.wait_for(lambda: not self._is_full(key))
        except TimeoutError:
            raise SlowRequestError("requests that take long left no time for this one") from None
        finally:
            self._waiting -= Counter((key,))


class SlowRequests:
    """The way to the process that has time."""

    def __init__(self, address: str) -> None:
        """`address`: the Unix socket on which that process listens; empty where there is none."""
        self._address = address
        # By namespace.
        self._turns = FairTurns(
            TurnLimits(_MOST_OF_A_NAMESPACE, _MOST_WAITING, _MOST_IN_LINE, _MOST_WAITING)
        )

    async def ask(self, path: str, request: Request, deadline: float) -> AdmissionAnswer:
        """What that process answers; SlowRequestError where it does not, or has no time."""
        asked: JsonObject = request.admission or {}
        review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": asked}
        try:
            async with (
                asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()),
                self._turns.take(str(asked.get("namespace") or "")),
            ):
                ensure_room(asked)
                left = deadline - time.monotonic()
                target = f"{path}?timeout={max(int(left), 1)}s"
                response = await self._send(target, orjson.dumps(review))
        except (OSError, EOFError, ValueError, LookupError, MemoryError) as error:
            if isinstance(error, TimeoutError):
                raise SlowRequestError("the rules took too long") from None
            raise SlowRequestError("the rules take too long to be evaluated now") from error
        return _read_answer(response)

    async def _send(self, target: str, body: bytes) -> JsonObject:
        reader, writer = await asyncio.open_unix_connection(self._address)
        try:
            head = (
                f"POST {target} HTTP/1.1\r\nhost: slow\r\ncontent-type: application/json\r\n"
                f"{render_parent()}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await reader.readuntil(b"\r\n\r\n")
            content = await reader.read()
        finally:
            writer.close()
        response: JsonObject = orjson.loads(content)["response"]
        return response


def _read_answer(response: JsonObject) -> AdmissionAnswer:
    """The opposite of `render_review`; an answer without `allowed` is a denial."""
    patch = response.get("patch")
    status: JsonObject = response.get("status") or {}
    return AdmissionAnswer(
        allowed=response.get("allowed") is True,
        message=str(status.get("message") or ""),
        warnings=tuple(response.get("warnings") or ()),
        patch=tuple(orjson.loads(b64decode(patch))) if patch else (),
        status={name: status[name] for name in ("code", "details") if name in status},
        audit_annotations=response.get("auditAnnotations") or {},
    )
