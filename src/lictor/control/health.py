"""A small port that says whether this process lives and is ready, and shows its metrics."""

import asyncio
import logging
from contextlib import suppress

from lictor.cluster.flags import Flags

log = logging.getLogger(__name__)

_HEAD_LIMIT = 16 * 1024
_PATIENCE = 5.0
_TEXT = "text/plain; charset=utf-8"


class Health:
    """Answers GET /health/liveness, /health/readiness and /metrics, one request a connection."""

    def __init__(self, flags: Flags) -> None:
        self.is_ready = False
        self._host = flags.metrics_host or None
        self._port = flags.metrics_port
        self._shows_metrics = not flags.disable_metrics

    async def start(self) -> asyncio.Server:
        """Listen; OSError where the port is taken."""
        server = await asyncio.start_server(self._answer, self._host, self._port, limit=_HEAD_LIMIT)
        log.info("health served", extra={"port": self._port})
        return server

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                await writer.drain()
        writer.close()

    def _respond(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _build_answer("405 Method Not Allowed", b"")
        answer = self._find_answer(path)
        return answer if method == b"GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _find_answer(self, path: str) -> bytes:
        if path == "/health/liveness" or (path == "/health/readiness" and self.is_ready):
            return _build_answer("200 OK", b"ok")
        if path == "/health/readiness":
            return _build_answer("503 Service Unavailable", b"not ready")
        if path == "/metrics" and self._shows_metrics:
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

            return _build_answer("200 OK", generate_latest(), CONTENT_TYPE_LATEST)
        return _build_answer("404 Not Found", b"not found")


def _build_answer(status: str, body: bytes, kind: str = _TEXT) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
