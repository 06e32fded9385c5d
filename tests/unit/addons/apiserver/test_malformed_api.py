"""Ten thousand requests that make no sense: each is answered, none breaks the server."""

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httptools
import pytest
from malformed import KINDS, TOKEN, Generator, Wild, make_honest

REQUESTS = 10_000
# Far more than any answer takes, on a machine that may be busy.
PATIENCE = 60.0
SERVER = Path(__file__).parent / "malformed_server.py"
# What is said with 500 or 503 on purpose, as Kubernetes does.
MEANT = (
    "failed to create typed patch object",
    "associative list has an element",
    "without impersonating a user",
    "nothing runs behind",
    "resourceVersion should not be set on objects to be created",
)


@contextmanager
def run_server(folder):
    """The port of a server that ends with the block; what it logged goes to a file."""
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), TOKEN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            yield int(process.stdout.readline())
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


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

    def __init__(self, port):
        self._port = port
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
    for kind in KINDS:
        body = json.dumps(make_honest(kind)).encode()
        headers = (("content-type", "application/json"),)
        await line.ask(Wild("POST", KINDS[kind], headers, body).write())
    levels = {"pod-security.kubernetes.io/warn": "restricted"}
    patch = json.dumps({"metadata": {"labels": levels}}).encode()
    headers = (("content-type", "application/merge-patch+json"),)
    await line.ask(Wild("PATCH", "/api/v1/namespaces/default", headers, patch).write())


def is_clean(answer) -> bool:
    """Below 500, or a refusal that says of itself what it means."""
    if answer.parser.get_status_code() < 500 or not answer.body:
        # Without a body it answers HEAD; what was not meant is in the log.
        return True
    try:
        told = json.loads(answer.body)
    except ValueError:
        return False
    return told["kind"] == "Status" and any(words in told["message"] for words in MEANT)


async def run(port: int, seed: int, count: int) -> list[str]:
    """Ask so many times; what was not answered as it should be."""
    line, generator, findings = Line(port), Generator(seed), []
    for number in range(count):
        if number % 100 == 0:
            await fill(line)
        wild = generator.make()
        try:
            answer = await line.ask(wild.write(), is_head=wild.method == "HEAD")
        except TimeoutError:
            # It would not answer the others either.
            line.close()
            return [*findings, f"{number}: no answer: {wild}"]
        if answer is not None and not is_clean(answer):
            findings.append(f"{number}: {answer.body[:300]!r}: {wild}")
    line.close()
    health = await line.ask(Wild("GET", "/readyz", (), b"").write())
    line.close()
    return findings if health.body == b"ok" else [*findings, f"sick: {health.body!r}"]


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_no_request_breaks_the_server(seed, tmp_path):
    with run_server(tmp_path) as port:
        findings = asyncio.run(run(port, seed, REQUESTS // 4))
        assert findings == []
    assert (tmp_path / "server.log").read_text() == ""


NO_HTTP = [
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
]


def test_what_is_no_http_is_refused(tmp_path):
    async def attempt(port):
        codes = []
        for data in NO_HTTP:
            line = Line(port)
            answer = await line.ask(data)
            line.close()
            codes.append(400 if answer is None else answer.parser.get_status_code())
        health = await line.ask(Wild("GET", "/readyz", (), b"").write())
        line.close()
        return codes, health.body

    with run_server(tmp_path) as port:
        codes, health = asyncio.run(attempt(port))
    assert [code for code in codes if not 400 <= code < 500] == []
    assert health == b"ok"
    assert (tmp_path / "server.log").read_text() == ""
