"""The state of a client connection that its server reads: idle, slow, or holding much memory."""

import asyncio
import contextlib
from collections import deque
from typing import Protocol

from lictor.http.messages import STALL_SECONDS, Handler, HttpRequest

MAX_HEAD = 64 * 1024
_IDLE_SECONDS = 120.0
# From the first byte of a request to its last.
_REQUEST_SECONDS = 30.0
# While draining: a client that was idle for this long will not send another request.
_LAST_CALL_SECONDS = 0.5


class ConnectionOwner(Protocol):
    """What a connection needs of its server: limits, the handler, and the count of all."""

    handler: Handler
    max_body: int
    max_read: int
    max_held: int
    held: int
    knows_clients: bool
    keeps_any: bool
    keeps_headers: frozenset[bytes]
    is_draining: bool
    read_buffer: memoryview

    def keeps(self, header: bytes) -> bool:
        """Is a header, by its name in lower case, kept for the handler?"""

    def add(self, connection: "ConnectionState") -> bool:
        """Register a connection; False if there are too many."""

    def remove(self, connection: "ConnectionState") -> None:
        """Unregister a connection."""

    def note_asked(self, connection: "ConnectionState") -> None:
        """Called after the first request of a connection."""

    def cut_largest_body(self) -> None:
        """Free memory: keep only the beginning of the largest body."""


class ConnectionState:
    """What a server asks of a connection, and when it ends one."""

    __slots__ = (
        "_asked",
        "_body",
        "_busy",
        "_cut",
        "_held",
        "_is_full",
        "_pending",
        "_server",
        "_since",
        "_transport",
        "_unsent",
        "_within",
        "address",
    )  # fmt: skip

    # Of the client; empty before the connection is made, and if it has no address.
    address: str
    _server: ConnectionOwner
    _transport: asyncio.Transport | None
    _pending: deque[tuple[HttpRequest, bool]]
    _asked: bool
    _busy: bool
    # Whether a request has begun to arrive.
    _within: bool
    # Whether the client is slow to read, and how much was unsent at the last check.
    _is_full: bool
    _unsent: int
    _since: float
    # The incomplete body, its size, and whether only its start is kept.
    _body: list[bytes]
    _held: int
    _cut: bool

    def count_held(self) -> int:
        """Bytes of the incomplete body."""
        return self._held

    def cut_body(self) -> None:
        """Keep only the start: enough to identify the refused request."""
        if self._held <= MAX_HEAD:
            return
        self._cut = True
        kept = b""
        for piece in self._body:
            kept += piece[: MAX_HEAD - len(kept)]
        self._body = [kept]
        self._server.held -= self._held - len(kept)
        self._held = len(kept)

    # --- places

    @property
    def is_unasked(self) -> bool:
        """Whether it has not sent a complete request yet."""
        return not self._asked

    @property
    def is_idle(self) -> bool:
        """Whether no response is pending and no further request has started."""
        return not self._asked or not (self._busy or self._pending or self._within)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered; an incomplete next request does not count."""
        return self._busy

    def rank(self) -> tuple[bool, float]:
        """Eviction order: those without a request first, then the longest idle."""
        return self._asked, self._since

    # --- ends

    def check_time(self, now: float) -> None:
        """Close connections that are idle, or slower than any legitimate client."""
        if self._busy or self._transport is None:
            return
        if self._is_full or self._transport.is_closing():
            self._check_taking(now, self._transport)
        elif now - self._since > (_REQUEST_SECONDS if self._within else _IDLE_SECONDS):
            self._transport.close()

    def _check_taking(self, now: float, transport: asyncio.Transport) -> None:
        """Disconnect a client that reads nothing of a response for long, also while draining."""
        left = transport.get_write_buffer_size()
        if left != self._unsent:
            self._unsent, self._since = left, now
        elif now - self._since > STALL_SECONDS:
            transport.abort()

    def close_when_idle(self, now: float) -> None:
        """Close now, or after the last response; a client that keeps sending gets one more."""
        if self._busy or self._pending or self._within or self._transport is None:
            return
        if now - self._since > _LAST_CALL_SECONDS and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._transport.abort()
