"""HTTP/1.1 client with persistent connections: a twentieth of the cost of a general client.

A scan of ten thousand objects sends ten thousand reports; the cost of a request matters there.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode, urlsplit

import httptools
import msgspec

from lictor.core.raw import Json
from lictor.http.addresses import Destination, open_stream

# Characters allowed in a path or query; all others, line ends above all, are encoded.
_SAFE = "/?:@!$&'()*+,;=~%[]-._"
# A connection that was idle for longer may have been closed by a proxy without notice.
_FRESH = 15.0
_MAX_HEAD = 64 * 1024
_MAX_BODY = 512 * 1024 * 1024
_PIECE = 256 * 1024
_LENGTHS = frozenset(("content-length", "transfer-encoding"))


class ClientResponse(msgspec.Struct, frozen=True):
    """A response of the server."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class HttpClientError(ConnectionError):
    """The connection broke, or the response is not HTTP."""


class AnswerTooLargeError(HttpClientError):
    """The response is larger than the caller's limit."""


class ServerAddress(msgspec.Struct, frozen=True):
    """The address of a server, and the prefix of its paths."""

    host: str
    port: int
    prefix: str
    host_header: str
    is_secure: bool

    @classmethod
    def of(cls, url: str) -> "ServerAddress":
        parts = urlsplit(url)
        secure = parts.scheme != "http"
        host = parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        return cls(host, port, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2], secure)


class HttpClient:
    """Connections to one server, each used by one request at a time. Belongs to one event loop."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        *,
        connections: int,
        server_name: str = "",
        socket_options: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        self._target = ServerAddress.of(url)
        self._context = context
        self._server_name = server_name
        self._socket_options = tuple(socket_options)
        self._room = asyncio.Semaphore(connections)
        self._idle: list[ClientConnection] = []
        self._busy: set[ClientConnection] = set()
        self._is_closed = False

    async def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None,
        params: Mapping[str, str | int] | None,
        headers: Iterable[tuple[str, str]],
        limit: float,
    ) -> ClientResponse:
        """Send a request; raises OSError without a response within `limit` seconds per step."""
        message = self._write_head(method, path, params, headers, content) + (content or b"")
        async with self._room:
            line = await self._take(limit)
            try:
                reply = await line.exchange(message, limit)
            except BaseException:
                # Part of a response may be in flight: this connection cannot be reused.
                self._busy.discard(line)
                line.close()
                raise
            self._give_back(line)
            return reply

    async def close(self) -> None:
        """Close all connections, including those in use."""
        self._is_closed = True
        for line in (*self._idle, *self._busy):
            line.close()
        self._idle.clear()
        # The transports close their sockets in the next iterations of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _take(self, limit: float) -> "ClientConnection":
        while self._idle:
            line = self._idle.pop()
            if line.is_fresh:
                self._busy.add(line)
                return line
            line.close()
        async with asyncio.timeout(limit):
            line = await self._open()
        self._busy.add(line)
        return line

    async def _open(self) -> "ClientConnection":
        target = self._target
        context = self._context if target.is_secure else None
        reader, writer = await open_stream(
            Destination(target.host, target.port, context, self._server_name)
        )
        self._tune(writer.get_extra_info("socket"))
        return ClientConnection(reader, writer)

    def _tune(self, channel: socket.socket | None) -> None:
        if channel is None:
            return
        for option in self._socket_options:
            with contextlib.suppress(OSError):
                channel.setsockopt(*option)

    def _give_back(self, line: "ClientConnection") -> None:
        self._busy.discard(line)
        if line.is_reusable and not self._is_closed:
            line.since = time.monotonic()
            self._idle.append(line)
        else:
            line.close()

    def _write_head(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        headers: Iterable[tuple[str, str]],
        content: bytes | None,
    ) -> bytes:
        where = self._target.prefix + path
        if params:
            where += ("&" if "?" in where else "?") + urlencode(params)
        named = [("host", self._target.host_header), *headers]
        if content is not None or method not in ("GET", "HEAD"):
            named.append(("content-length", str(len(content or b""))))
        return write_head(method, where, named)


def write_head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a request; raises HttpClientError for a header with a line end."""
    lines = [f"{method} {quote(target, safe=_SAFE)} HTTP/1.1"]
    lines += [f"{name}: {_check(value)}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", errors="replace")


def _check(value: str) -> str:
    if "\r" in value or "\n" in value:
        raise HttpClientError("a header contains a line end")
    return value


class ClientConnection:
    """One connection. The parser calls its `on_...` methods for each response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser: Json = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._length = 0
        self._most_bytes = _MAX_BODY
        self._has_head = self._is_complete = False
        self.is_reusable = True
        self.since = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether it can probably still be used."""
        closed = self._reader.at_eof() or self._writer.is_closing()
        return not closed and time.monotonic() - self.since < _FRESH

    def close(self) -> None:
        # At once: no caller waits for anything more on this connection.
        self._writer.transport.abort()
        # The parser and the connection refer to each other.
        self._parser = None

    async def exchange(
        self, message: bytes, limit: float, most_bytes: int = _MAX_BODY
    ) -> ClientResponse:
        """Send a request and read the response; raises HttpClientError if its body is too large."""
        self._most_bytes = most_bytes
        async with asyncio.timeout(limit):
            self._writer.write(message)
            await self._writer.drain()
        self._is_complete = False
        while not self._is_complete:
            async with asyncio.timeout(limit):
                data = await self._reader.read(_PIECE)
            try:
                self._feed(data)
            except httptools.HttpParserError as error:
                if isinstance(error.__context__, AnswerTooLargeError):
                    raise error.__context__ from None
                raise HttpClientError(f"the connection broke: {error}") from error
        status = self._parser.get_status_code()
        return ClientResponse(status, self._headers, b"".join(self._body))

    def _feed(self, data: bytes) -> None:
        if data:
            self._parser.feed_data(data)
        elif self._has_head and not self._headers.keys() & _LENGTHS:
            # The body ends with the connection.
            self._is_complete, self.is_reusable = True, False
        else:
            raise HttpClientError("the connection broke: the server closed it")

    def on_message_begin(self) -> None:
        self._headers, self._body, self._length, self._has_head = {}, [], 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value), _MAX_HEAD)
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        # A header may occur several times: registries send their challenges so.
        before = self._headers.get(key)
        self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        self._length, self._has_head = 0, True

    def on_body(self, body: bytes) -> None:
        self._grow(len(body), self._most_bytes)
        self._body.append(body)

    def on_message_complete(self) -> None:
        # 1xx: the final response follows.
        self._is_complete = self._parser.get_status_code() >= 200
        self.is_reusable = self._parser.should_keep_alive()

    def _grow(self, size: int, most: int) -> None:
        self._length += size
        if self._length > most:
            raise AnswerTooLargeError(f"the response has more than {most} bytes")
