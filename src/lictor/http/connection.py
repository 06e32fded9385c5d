"""One connection of a client to our server: requests are parsed, answered in turn, and bounded.

Bodies are read whole; responses are written whole, or in pieces as they come. What a request is on
the wire is httptools' (llhttp's) affair.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools

from lictor.core.raw import Json
from lictor.http.messages import (
    HttpRequest,
    HttpResponse,
    StreamedResponse,
    begin_head,
    write_headers,
)

if TYPE_CHECKING:
    from lictor.http.server import HttpServer

log = logging.getLogger(__name__)

_MAX_HEAD = 64 * 1024
# What a header costs beside its bytes: tens of thousands without any would keep the loop busy.
_HEADER_COST = 32
_MAX_PIPELINE = 8
# What was read at once may hold more; nobody means that well.
_MOST_PENDING = 128
_IDLE_SECONDS = 120.0
# From the first byte of a request to its last.
_REQUEST_SECONDS = 30.0
_LINGER_SECONDS = 0.5
# At the end: a client that has not asked for so long is not about to.
_LAST_CALL_SECONDS = 0.5
# A client that takes none of a reply in pieces for so long will not take the rest either.
_STALL_SECONDS = 30.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@lru_cache(maxsize=256)
def _split_url(url: bytes) -> tuple[str, bytes]:
    """The path and the query; the same few are asked for again and again."""
    parsed = httptools.parse_url(url)
    return parsed.path.decode("ascii"), parsed.query or b""


_FAILED = HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, b"this should not have happened\n")


class ServerConnection(asyncio.BufferedProtocol):
    """One client. Its requests are answered one after the other."""

    __slots__ = (
        "_asked",
        "_body",
        "_busy",
        "_close",
        "_closing",
        "_cut",
        "_expects",
        "_has_head",
        "_has_turn",
        "_headers",
        "_held",
        "_is_full",
        "_length",
        "_loop",
        "_parser",
        "_pending",
        "_room",
        "_server",
        "_since",
        "_streaming",
        "_task",
        "_trailing",
        "_transport",
        "_type",
        "_unsent",
        "_url",
        "_within",
        "address",
    )  # fmt: skip

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser: Json = httptools.HttpRequestParser(self)
        self._pending: deque[tuple[HttpRequest, bool]] = deque()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        # Of the client; empty until the connection is there, and where it has none.
        self.address = ""
        self._asked = False
        self._busy = False
        # One request of what was read is answered at once; others had to wait for all the rest.
        self._has_turn = False
        self._closing = False
        self._within = False
        self._streaming = False
        # Unset where the client reads more slowly than pieces come.
        self._room: asyncio.Event | None = None
        # Does the client leave replies lying? And how much was left when that was last looked at.
        self._is_full = False
        self._unsent = 0
        self._since = time.monotonic()
        self._held = 0
        self.on_message_begin()
        self._within = False

    # --- what the event loop tells

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
        # httptools and the connection know each other.
        self._parser = None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._server.read_buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Take what came; all of it is parsed, or copied, when this returns."""
        if self._closing or self._parser is None:
            return
        self._has_turn = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request was taken as it is; what would follow in another protocol is not heard.
            self._parser = None
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP\n")

    def pause_writing(self) -> None:
        """What has been said is not taken: no more is heard, or replies would pile up here."""
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

    # --- what the parser tells

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
        if self._length > _MAX_HEAD:
            self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            # A trailer. Proxies before us look at heads only: nothing after the body says who asks.
            self._trailing += len(name) + len(value) + _HEADER_COST
            if self._trailing > min(_MAX_HEAD, self._server.max_read):
                self._refuse_size()
            return
        self._length += len(name) + len(value) + _HEADER_COST
        if self._length > _MAX_HEAD:
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
            # The parser refuses what is no number.
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

    def count_held(self) -> int:
        """Bytes of the body that is on its way."""
        return self._held

    def cut_body(self) -> None:
        """Keep the beginning only: enough to say whose request is refused."""
        if self._held <= _MAX_HEAD:
            return
        self._cut = True
        kept = b""
        for piece in self._body:
            kept += piece[: _MAX_HEAD - len(kept)]
        self._body = [kept]
        self._server.held -= self._held - len(kept)
        self._held = len(kept)

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
            self._refuse(HTTPStatus.BAD_REQUEST, "the path cannot be read\n")
            return
        server, transport = self._server, self._transport
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        shown = transport.get_extra_info("peercert") if server.keeps_headers and transport else None
        call = HttpRequest(
            method, path, query, self._type, body, self._headers, shown, self._cut, self.address
        )
        if server.knows_clients and not self._is_known(call):
            self._refuse(HTTPStatus.UNAUTHORIZED, "show a client certificate\n")
        elif self._busy or self._is_full:
            # Held until its turn comes.
            self._pending.append((call, self._close))
            self._held = 0
            if len(self._pending) >= _MAX_PIPELINE and transport is not None:
                transport.pause_reading()
            if len(self._pending) > _MOST_PENDING:
                self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "wait for replies\n")
        else:
            server.held -= self._held
            self._held = 0
            self._busy = True
            self._answer(call)

    # --- requests and replies

    def _is_known(self, call: HttpRequest) -> bool:
        """Anyone may ask after our health; a certificate that is there has been verified."""
        if call.method in ("GET", "HEAD"):
            return True
        return self._transport is not None and bool(self._transport.get_extra_info("peercert"))

    def _answer(self, call: HttpRequest) -> None:
        """At once, where the handler can; else by a task."""
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
                # What follows the head would be read as the next answer.
                await made.pieces.aclose()
                made = HttpResponse(made.status, b"", made.content_type, headers=made.headers)
                self._write(made, close=close, has_body=False)
            else:
                await self._write_pieces(made)
            self._busy = False
        else:
            self._busy = False
            self._write(made, close=close or made.close, has_body=call.method != "HEAD")
        self._since = time.monotonic()
        if self._pending and not self._is_full:
            self._go_on()

    def _go_on(self) -> None:
        """The next request that has come meanwhile."""
        if not self._pending or self._closing or self._transport is None:
            return
        following, close = self._pending.popleft()
        self._server.held -= len(following.body)
        if len(self._pending) < _MAX_PIPELINE:
            self._transport.resume_reading()
        self._busy = True
        self._task = self._loop.create_task(self._run(following, close=close))

    async def _write_pieces(self, stream: StreamedResponse) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._streaming = True
        self._room = asyncio.Event()
        self._room.set()
        transport.write(
            b"%btransfer-encoding: chunked\r\n%b\r\n"
            % (begin_head(stream.status, stream.content_type), write_headers(stream.headers))
        )
        try:
            async with contextlib.aclosing(stream.pieces):
                async for piece in stream.pieces:
                    await self._wait_for_room(self._room)
                    if piece:
                        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            transport.write(b"0\r\n\r\n")
        except TimeoutError:
            log.info("a client takes nothing of its reply")
            transport.abort()
        except Exception:
            # The status is long gone: all that is left to say is that this is not the end.
            log.exception("reply broke off")
            transport.abort()
        finally:
            self._streaming = False

    async def _wait_for_room(self, room: asyncio.Event) -> None:
        if not room.is_set():
            async with asyncio.timeout(_STALL_SECONDS):
                await room.wait()

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
            # A client that is still sending would not read our words if we hung up on it.
            self._loop.call_later(_LINGER_SECONDS, transport.close)
        else:
            transport.close()

    def _refuse_head(self) -> None:
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head is too large\n")

    def _refuse_size(self) -> None:
        text = f"a body may have {self._server.max_read} bytes at most\n"
        self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Say why, and hear no more of this client."""
        if self._closing:
            return
        self._write(HttpResponse(status, text.encode()), close=True, lingers=True)

    # --- places

    @property
    def is_unasked(self) -> bool:
        """Has it sent no whole request so far?"""
        return not self._asked

    @property
    def is_idle(self) -> bool:
        """Does nobody wait for an answer, nor send another request than the first?"""
        return not self._asked or not (self._busy or self._pending or self._within)

    @property
    def is_busy(self) -> bool:
        """Is a request being answered? Who has only begun another one may take for ever."""
        return self._busy

    def rank(self) -> tuple[bool, float]:
        """Whose place is taken first: of those that asked nothing, then of the longest idle."""
        return self._asked, self._since

    # --- ends

    def check_time(self, now: float) -> None:
        """Close what is idle, or slower than any honest client."""
        if self._busy or self._transport is None:
            return
        if self._is_full or self._transport.is_closing():
            self._check_taking(now, self._transport)
        elif now - self._since > (_REQUEST_SECONDS if self._within else _IDLE_SECONDS):
            self._transport.close()

    def _check_taking(self, now: float, transport: asyncio.Transport) -> None:
        """A client that takes none of a reply for long is not waited for, nor before the end."""
        left = transport.get_write_buffer_size()
        if left != self._unsent:
            self._unsent, self._since = left, now
        elif now - self._since > _STALL_SECONDS:
            transport.abort()

    def close_when_idle(self, now: float) -> None:
        """Close now, or with the last reply; who asks again and again gets a last answer."""
        if self._busy or self._pending or self._within or self._transport is None:
            return
        if now - self._since > _LAST_CALL_SECONDS and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close whatever happens."""
        if self._transport is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._transport.abort()
