"""HTTP on the wire: what clients may send, what they get, and how connections end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from lictor import http
from lictor.http import Call, Gate, Reply

MAX_BODY = 1000


async def _echo(call: Call) -> Reply:
    if call.path == "/slow":
        await asyncio.sleep(0.2)
    if call.path == "/broken":
        raise TypeError("oops")
    text = f"{call.method} {call.path} {call.query.decode()} {call.content_type.decode()} "
    return Reply(HTTPStatus.OK, text.encode() + call.body)


@asynccontextmanager
async def _serve(
    handler: Callable[[Call], Awaitable[Reply]] = _echo, **more: int
) -> AsyncIterator[tuple[Gate, int]]:
    gate = Gate(handler, max_body=MAX_BODY, **more)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(gate, "127.0.0.1", 0)
    try:
        yield gate, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await gate.drain(1)


async def _talk(port: int, *chunks: bytes, pause: float = 0.01) -> bytes:
    """Send pieces, and read until the other side closes or has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for chunk in chunks:
        writer.write(chunk)
        await writer.drain()
        await asyncio.sleep(pause)
    answer = b""
    try:
        async with asyncio.timeout(0.5):
            while data := await reader.read(65536):
                answer += data
    except (TimeoutError, ConnectionResetError):
        pass
    writer.close()
    return answer


def _post(body: bytes, path: bytes = b"/a?x=1", *more: bytes) -> bytes:
    lines = [
        b"POST " + path + b" HTTP/1.1",
        b"host: here",
        b"content-type: application/json",
        b"content-length: " + str(len(body)).encode(),
        *more,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CASES = [
    ("plain", (_post(b"hello"),), (b"200 OK", b"POST /a x=1 application/json hello")),
    ("in pieces", (_post(b"hello")[:9], _post(b"hello")[9:60], _post(b"hello")[60:]), (b"hello",)),
    ("no body", (b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n",), (b"200 OK", b"GET /health")),
    (
        "chunked",
        (
            b"POST /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        ),
        (b"200 OK", b"abcde"),
    ),
    ("pipelined", (_post(b"one") + _post(b"two"),), (b"one", b"two")),
    ("slow first", (_post(b"one", b"/slow") + _post(b"two"),), (b"one", b"two")),
    (
        "asks before sending",
        (_post(b"hello", b"/a", b"expect: 100-continue"),),
        (b"100 Continue", b"hello"),
    ),
    ("too long", (_post(b"x" * (MAX_BODY + 1)),), (b"413", b"close", b"1000 bytes at most")),
    (
        "too long in chunks",
        (
            b"POST /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"64\r\n" + b"x" * 100 + b"\r\n",
        )
        + (b"64\r\n" + b"x" * 100 + b"\r\n",) * 11,
        (b"413",),
    ),
    ("long head", (b"GET / HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n",), (b"431",)),
    ("not HTTP", (b"\x16\x03\x01 hello\r\n\r\n",), (b"400",)),
    ("upgrade", (_post(b"", b"/", b"connection: upgrade", b"upgrade: websocket"),), (b"HTTP/1.1",)),
    ("handler breaks", (_post(b"", b"/broken"),), (b"500", b"should not have happened")),
    ("HTTP/1.0", (b"GET /x HTTP/1.0\r\n\r\n",), (b"200 OK", b"connection: close")),
    ("bad path", (b"GET nonsense HTTP/1.1\r\nhost: h\r\n\r\n",), (b"400",)),
]  # fmt: skip


@pytest.mark.parametrize(("chunks", "parts"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_requests(chunks: tuple[bytes, ...], parts: tuple[bytes, ...]) -> None:
    async def run() -> bytes:
        async with _serve() as (_, port):
            return await _talk(port, *chunks)

    answer = asyncio.run(run())
    at = 0
    for part in parts:
        assert part in answer[at:], (part, answer)
        at = answer.index(part, at)


def test_heads_have_no_body() -> None:
    async def run() -> bytes:
        async with _serve() as (_, port):
            return await _talk(port, b"HEAD /x HTTP/1.1\r\nhost: h\r\n\r\n")

    answer = asyncio.run(run())
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length: 10" in answer


def test_requests_in_flight_are_answered_at_the_end() -> None:
    async def run() -> tuple[bytes, float]:
        async with _serve() as (gate, port):
            talk = asyncio.create_task(_talk(port, _post(b"hello", b"/slow")))
            await asyncio.sleep(0.05)
            began = asyncio.get_running_loop().time()
            await gate.drain(5)
            return await talk, asyncio.get_running_loop().time() - began

    answer, seconds = asyncio.run(run())
    assert b"hello" in answer
    assert b"connection: close" in answer
    assert seconds < 2


def test_idle_connections_end_at_once() -> None:
    async def run() -> float:
        async with _serve() as (gate, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.05)
            began = asyncio.get_running_loop().time()
            await gate.drain(5)
            writer.close()
            return asyncio.get_running_loop().time() - began

    assert asyncio.run(run()) < 1


def test_slow_clients_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(http, "_SWEEP_SECONDS", 0.05)

    async def run() -> bytes:
        async with _serve() as (gate, port):
            sweeping = asyncio.create_task(gate.sweep())
            answer = await _talk(port, _post(b"hello")[:30], pause=0.3)
            sweeping.cancel()
            return answer

    assert asyncio.run(run()) == b""


def test_too_many_connections_are_closed() -> None:
    async def run() -> tuple[bytes, bytes]:
        async with _serve(max_connections=1) as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.02)
            refused = await _talk(port, _post(b"hello"))
            writer.close()
            await asyncio.sleep(0.05)
            return refused, await _talk(port, _post(b"hello"))

    refused, served = asyncio.run(run())
    assert refused == b""
    assert b"hello" in served
