"""HTTP on the wire: what clients may send, what they get, and how connections end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from lictor.core.raw import Json
from lictor.http import connection_state, messages, server
from lictor.http.messages import HttpRequest, HttpResponse, StreamedResponse
from lictor.http.server import HttpServer

MAX_BODY = 1000


async def _echo(call: HttpRequest) -> HttpResponse:
    if call.path == "/slow":
        await asyncio.sleep(0.2)
    if call.path == "/broken":
        raise TypeError("oops")
    text = f"{call.method} {call.path} {call.query.decode()} {call.content_type.decode()} "
    return HttpResponse(HTTPStatus.OK, text.encode() + call.body)


@asynccontextmanager
async def _serve(
    handler: Callable[[HttpRequest], Awaitable[HttpResponse | StreamedResponse]] = _echo,
    **more: Json,
) -> AsyncIterator[tuple[HttpServer, int]]:
    gate = HttpServer(handler, max_body=MAX_BODY, **more)
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
    (
        "upgrade",
        (_post(b"", b"/", b"connection: upgrade", b"upgrade: websocket"), b"\x00other"),
        (b"200 OK", b"connection: close"),
    ),
    ("handler breaks", (_post(b"", b"/broken"),), (b"500", b"internal error")),
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
    assert seconds < 4.5


def test_idle_connections_end_at_once() -> None:
    async def run() -> float:
        async with _serve() as (gate, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.05)
            began = asyncio.get_running_loop().time()
            await gate.drain(5)
            writer.close()
            return asyncio.get_running_loop().time() - began

    assert asyncio.run(run()) < 4.5


def test_slow_clients_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_state, "_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(server, "_SWEEP_SECONDS", 0.05)

    async def run() -> bytes:
        async with _serve() as (gate, port):
            sweeping = asyncio.create_task(gate.sweep())
            answer = await _talk(port, _post(b"hello")[:30], pause=0.3)
            sweeping.cancel()
            return answer

    assert asyncio.run(run()) == b""


async def _connect(port: int, *sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that stays open; where it asks something, after the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in sent:
        writer.write(request)
        await reader.readuntil(b"hello")
    await asyncio.sleep(0.02)
    return reader, writer


async def _is_open(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.2):
            return await reader.read(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_too_many_connections_are_closed() -> None:
    """Who has asked nothing goes first, then who is idle for longest; never one that waits."""

    async def run() -> list[bool]:
        async with _serve(max_connections=3) as (_, port):
            asked = [await _connect(port, _post(b"hello")) for _ in range(2)]
            silent = await _connect(port)
            asked.append(await _connect(port, _post(b"hello")))
            first = await _is_open(silent[0])
            asked.append(await _connect(port, _post(b"hello")))
            rest = [await _is_open(reader) for reader, _ in asked]
            for _, writer in (silent, *asked):
                writer.close()
            return [first, *rest]

    assert asyncio.run(run()) == [False, False, True, True, True]


def test_connections_in_use_keep_their_places() -> None:
    async def run() -> tuple[bytes, bytes]:
        async with _serve(max_connections=1) as (_, port):
            busy = asyncio.create_task(_talk(port, _post(b"hello", b"/slow")))
            await asyncio.sleep(0.05)
            refused = await _talk(port, _post(b"hello"))
            return refused, await busy

    refused, served = asyncio.run(run())
    assert refused == b""
    assert b"hello" in served


def test_bodies_on_their_way_have_a_limit_together() -> None:
    """The largest is cut; who sends little is not harmed."""
    cut: dict[str, bool] = {}

    async def note(call: HttpRequest) -> HttpResponse:
        cut[call.path] = call.is_cut
        return HttpResponse(HTTPStatus.OK, b"hello")

    async def run() -> int:
        async with _serve(note) as (gate, port):
            gate.max_body = gate.max_read = 1_000_000
            gate.max_held = 300_000
            large = _post(b"x" * 250_000, b"/large")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(large[:-1])
            await asyncio.sleep(0.1)
            for path, size in ((b"/medium", 100_000), (b"/small", 10)):
                assert b"hello" in await _talk(port, _post(b"x" * size, path))
            writer.write(large[-1:])
            await reader.readuntil(b"hello")
            writer.close()
            # Who goes in the middle of a body is forgotten.
            _, gone = await asyncio.open_connection("127.0.0.1", port)
            gone.write(large[:-1])
            await asyncio.sleep(0.1)
            gone.close()
            await asyncio.sleep(0.1)
            return gate.held

    assert asyncio.run(run()) == 0
    assert cut == {"/medium": False, "/small": False, "/large": True}


def test_an_address_gets_a_share_of_the_places_until_it_asks() -> None:
    async def run() -> tuple[list[bool], int]:
        async with _serve(max_connections=4) as (gate, port):
            silent = [await _connect(port) for _ in range(5)]
            found = [await _is_open(reader) for reader, _ in silent]
            for _, writer in silent:
                writer.close()
            return found, gate.evicted

    assert asyncio.run(run()) == ([False, False, False, True, True], 3)


class _Source:
    """Pieces of a reply, and what became of those who wanted them."""

    def __init__(self, *pieces: bytes, then: Exception | None = None, waits: bool = False) -> None:
        self._pieces = pieces
        self._then = then
        self._waits = waits
        self.closed = asyncio.Event()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            for piece in self._pieces:
                yield piece
                await asyncio.sleep(0)
            if self._then is not None:
                raise self._then
            if self._waits:
                await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def answer(self, call: HttpRequest) -> HttpResponse | StreamedResponse:
        if call.path != "/stream":
            return await _echo(call)
        return StreamedResponse(self.pieces())


_STREAM = b"GET /stream HTTP/1.1\r\nhost: h\r\n\r\n"


def test_replies_come_in_pieces() -> None:
    source = _Source(b"one\n", b"", b"two\n")

    async def run() -> bytes:
        async with _serve(source.answer) as (_, port):
            return await _talk(port, _STREAM + _post(b"after"))

    answer = asyncio.run(run())
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    # An empty piece would have ended the reply; the connection is of use after it.
    assert rest.startswith(b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\nHTTP/1.1 200 OK")
    assert rest.endswith(b"after")
    assert source.closed.is_set()


def test_a_head_has_no_pieces() -> None:
    source = _Source(b"one\n", waits=True)

    async def run() -> bytes:
        async with _serve(source.answer) as (_, port):
            return await _talk(port, _STREAM.replace(b"GET", b"HEAD") + _post(b"after"))

    head, _, rest = asyncio.run(run()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert rest.startswith(b"HTTP/1.1 200 OK")
    assert rest.endswith(b"after")


def test_a_reply_that_breaks_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    source = _Source(b"one\n", then=TypeError("oops"))

    async def run() -> bytes:
        async with _serve(source.answer) as (_, port):
            return await _talk(port, _STREAM)

    answer = asyncio.run(run())
    assert b"0\r\n\r\n" not in answer
    assert source.closed.is_set()
    assert "streamed response failed" in caplog.text


def test_pieces_end_when_the_client_goes() -> None:
    source = _Source(b"one\n", waits=True)

    async def run() -> None:
        async with _serve(source.answer) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_STREAM)
            await reader.readuntil(b"one\n")
            assert not source.closed.is_set()
            writer.close()
            await asyncio.wait_for(source.closed.wait(), 60)

    asyncio.run(run())


def test_clients_that_take_nothing_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "STALL_SECONDS", 0.1)
    source = _Source(*[b"x" * 1_000_000] * 64, waits=True)

    async def run() -> None:
        async with _serve(source.answer) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(_STREAM)
            await asyncio.wait_for(source.closed.wait(), 60)
            writer.close()
            assert reader is not None

    asyncio.run(run())


async def _answer_at_length(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, b"x" * 500_000)


def test_replies_do_not_pile_up_for_who_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    ask = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"

    async def count(call: HttpRequest) -> HttpResponse:
        nonlocal asked
        asked += 1
        return await _answer_at_length(call)

    async def run() -> None:
        async with _serve(count) as (gate, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            # Nobody reads: the kernel takes some megabytes, and after that it is our memory.
            for _ in range(6):
                writer.write(ask * 20)
                await asyncio.sleep(0.005)
            assert asked < 60
            before, taken = asked, 0
            # Who reads after all gets the rest, in turn.
            while asked < before + 20:
                taken += len(await reader.read(1 << 20))
            assert taken > 0
            await asyncio.sleep(0.05)
            monkeypatch.setattr(connection_state, "STALL_SECONDS", 0.1)
            sweep = asyncio.create_task(gate.sweep())
            ended = asyncio.Event()
            gate.on_count = ended.set
            await asyncio.wait_for(ended.wait(), 60)
            assert gate.count == 0
            sweep.cancel()
            writer.close()

    monkeypatch.setattr(server, "_SWEEP_SECONDS", 0.05)
    asyncio.run(run())


def test_requests_do_not_pile_up_either() -> None:
    ask = b"GET /slow HTTP/1.1\r\nhost: h\r\n\r\n"

    async def run() -> bytes:
        async with _serve() as (_, port):
            return await _talk(port, ask * 1000)

    assert b"too many pipelined requests" in asyncio.run(run())


def test_headers_are_kept_by_name_and_by_prefix() -> None:
    kept: dict[bytes, list[bytes]] = {}

    async def note(call: HttpRequest) -> HttpResponse:
        kept.update(call.headers)
        return HttpResponse(HTTPStatus.OK)

    async def run() -> None:
        names = frozenset((b"accept",))
        async with _serve(note, keeps_headers=names, keeps_prefix=b"x-extra-") as (_, port):
            lines = (b"Accept: a", b"accept: b", b"X-Extra-One: 1", b"other: c")
            await _talk(port, _post(b"", b"/", *lines))

    asyncio.run(run())
    assert kept == {b"accept": [b"a", b"b"], b"x-extra-one": [b"1"]}


def test_trailers_are_no_headers() -> None:
    calls: list[HttpRequest] = []

    async def note(call: HttpRequest) -> HttpResponse:
        calls.append(call)
        return HttpResponse(HTTPStatus.OK)

    head = (
        b"POST / HTTP/1.1\r\nhost: h\r\nauthorization: head\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    trailers = b"authorization: tail\r\nx-extra-one: 1\r\ncontent-type: a/b\r\n\r\n"

    async def run() -> tuple[bytes, bytes]:
        names = frozenset((b"authorization",))
        async with _serve(note, keeps_headers=names, keeps_prefix=b"x-extra-") as (_, port):
            plain = await _talk(port, head + b"3\r\nabc\r\n0\r\n" + trailers)
            large = b"x-large: " + b"x" * (MAX_BODY + 1) + b"\r\n\r\n"
            return plain, await _talk(port, head + b"3\r\nabc\r\n0\r\n" + large)

    plain, large = asyncio.run(run())
    assert b"200 OK" in plain
    assert b"413 " in large
    [call] = calls
    assert (call.body, call.content_type) == (b"abc", b"")
    assert call.headers == {b"authorization": [b"head"]}


def test_large_bodies_are_told_where_they_are_wanted() -> None:
    async def measure(call: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b"%d %d" % (call.is_cut, len(call.body)))

    async def run() -> list[bytes]:
        async with _serve(measure) as (gate, port):
            gate.max_read = 500_000
            return [
                await _talk(port, _post(b"x" * size), _post(b"x"))
                for size in (MAX_BODY, 200_000, 600_000)
            ]

    small, large, huge = asyncio.run(run())
    assert b"\r\n\r\n0 1000" in small
    # The connection goes on.
    assert b"\r\n\r\n1 65536" in large
    assert b"\r\n\r\n0 1" in large
    assert huge.startswith(b"HTTP/1.1 413")


def test_a_handler_may_answer_at_once() -> None:
    """Also several requests that came together, and those of a handler that breaks."""
    asked: list[str] = []

    def answer(call: HttpRequest) -> HttpResponse:
        asked.append(call.path)
        if call.path == "/broken":
            raise TypeError("oops")
        return HttpResponse(HTTPStatus.OK, call.path.encode())

    request = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"
    paths = (b"/a", b"/broken", b"/b", b"/c")

    async def talk() -> bytes:
        async with _serve(answer) as (_, port):
            return await _talk(port, b"".join(request % path for path in paths), request % b"/d")

    said = asyncio.run(talk())
    assert asked == ["/a", "/broken", "/b", "/c", "/d"]
    assert said.count(b"200 OK") == 4
    assert said.index(b"500 Internal") < said.index(b"/b") < said.index(b"/d")
