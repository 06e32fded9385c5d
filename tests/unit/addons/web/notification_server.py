"""Targets on loopback: HTTP servers that note what they get and answer as a test says."""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson

from lictor.addons.web.records import ReportedResult, ResultChange, ResultFilter, Viewer
from lictor.core.raw import Json


@dataclass
class Got:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Json:
        return orjson.loads(self.body)


@dataclass
class Reply:
    """What it gets."""

    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    # Seconds before it comes.
    after: float = 0.0


Answer = Callable[[Got], Reply]


class TargetServer:
    """One server; `got` grows with each request."""

    def __init__(
        self, answer: Answer, context: ssl.SSLContext | None = None, address: str = "127.0.0.1"
    ) -> None:
        self.got: list[Got] = []
        self._server = ThreadingHTTPServer((address, 0), _make_handler(self, answer))
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        scheme = "https" if context else "http"
        self.url = f"{scheme}://{address}:{self.port}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.02)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    async def wait_for(self, number: int, seconds: float = 60.0) -> list[Got]:
        """Until so many requests have come."""
        async with asyncio.timeout(seconds):
            while len(self.got) < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return self.got


def _make_handler(server: TargetServer, answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: object) -> None:
            pass

        def take(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            got = Got(self.command, self.path, headers, self.rfile.read(length))
            reply = answer(got)
            threading.Event().wait(reply.after)
            server.got.append(got)
            with contextlib.suppress(OSError):
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = take  # noqa: N815

    return Handler


def script(*replies: Reply) -> Answer:
    """One after the other; the last one again and again."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def run_target(
    answer: Answer = lambda _: Reply(),
    context: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
) -> Iterator[TargetServer]:
    server = TargetServer(answer, context, address)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def make_result(name: str = "web", **parts: Json) -> ReportedResult:
    fields: dict[str, Json] = {
        "cluster": "prod",
        "report": f"PolicyReport/{parts.get('namespace', 'team-a')}/{name}",
        "position": 0,
        "source": "kyverno",
        "policy": "require-labels",
        "rule": "check-team",
        "status": "fail",
        "severity": "high",
        "category": "Labels",
        "namespace": "team-a",
        "api_version": "v1",
        "kind": "Pod",
        "name": name,
        "uid": f"uid-{name}",
        "message": "label team is required",
        "timestamp": 1_700_000_000,
    }
    return ReportedResult(**{**fields, **parts})


class HeldResults:
    """Results in a list, which tell their listeners what comes and goes."""

    def __init__(self, results: Iterable[ReportedResult] = ()) -> None:
        self.rows = list(results)
        self.listeners: list[Callable[[ResultChange], None]] = []

    def listen(self, listener: Callable[[ResultChange], None]) -> None:
        self.listeners.append(listener)

    def export(self, chosen: ResultFilter, viewer: Viewer) -> Iterator[ReportedResult]:
        for row in self.rows:
            if row.status in chosen.statuses and viewer.may_see(row.cluster, row.namespace):
                yield row

    def change(
        self, added: Iterable[ReportedResult] = (), removed: Iterable[ReportedResult] = ()
    ) -> None:
        change = ResultChange("prod", tuple(added), tuple(removed))
        self.rows = [row for row in self.rows if row not in change.removed] + list(change.added)
        for listener in self.listeners:
            listener(change)


class HeldState:
    """As much of the page's state as notifications ask for."""

    def __init__(self, results: HeldResults, clusters: tuple[str, ...] = ("prod",)) -> None:
        self.results = results
        self.clusters = clusters
        self.unread: set[str] = set()

    def list_clusters(self) -> tuple[str, ...]:
        return self.clusters

    def is_ready(self) -> bool:
        return all(map(self.is_cluster_ready, self.clusters))

    def is_cluster_ready(self, cluster: str) -> bool:
        return cluster not in self.unread
