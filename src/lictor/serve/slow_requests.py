"""Requests that take long to evaluate go to a process of their own: nobody else waits for them."""

import asyncio
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from lictor.errors import SlowRequestError
from lictor.lang.written_size import ensure_room
from lictor.model.request import Request
from lictor.raw import JsonObject
from lictor.report.admission_response import API_VERSION, AdmissionAnswer

# That process evaluates one after the other: whoever comes later would wait in vain.
_MOST_WAITING = 64
# One namespace with slow policies must leave room for others.
_MOST_OF_A_NAMESPACE = 4


class SlowRequests:
    """The way to the process that has time."""

    def __init__(self, address: str) -> None:
        """`address`: the Unix socket on which that process listens; empty where there is none."""
        self._address = address
        self._waiting: Counter[str] = Counter()

    async def ask(self, path: str, request: Request, deadline: float) -> AdmissionAnswer:
        """What that process answers; SlowRequestError where it does not, or has no time."""
        asked: JsonObject = request.admission or {}
        review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": asked}
        left = deadline - time.monotonic()
        with self._wait(str(asked.get("namespace") or "")):
            try:
                ensure_room(asked)
                async with asyncio.timeout(left):
                    target = f"{path}?timeout={max(int(left), 1)}s"
                    response = await self._send(target, orjson.dumps(review))
            except (OSError, EOFError, ValueError, LookupError, MemoryError) as error:
                raise SlowRequestError("the rules take too long to be asked now") from error
            except TimeoutError:
                raise SlowRequestError("the rules took too long") from None
        return _read_answer(response)

    @contextmanager
    def _wait(self, namespace: str) -> Iterator[None]:
        is_full = self._waiting.total() >= _MOST_WAITING
        if is_full or self._waiting[namespace] >= _MOST_OF_A_NAMESPACE:
            raise SlowRequestError("too many requests at once that take long to judge")
        self._waiting[namespace] += 1
        try:
            yield
        finally:
            self._waiting[namespace] -= 1
            if not self._waiting[namespace]:
                del self._waiting[namespace]

    async def _send(self, target: str, body: bytes) -> JsonObject:
        reader, writer = await asyncio.open_unix_connection(self._address)
        try:
            head = (
                f"POST {target} HTTP/1.1\r\nhost: slow\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await reader.readuntil(b"\r\n\r\n")
            content = await reader.read()
        finally:
            writer.close()
        response: JsonObject = orjson.loads(content)["response"]
        return response


def _read_answer(response: JsonObject) -> AdmissionAnswer:
    """The opposite of `render_review`; what does not say that it is allowed is not."""
    patch = response.get("patch")
    return AdmissionAnswer(
        allowed=response.get("allowed") is True,
        message=str((response.get("status") or {}).get("message") or ""),
        warnings=tuple(response.get("warnings") or ()),
        patch=tuple(orjson.loads(b64decode(patch))) if patch else (),
    )
