"""Strangers at our port: who keeps a place, what a head may cost, and whose bytes a request has."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus

import pytest
import uvloop

from lictor.http.listener import open_port
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.http.server import HttpServer, serve_port

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
UPGRADE = b"GET /b HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n"


def answer(call: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
    """What came, at once or a moment later."""
    reply = HttpResponse(HTTPStatus.OK, call.path.encode() + sha256(call.body).digest())
    return answer_later(reply) if call.path.endswith("/later") else reply


async def answer_later(reply: HttpResponse) -> HttpResponse:
    await asyncio.sleep(0)
    return reply


@asynccontextmanager
async def serve(places: int = 4096) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(answer, max_body=1_000_000, max_connections=places)
    bound = open_port("127.0.0.1", 0)
    serving = asyncio.create_task(serve_port(bound, server))
    try:
        yield server, bound.getsockname()[1]
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        bound.close()


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int, sent: bytes, address: str = "127.0.0.1") -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(sent)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def ask(port: int, sent: bytes = GET) -> bytes:
    """All that is answered; nothing where there is no place."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [GET + b"P", GET + UPGRADE])
def test_a_request_that_is_only_begun_keeps_no_place(sent: bytes) -> None:
    async def run() -> bytes:
        async with serve(places=8) as (_, port):
            held = [await connect(port, sent) for _ in range(8)]
            answered = await ask(port)
            for _, writer in held:
                writer.close()
            return answered

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200")


def test_whoever_has_most_places_gives_away_theirs_first() -> None:
    async def run() -> bytes:
        async with serve(places=8) as (_, port):
            honest = await connect(port, GET)
            held = [await connect(port, GET + b"P", "127.0.0.2") for _ in range(20)]
            reader, writer = honest
            writer.write(GET)
            answered = await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200"), 60)
            for _, each in (honest, *held):
                each.close()
            return answered

    assert b"HTTP/1.1 200" in asyncio.run(run())


def test_what_asks_for_another_protocol_is_answered_in_its_turn() -> None:
    async def run() -> bytes:
        async with serve() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET.replace(b"/a", b"/a/later") + UPGRADE + b"no HTTP any more")
            answered = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            return answered

    answered = asyncio.run(run())
    assert answered.count(b"HTTP/1.1 200") == 2
    assert b"/b" in answered


MANY = b"a:\r\n" * 4000
CHUNKED = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"GET /a HTTP/1.1\r\n" + MANY + b"\r\n", b"431"), (CHUNKED + MANY + b"\r\n", b"413")],
    ids=["head", "end"],
)
def test_headers_cost_more_than_their_bytes(sent: bytes, status: bytes) -> None:
    async def run() -> bytes:
        async with serve() as (_, port):
            return await ask(port, sent)

    assert asyncio.run(run()).startswith(b"HTTP/1.1 " + status)


# --- whose bytes a request has


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    """In pieces of any size."""
    pieces = []
    while data:
        size = rng.choice((1, 7, 100, 4096, 70_000))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


async def exchange(port: int, seed: int) -> None:
    """Send requests in pieces, some before the answer to those before; compare every answer."""
    rng = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    expected: list[bytes] = []
    for number in range(12):
        body = rng.randbytes(rng.choice((0, 10, 3_000, 90_000)))
        path = f"/{seed}/{number}{rng.choice(('', '/later'))}".encode()
        head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path, len(body))
        expected.append(path + sha256(body).digest())
        for piece in cut(rng, head + body):
            writer.write(piece)
            await asyncio.sleep(0)
        if rng.random() < 0.6:
            await compare(reader, expected)
    await compare(reader, expected)
    writer.close()


async def compare(reader: asyncio.StreamReader, expected: list[bytes]) -> None:
    while expected:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert head.startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(size) == expected.pop(0)


async def exchange_many(first: int) -> None:
    async with serve() as (server, port):
        await asyncio.gather(*(exchange(port, seed) for seed in range(first, first + 25)))
        assert server.held == 0


def test_no_request_has_bytes_of_another() -> None:
    """Connections of one server share a buffer; two servers, on two threads, do not."""
    failed: list[BaseException] = []

    def run(first: int) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(exchange_many(first))
        except BaseException as error:  # noqa: BLE001  (told below)
            failed.append(error)

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    asyncio.run(exchange_many(2000))
