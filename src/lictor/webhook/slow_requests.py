"""Requests that take long to evaluate go to a separate process: others do not wait for them."""

import asyncio
import time
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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


class SlowRequests:
    """The way to the process that has time."""

    def __init__(self, address: str) -> None:
        """`address`: the Unix socket on which that process listens; empty where there is none."""
        self._address = address
        # Requests of each namespace: those that are there, and those in line.
        self._asked: Counter[str] = Counter()
        self._in_line: Counter[str] = Counter()
        self._left = asyncio.Condition()

    async def ask(self, path: str, request: Request, deadline: float) -> AdmissionAnswer:
        """What that process answers; SlowRequestError where it does not, or has no time."""
        asked: JsonObject = request.admission or {}
        review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": asked}
        try:
            async with (
                asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()),
                self._take_turn(str(asked.get("namespace") or "")),
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

    @asynccontextmanager
    async def _take_turn(self, namespace: str) -> AsyncIterator[None]:
        async with self._left:
            if self._is_full(namespace):
                await self._stand_in_line(namespace)
            self._asked[namespace] += 1
        try:
            yield
        finally:
            self._asked -= Counter((namespace,))
            async with self._left:
                self._left.notify_all()

    def _is_full(self, namespace: str) -> bool:
        is_full = self._asked.total() >= _MOST_WAITING
        return is_full or self._asked[namespace] >= _MOST_OF_A_NAMESPACE

    async def _stand_in_line(self, namespace: str) -> None:
        if self._in_line[namespace] >= _MOST_IN_LINE or self._in_line.total() >= _MOST_WAITING:
            raise SlowRequestError("too many requests at once that take long to evaluate")
        self._in_line[namespace] += 1
        try:
            await self._left.wait_for(lambda: not self._is_full(namespace))
        finally:
            self._in_line -= Counter((namespace,))

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
