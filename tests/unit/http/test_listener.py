"""Accepting connections: who says nothing is dropped, and no error ends the listening."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from pathlib import Path

import pytest

from lictor.http import listener as module
from lictor.http.limits import ListenerLimits
from lictor.http.listener import Listener
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.http.server import HttpServer
from lictor.http.serving_certificate import LiveCertificate, make_temporary

GET = b"GET /x HTTP/1.1\r\nhost: h\r\n\r\n"
FEW = ListenerLimits(silent=4, silent_per_address=3, silent_seconds=30.0, handshakes=2)


async def _answer(call: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, call.path.encode())


class _FailingSocket(socket.socket):
    """A port whose accept fails as often as it is told to."""

    failures: list[Exception]

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            raise self.failures.pop()
        return super().accept()


@asynccontextmanager
async def _listen(
    limits: ListenerLimits | None = None,
    *failures: Exception,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Listener, int]]:
    plain = socket.create_server(("127.0.0.1", 0))
    bound = _FailingSocket(fileno=plain.detach())
    bound.failures = list(failures)
    listener = Listener(bound, HttpServer(_answer, max_body=100), context, limits)
    running = asyncio.create_task(listener.run())
    await asyncio.sleep(0)
    try:
        yield listener, bound.getsockname()[1]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        bound.close()


async def _ask(port: int, **more: ssl.SSLContext) -> bytes:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **more)
        writer.write(GET)
        answer = await reader.readuntil(b"/x")
        writer.close()
    return answer


def _connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), source_address=(address, 0))


def _is_open(client: socket.socket) -> bool:
    client.settimeout(0)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def _serving_context() -> ssl.SSLContext:
    live = LiveCertificate()
    live.load(*make_temporary(("localhost",)))
    return live.context


def _client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


ADDRESSES = [
    ("one address gets a share", ["127.0.0.1"] * 5, [False, False, True, True, True]),
    (
        "the oldest of all goes where the places are taken",
        ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"],
        [False, True, True, True, True],
    ),
    (
        "an address pays for itself first",
        ["127.0.0.9", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"],
        [True, False, True, True, True],
    ),
]


@pytest.mark.parametrize(
    ("addresses", "expected"), [c[1:] for c in ADDRESSES], ids=[c[0] for c in ADDRESSES]
)
def test_silent_connections_are_dropped_oldest_first(
    addresses: list[str], expected: list[bool]
) -> None:
    async def run() -> list[bool]:
        async with _listen(FEW) as (_, port):
            clients = []
            for address in addresses:
                clients.append(_connect(port, address))
                await asyncio.sleep(0.02)
            found = [_is_open(client) for client in clients]
            # They harm nobody who speaks.
            assert b"200 OK" in await _ask(port)
            for client in clients:
                client.close()
            return found

    assert asyncio.run(run()) == expected


def test_who_says_nothing_has_little_time() -> None:
    async def run() -> tuple[bool, int]:
        limits = ListenerLimits(silent_seconds=0.1)
        async with _listen(limits) as (listener, port):
            with closing(_connect(port)) as client:
                await asyncio.sleep(0.6)
                return _is_open(client), listener.counts.dropped_silent

    assert asyncio.run(run()) == (False, 1)


ERRORS = [
    OSError(errno.EMFILE, "too many open files"),
    OSError(errno.ENFILE, "too many open files in the system"),
    OSError(errno.ENOBUFS, "no buffers"),
    OSError(errno.ECONNABORTED, "gone"),
    MemoryError(),
    ssl.SSLError("broken"),
    RuntimeError("something else"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_errors_do_not_end_the_listening(error: Exception) -> None:
    async def run() -> bytes:
        async with _listen(None, error, error) as (_, port):
            return await _ask(port)

    assert b"200 OK" in asyncio.run(run())


def test_memory_that_is_missing_for_a_connection_ends_only_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = [MemoryError(), MemoryError()]

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        connect = loop.connect_accepted_socket

        async def fail_first(*args: object, **more: object) -> object:
            if failures:
                raise failures.pop()
            return await connect(*args, **more)

        monkeypatch.setattr(loop, "connect_accepted_socket", fail_first, raising=False)
        async with _listen() as (_, port):
            for _ in range(2):
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await _ask(port)
            return await _ask(port)

    assert b"200 OK" in asyncio.run(run())


def test_open_files_that_run_out_come_back() -> None:
    """Really none left: silent connections are dropped, and others are served."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))

    async def run() -> bytes:
        async with _listen(ListenerLimits(silent_seconds=30.0)) as (_, port):
            clients = [_connect(port) for _ in range(40)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 60, hard))
            await asyncio.sleep(0.3)
            honest = clients[-1]
            honest.setblocking(False)  # noqa: FBT003
            await asyncio.get_running_loop().sock_sendall(honest, GET)
            try:
                async with asyncio.timeout(60):
                    return await asyncio.get_running_loop().sock_recv(honest, 1000)
            finally:
                for client in clients:
                    client.close()

    try:
        assert b"200 OK" in asyncio.run(run())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


