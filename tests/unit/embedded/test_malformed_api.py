"""Ten thousand requests that make no sense: each is answered, none breaks the server."""

import asyncio
import json
import logging

import httptools
import pytest
from malformed import KINDS, TOKEN, Generator, Wild, make_honest

from lictor.embedded.attributes import User
from lictor.embedded.server import ServerSettings, build_server

REQUESTS = 10_000
# All of them are answered by one process, on a machine that may be busy.
PATIENCE = 10.0
# What Kubernetes answers with 500 as well.
MEANT = ("failed to create typed patch object", "without impersonating a user")


SETTINGS = ServerSettings(tokens={TOKEN: User("admin", ("system:masters",))})


class Answer:
    """One answer, as the parser tells it."""

    def __init__(self):
        self.parser = httptools.HttpResponseParser(self)
        self.body = b""
        self.is_whole = False

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.is_whole = True


class Line:
    """A connection to the server; broken ones are opened again."""

    def __init__(self, server):
        self._port = int(server.url.rpartition(":")[2])
        self._writer = None

    async def ask(self, data: bytes, *, is_head: bool = False) -> Answer | None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(data)
        answer = Answer()
        async with asyncio.timeout(PATIENCE):
            while not answer.is_whole:
                piece = await self._reader.read(65536)
                if not piece:
                    self.close()
                    return None
                answer.parser.feed_data(piece)
                if is_head and b"\r\n\r\n" in piece:
                    break
                if answer.parser.get_status_code() == 200 and b"chunked" in piece:
                    # A watch goes on; its first words are enough.
                    self.close()
                    break
        if not answer.parser.should_keep_alive():
            self.close()
        return answer

    def close(self):
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def fill(line):
    """Put there what the requests are about."""
    for kind in ("CustomResourceDefinition", *KINDS):
        body = json.dumps(make_honest(kind)).encode()
        headers = (("content-type", "application/json"),)
        await line.ask(Wild("POST", KINDS[kind], headers, body).write())


def is_clean(answer) -> bool:
    """Below 500, or a refusal that says of itself what it means."""
    if answer.parser.get_status_code() < 500:
        return True
    try:
        told = json.loads(answer.body)
    except ValueError:
        return False
    return told["kind"] == "Status" and any(words in told["message"] for words in MEANT)


async def run(seed: int, count: int) -> list[str]:
    server = build_server(SETTINGS)
    await server.start()
    line, generator, findings = Line(server), Generator(seed), []
    try:
        for number in range(count):
            if number % 100 == 0:
                await fill(line)
            wild = generator.make()
            try:
                answer = await line.ask(wild.write(), is_head=wild.method == "HEAD")
            except TimeoutError:
                findings.append(f"{number}: no answer: {wild}")
                line.close()
                continue
            if answer is not None and not is_clean(answer):
                findings.append(f"{number}: {answer.body[:300]!r}: {wild}")
        line.close()
        health = await line.ask(Wild("GET", "/readyz", (), b"").write())
        if (health.parser.get_status_code(), health.body) != (200, b"ok"):
            findings.append(f"sick: {health.body!r}")
    finally:
        line.close()
        await server.stop()
    return findings


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_no_request_breaks_the_server(seed, caplog):
    with caplog.at_level(logging.ERROR):
        findings = asyncio.run(run(seed, REQUESTS // 4))
    assert findings == []
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET /api HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /api HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(9000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        bytes(range(256)) * 40,
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_http_is_refused(data, caplog):
    async def attempt():
        server = build_server(SETTINGS)
        await server.start()
        line = Line(server)
        try:
            answer = await line.ask(data)
            line.close()
            health = await line.ask(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
            return answer, health
        finally:
            line.close()
            await server.stop()

    with caplog.at_level(logging.ERROR):
        answer, health = asyncio.run(attempt())
    assert answer is None or 400 <= answer.parser.get_status_code() < 500
    assert health.parser.get_status_code() == 200
    assert caplog.records == []
