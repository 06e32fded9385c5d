"""Requests on connections that stay open: what goes out, what comes back, what breaks."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lictor.http.client import ClientResponse, HttpClient, HttpClientError

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _serve(answer: Answer, **options: int) -> AsyncIterator[tuple[HttpClient, list[int]]]:
    """A server that answers each request so; the list has a number for each connection."""
    connections: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int((head.lower().partition(b"content-length:")[2] or b"0").split()[0])
                await answer(head + await reader.readexactly(length), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/base/"
    wire = HttpClient(url, ssl.create_default_context(), connections=options.get("connections", 2))
    try:
        yield wire, connections
    finally:
        await wire.close()
        server.close()


async def _send(wire: HttpClient, method: str = "GET", **more: object) -> ClientResponse:
    content = more.get("content")
    assert content is None or isinstance(content, bytes)
    return await wire.send(
        method, "/things", content=content, params={"a": "x y"}, headers=[("accept", "*/*")],
        limit=2,
    )  # fmt: skip


def _say(text: bytes) -> Answer:
    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        if b"content-length" not in text and b"chunked" not in text:
            writer.close()

    return answer


@pytest.mark.parametrize(
    ("text", "status", "content"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", 200, b"abc", id="length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx: chunked\r\n\r\n"
            b"2\r\nab\r\n1;more=1\r\nc\r\n0\r\nend: yes\r\n\r\n",
            200,
            b"abc",
            id="pieces",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000, 200, b"x" * 300_000, id="until the end"
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
            404,
            b"",
            id="an answer before the answer",
        ),
    ],
)
def test_answers(text: bytes, status: int, content: bytes) -> None:
    async def run() -> ClientResponse:
        async with _serve(_say(text)) as (wire, _):
            return await _send(wire)

    reply = asyncio.run(run())
    assert (reply.status_code, reply.content) == (status, content)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"SSH-2.0-x\r\n\r\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", id="no length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n", id="too long"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: content-length\r\nchunked: 1", id="cut off"),
    ],
)
def test_what_is_no_answer_is_an_error_of_the_connection(text: bytes) -> None:
    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        writer.close()

    async def run() -> None:
        async with _serve(answer) as (wire, _):
            await _send(wire)

    with pytest.raises(HttpClientError):
        asyncio.run(run())


def test_what_is_sent() -> None:
    seen: list[bytes] = []

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async def run() -> None:
        async with _serve(answer) as (wire, connections):
            await _send(wire)
            await _send(wire, "POST", content=b"{}")
            assert connections == [0]

    asyncio.run(run())
    assert seen[0].startswith(b"GET /base/things?a=x+y HTTP/1.1\r\nhost: 127.0.0.1:")
    assert seen[1].endswith(b"content-length: 2\r\n\r\n{}")


def test_a_line_end_in_a_header_is_never_sent() -> None:
    async def run() -> None:
        async with _serve(_say(b"")) as (wire, _):
            await wire.send(
                "GET", "/", content=None, params=None, headers=[("a", "b\r\nc: d")], limit=1
            )

    with pytest.raises(ConnectionError, match="line end"):
        asyncio.run(run())


def test_no_more_connections_than_allowed() -> None:
    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async def run() -> int:
        async with _serve(answer, connections=3) as (wire, connections):
            await asyncio.gather(*(_send(wire) for _ in range(20)))
            return len(connections)

    assert asyncio.run(run()) <= 3


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def answer(_: bytes, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async def run() -> None:
        async with _serve(answer) as (wire, _):
            await wire.send("GET", "/", content=None, params=None, headers=[], limit=0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