BEGINNINGS: list[tuple[str, bytes, Callable[[bool], bool]]] = [
    ("no TLS", b"GET / HTTP/1.1\r\n\r\n", lambda is_open: not is_open),
    ("a record in part waits", b"\x16\x03\x01\x02\x00abc", lambda is_open: is_open),
    ("the header in part waits", b"\x16\x03", lambda is_open: is_open),
]


@pytest.mark.parametrize(
    ("sent", "expected"), [c[1:] for c in BEGINNINGS], ids=[c[0] for c in BEGINNINGS]
)
def test_tls_begins_with_a_whole_record(sent: bytes, expected: Callable[[bool], bool]) -> None:
    async def run() -> tuple[bool, int]:
        limits = ListenerLimits(silent_seconds=30.0)
        async with _listen(limits, context=_serving_context()) as (listener, port):
            with closing(_connect(port)) as client:
                client.sendall(sent)
                await asyncio.sleep(0.3)
                assert b"200 OK" in await _ask(port, ssl=_client_context())
                return _is_open(client), listener.counts.failed_handshakes

    is_open, failed = asyncio.run(run())
    assert expected(is_open)
    assert failed == 0


def test_handshakes_that_stall_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STALLED_SECONDS", 0.2)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    begun = _client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    hello = outgoing.read()

    async def run() -> bytes:
        async with _listen(FEW, context=_serving_context()) as (_, port):
            clients = [_connect(port) for _ in range(3)]
            for client in clients:
                client.sendall(hello)
            await asyncio.sleep(0.1)
            answer = await _ask(port, ssl=_client_context())
            for client in clients:
                client.close()
            return answer

    assert b"200 OK" in asyncio.run(run())


def test_connections_that_wait_at_the_port_are_taken_before_the_end() -> None:
    async def run() -> tuple[bytes, bool]:
        async with _listen() as (listener, port):
            clients = [_connect(port) for _ in range(40)]
            for client in clients:
                client.sendall(GET)
            listener.stop(for_all=True)
            await listener.finish(2)
            await asyncio.sleep(0.1)
            answers = []
            for client in clients:
                client.settimeout(2)
                answers.append(client.recv(1000))
                client.close()
            with pytest.raises(ConnectionRefusedError):
                _connect(port)
            return min(answers), listener.is_accepting

    answer, is_accepting = asyncio.run(run())
    assert b"200 OK" in answer
    assert not is_accepting


def test_a_listener_knows_that_it_does_not_take_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUEUED_SECONDS", 0.2)

    async def run() -> tuple[bool, bool]:
        failures = [OSError(errno.EMFILE, "too many open files")] * 50
        async with _listen(None, *failures) as (listener, port):
            await asyncio.sleep(0.4)
            idle = listener.is_accepting
            with closing(_connect(port)):
                await asyncio.sleep(0.6)
                return idle, listener.is_accepting

    assert asyncio.run(run()) == (True, False)
