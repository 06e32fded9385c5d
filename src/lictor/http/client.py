"""HTTP/1.1 to one server over connections that stay open: a twentieth of a general client's work.

Whoever scans ten thousand objects sends ten thousand reports; there the price of a request counts.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode, urlsplit

import msgspec

# All that may stand in a path or query as it is; everything else, line ends above all, is encoded.
_SAFE = "/?:@!$&'()*+,;=~%[]-._"
# A connection that was silent for longer may be closed by someone in between without our knowing.
_FRESH = 15.0
_MAX_HEAD = 64 * 1024
_MAX_BODY = 512 * 1024 * 1024
_WITHOUT_BODY = frozenset((204, 304))


class ClientResponse(msgspec.Struct, frozen=True):
    """What the server answered."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class HttpClientError(ConnectionError):
    """The connection broke, or what came is no HTTP."""


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server is, and what stands before its paths."""

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
        self._idle: list[_ClientConnection] = []
        self._busy: set[_ClientConnection] = set()
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
        """One request and its answer; OSError where there is none within `limit` seconds a step."""
        message = self._write_head(method, path, params, headers, content) + (content or b"")
        async with self._room:
            line = await self._take(limit)
            try:
                reply = await line.exchange(message, limit)
            except BaseException:
                # Half an answer may be on its way: nobody can use this line again.
                self._busy.discard(line)
                line.close()
                raise
            self._give_back(line)
            return reply

    async def close(self) -> None:
        """End all connections, also those in use."""
        self._is_closed = True
        for line in (*self._idle, *self._busy):
            line.close()
        self._idle.clear()
        # The transports let go of their sockets in the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _take(self, limit: float) -> "_ClientConnection":
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

    async def _open(self) -> "_ClientConnection":
        target = self._target
        reader, writer = await asyncio.open_connection(
            target.host,
            target.port,
            limit=_MAX_HEAD,
            ssl=self._context if target.is_secure else None,
            server_hostname=(self._server_name or target.host) if target.is_secure else None,
        )
        self._tune(writer.get_extra_info("socket"))
        return _ClientConnection(reader, writer)

    def _tune(self, channel: socket.socket | None) -> None:
        if channel is None:
            return
        for option in self._socket_options:
            with contextlib.suppress(OSError):
                channel.setsockopt(*option)

    def _give_back(self, line: "_ClientConnection") -> None:
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
        where = self._target.prefix + quote(path, safe=_SAFE)
        if params:
            where += ("&" if "?" in where else "?") + urlencode(params)
        lines = [f"{method} {where} HTTP/1.1", f"host: {self._target.host_header}"]
        lines += [f"{name}: {_check(value)}" for name, value in headers]
        if content is not None or method not in ("GET", "HEAD"):
            lines.append(f"content-length: {len(content or b'')}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", errors="replace")


def _check(value: str) -> str:
    if "\r" in value or "\n" in value:
        raise HttpClientError("a header with a line end in it")
    return value


class _ClientConnection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_reusable = True
        self.since = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Can it still be used, as far as we know?"""
        closed = self._reader.at_eof() or self._writer.is_closing()
        return not closed and time.monotonic() - self.since < _FRESH

    def close(self) -> None:
        # At once: whatever is left to be said on this line, nobody waits for it.
        self._writer.transport.abort()

    async def exchange(self, message: bytes, limit: float) -> ClientResponse:
        """Send a request and read its answer."""
        try:
            async with asyncio.timeout(limit):
                self._writer.write(message)
                await self._writer.drain()
            status, headers = await self._read_head(limit)
            content = await self._read_body(status, headers, limit)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise HttpClientError(f"the connection broke: {error}") from error
        if headers.get("connection", "").lower() == "close":
            self.is_reusable = False
        return ClientResponse(status, headers, content)

    async def _read_head(self, limit: float) -> tuple[int, dict[str, str]]:
        while True:
            async with asyncio.timeout(limit):
                head = await self._reader.readuntil(b"\r\n\r\n")
            first, *rest = head.decode("latin-1").split("\r\n")
            version, code, *_ = first.split(" ", 2)
            if not version.startswith("HTTP/1."):
                raise HttpClientError("the server does not speak HTTP/1.1")
            if version == "HTTP/1.0":
                self.is_reusable = False
            # 1xx: the answer proper is still to come.
            if int(code) >= 200:
                pairs = (line.partition(":") for line in rest if line)
                return int(code), {name.lower(): text.strip() for name, _, text in pairs}

    async def _read_body(self, status: int, headers: Mapping[str, str], limit: float) -> bytes:
        if status in _WITHOUT_BODY:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._read_chunks(limit)
        if "content-length" in headers:
            length = int(headers["content-length"])
            return await self._read_exactly(length, limit)
        self.is_reusable = False
        return await self._read_rest(limit)

    async def _read_chunks(self, limit: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            async with asyncio.timeout(limit):
                head = await self._reader.readline()
            length = int(head.split(b";")[0], 16)
            size += length
            if size > _MAX_BODY:
                raise HttpClientError("an answer of more than 512 MiB")
            if not length:
                break
            chunks.append((await self._read_exactly(length + 2, limit))[:-2])
        # Trailers, which nobody wants, up to an empty line.
        async with asyncio.timeout(limit):
            while (await self._reader.readline()).strip():
                pass
        return b"".join(chunks)

    async def _read_rest(self, limit: float) -> bytes:
        """All until the server hangs up."""
        pieces: list[bytes] = []
        size = 0
        while True:
            async with asyncio.timeout(limit):
                piece = await self._reader.read(_MAX_HEAD)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_BODY:
                raise HttpClientError("an answer of more than 512 MiB")

    async def _read_exactly(self, length: int, limit: float) -> bytes:
        if not 0 <= length <= _MAX_BODY:
            raise HttpClientError(f"an answer of {length} bytes")
        async with asyncio.timeout(limit):
            return await self._reader.readexactly(length)
