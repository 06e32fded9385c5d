"""One client connection of the server: requests are parsed, bounded, and answered in order.

Bodies are read whole; responses are written whole, or streamed. httptools (llhttp) parses the wire
format.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable
from functools import lru_cache
from http import HTTPStatus

import httptools

from lictor.core.raw import Json
from lictor.http.connection_state import MAX_HEAD, ConnectionOwner, ConnectionState
from lictor.http.messages import (
    HttpRequest,
    HttpResponse,
    StreamedResponse,
    begin_head,
    write_headers,
    write_pieces,
)

log = logging.getLogger(__name__)

# The overhead of a header: tens of thousands of empty ones would keep the loop busy.
_HEADER_COST = 32
_MAX_PIPELINE = 8
# More requests may be pipelined in one read; no legitimate client does that.
_MOST_PENDING = 128
_LINGER_SECONDS = 0.5
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@lru_cache(maxsize=256)
def _split_url(url: bytes) -> tuple[str, bytes]:
    """The path and the query, cached: few different ones are used."""
    parsed = httptools.parse_url(url)
    return parsed.path.decode("ascii"), parsed.query or b""


_FAILED = HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")


class ServerConnection(ConnectionState, asyncio.BufferedProtocol):
    """One client. Its requests are answered in order."""

    __slots__ = (
        "_close",
        "_closing",
        "_expects",
        "_has_head",
        "_has_turn",
        "_headers",
        "_length",
        "_loop",
        "_parser",
        "_room",
        "_streaming",
        "_task",
        "_trailing",
        "_type",
        "_url",
    )  # fmt: skip

    def __init__(self, server: ConnectionOwner) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser: Json = httptools.HttpRequestParser(self)
        self._pending: deque[tuple[HttpRequest, bool]] = deque()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        self._asked = False
        self._busy = False
        # One request per read is answered at once; otherwise the others would wait for all of it.
        self._has_turn = False
        self._closing = False
        self._within = False
        self._streaming = False
        # Cleared while the client reads more slowly than chunks are produced.
        self._room: asyncio.Event | None = None
        self._is_full = False
        self._unsent = 0
        self._since = time.monotonic()
        self._held = 0
        self.on_message_begin()
        self._within = False

    # --- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TLS and TCP give no other
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if isinstance(name, tuple) else ""
        if not self._server.add(self):
            log.warning("too many connections")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.remove(self)
        self._transport = None
        self._server.held -= self._held + sum(len(call.body) for call, _ in self._pending)
        self._held = 0
        self._pending.clear()
        if self._streaming and self._task is not None:
            self._task.cancel()
        # httptools and the connection refer to each other.
        self._parser = None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._server.read_buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse or copy all of the data before this returns."""
        if self._closing or self._parser is None:
            return
        self._has_turn = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is handled as HTTP; an upgrade to another protocol is ignored.
            self._parser = None
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "not HTTP\n")

    def pause_writing(self) -> None:
        """The client does not read: stop reading, or responses would accumulate."""
        self._is_full = True
        if self._room is not None:
            self._room.clear()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._room is not None:
            self._room.set()
        if self._transport is not None and len(self._pending) < _MAX_PIPELINE:
            self._transport.resume_reading()
        if not self._busy:
            self._go_on()

    # --- callbacks of the parser

    def on_message_begin(self) -> None:
        self._url = b""
        self._type = b""
        self._headers: dict[bytes, list[bytes]] = {}
        self._body: list[bytes] = []
        self._length = 0
        self._trailing = 0
        self._cut = False
        self._expects = False
        self._close = False
        self._has_head = False
        self._within = True
        self._since = time.monotonic()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._length += len(url)
        if self._length > MAX_HEAD:
            self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            # A trailer. Proxies check the head only: nothing after the body may identify the
            # caller.
            self._trailing += len(name) + len(value) + _HEADER_COST
            if self._trailing > min(MAX_HEAD, self._server.max_read):
                self._refuse_size()
            return
        self._length += len(name) + len(value) + _HEADER_COST
        if self._length > MAX_HEAD:
            self._refuse_head()
        server, lower = self._server, name.lower()
        if server.keeps_any and server.keeps(lower):
            self._headers.setdefault(lower, []).append(value)
        if lower == b"content-type":
            self._type = value
        elif lower == b"expect":
            self._expects = value.lower() == b"100-continue"
        elif (
            lower == b"content-length"
            # The parser rejects what is no number.
            and value.isdigit()
            and int(value[:20]) > server.max_read
        ):
            self._refuse_size()

    def on_headers_complete(self) -> None:
        self._length = 0
        self._has_head = True
        self._close = not self._parser.should_keep_alive() or self._parser.should_upgrade()
        if self._expects and not self._closing and self._transport is not None:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        server, size = self._server, len(body)
        self._length += size
        if self._length > server.max_read:
            self._refuse_size()
        if self._closing or self._cut:
            return
        self._body.append(body)
        self._held += size
        server.held += size
        if server.held > server.max_held:
            server.cut_largest_body()
        if self._length > server.max_body:
            self.cut_body()

    def on_message_complete(self) -> None:
        self._within = False
        if self._closing:
            return
        if not self._asked:
            self._server.note_asked(self)
            self._asked = True
        try:
            path, query = _split_url(self._url)
            method = self._parser.get_method().decode("ascii")
        except (httptools.HttpParserError, AttributeError, UnicodeDecodeError):
            self._refuse(HTTPStatus.BAD_REQUEST, "invalid path\n")
            return
        server, transport = self._server, self._transport
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        shown = transport.get_extra_info("peercert") if server.keeps_headers and transport else None
        call = HttpRequest(
            method, path, query, self._type, body, self._headers, shown, self._cut, self.address
        )
        if server.knows_clients and not self._is_known(call):
            self._refuse(HTTPStatus.UNAUTHORIZED, "a client certificate is required\n")
        elif self._busy or self._is_full:
            # Held until the earlier ones are answered.
            self._pending.append((call, self._close))
            self._held = 0
            if len(self._pending) >= _MAX_PIPELINE and transport is not None:
                transport.pause_reading()
            if len(self._pending) > _MOST_PENDING:
                self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "too many pipelined requests\n")
        else:
            server.held -= self._held
            self._held = 0
            self._busy = True
            self._answer(call)

    # --- requests and replies

    def _is_known(self, call: HttpRequest) -> bool:
        """Health checks need no certificate; a certificate that is present has been verified."""
        if call.method in ("GET", "HEAD"):
            return True
        return self._transport is not None and bool(self._transport.get_extra_info("peercert"))

    def _answer(self, call: HttpRequest) -> None:
        """Directly if the handler can; otherwise in a task."""
        reply: Awaitable[HttpResponse | StreamedResponse] | HttpResponse | None = None
        if self._has_turn:
            self._has_turn = False
            try:
                reply = self._server.handler(call)
            except Exception:
                log.exception("request failed", extra={"path": call.path})
                reply = _FAILED
        if isinstance(reply, HttpResponse):
            self._busy = False
            self._write(reply, close=self._close or reply.close, has_body=call.method != "HEAD")
            self._since = time.monotonic()
        else:
            self._task = self._loop.create_task(self._run(call, close=self._close, reply=reply))

    async def _run(
        self,
        call: HttpRequest,
        *,
        close: bool,
        reply: Awaitable[HttpResponse | StreamedResponse] | None = None,
    ) -> None:
        try:
            found = self._server.handler(call) if reply is None else reply
            made = found if isinstance(found, HttpResponse) else await found
        except asyncio.CancelledError:
            raise
        except BaseException:
            log.exception("request failed", extra={"path": call.path})
            made = _FAILED
        if isinstance(made, StreamedResponse):
            if call.method == "HEAD":
                # Anything after the head would be read as the next response.
                await made.pieces.aclose()
                made = HttpResponse(made.status, b"", made.content_type, headers=made.headers)
                self._write(made, close=close, has_body=False)
            else:
                await self._stream(made)
            self._busy = False
        else:
            self._busy = False
            self._write(made, close=close or made.close, has_body=call.method != "HEAD")
        self._since = time.monotonic()
        if self._pending and not self._is_full:
            self._go_on()

    def _go_on(self) -> None:
        """Answer the next pipelined request."""
        if not self._pending or self._closing or self._transport is None:
            return
        following, close = self._pending.popleft()
        self._server.held -= len(following.body)
        if len(self._pending) < _MAX_PIPELINE:
            self._transport.resume_reading()
        self._busy = True
        self._task = self._loop.create_task(self._run(following, close=close))

    async def _stream(self, stream: StreamedResponse) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._streaming, self._room = True, asyncio.Event()
        self._room.set()
        try:
            await write_pieces(transport, stream, self._room)
        finally:
            self._streaming = False

    def _write(
        self, reply: HttpResponse, *, close: bool, has_body: bool = True, lingers: bool = False
    ) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        ending = close or (self._server.is_draining and not self._pending)
        transport.write(
            b"%bcontent-length: %d\r\n%b%b\r\n%b"
            % (
                begin_head(reply.status, reply.content_type),
                len(reply.body),
                b"connection: close\r\n" if ending else b"",
                write_headers(reply.headers) if reply.headers else b"",
                reply.body if has_body else b"",
            )
        )
        if not ending:
            return
        self._closing = True
        if lingers:
            # A client that is still sending would not read the response if the connection were
            # closed.
            self._loop.call_later(_LINGER_SECONDS, transport.close)
        else:
            transport.close()

    def _refuse_head(self) -> None:
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the header is too large\n")

    def _refuse_size(self) -> None:
        text = f"a body may have {self._server.max_read} bytes at most\n"
        self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Send the reason, and read no more from this client."""
        if self._closing:
            return
        self._write(HttpResponse(status, text.encode()), close=True, lingers=True)
