"""HTTP requests of the server, the responses of handlers, and how these are written."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from functools import lru_cache
from http import HTTPStatus

import msgspec

from lictor.core.raw import Json

log = logging.getLogger(__name__)

TEXT = b"text/plain; charset=utf-8"
JSON = b"application/json; charset=utf-8"
# A client that reads nothing of a response for this long is disconnected.
STALL_SECONDS = 30.0


class HttpRequest(msgspec.Struct, frozen=True):
    """A request, whole."""

    method: str
    path: str
    query: bytes
    content_type: bytes
    body: bytes
    # The headers that the server keeps, by their names in lower case.
    headers: dict[bytes, list[bytes]] = {}
    # The subject of the client's certificate, if it sent one.
    certificate: Json = None
    # The body was too large: this is its start.
    is_cut: bool = False
    # Of the client; empty if it has none.
    address: str = ""


class HttpResponse(msgspec.Struct, frozen=True):
    """A response; `close`: the connection cannot be reused."""

    status: HTTPStatus
    body: bytes = b""
    content_type: bytes = TEXT
    close: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()


class StreamedResponse(msgspec.Struct, frozen=True):
    """A streamed response; it ends with the iterator, or when the client disconnects."""

    pieces: AsyncGenerator[bytes, None]
    status: HTTPStatus = HTTPStatus.OK
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


# Directly, if nothing has to be awaited: that saves a task and an iteration of the loop.
Handler = Callable[[HttpRequest], Awaitable[HttpResponse | StreamedResponse] | HttpResponse]


@lru_cache(maxsize=64)
def begin_head(status: HTTPStatus, content_type: bytes) -> bytes:
    """The first lines of a response, cached: few different ones are used."""
    head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\n"
    return head % (status, status.phrase.encode(), content_type)


def write_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Further lines of a head, each with its end."""
    return b"".join(b"%b: %b\r\n" % each for each in headers)


async def write_pieces(
    transport: asyncio.Transport, stream: StreamedResponse, room: asyncio.Event
) -> None:
    """Send a response in chunks; `room` is cleared while the client does not read."""
    transport.write(
        b"%btransfer-encoding: chunked\r\n%b\r\n"
        % (begin_head(stream.status, stream.content_type), write_headers(stream.headers))
    )
    try:
        async with contextlib.aclosing(stream.pieces):
            async for piece in stream.pieces:
                if not room.is_set():
                    async with asyncio.timeout(STALL_SECONDS):
                        await room.wait()
                if piece:
                    transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        transport.write(b"0\r\n\r\n")
    except TimeoutError:
        log.info("client does not read its response")
        transport.abort()
    except Exception:
        # The status was sent already: the missing final chunk shows that the response is
        # incomplete.
        log.exception("streamed response failed")
        transport.abort()
