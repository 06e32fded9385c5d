"""A server of a few lines that says what a test tells it to: for answers no real server gives."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Asked:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, list[str]]
    body: bytes


@dataclass
class Answer:
    """What it gets; `lines` are sent one by one, as a watch does."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: Iterable[object] | None = None


class FakeApi:
    """Answers by a function; keeps what it was asked."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: object) -> None:
                pass

            def handle_any(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers: dict[str, list[str]] = {}
                for name, value in self.headers.items():
                    headers.setdefault(name.lower(), []).append(value)
                asked = Asked(self.command, self.path, headers, self.rfile.read(length))
                api.asked.append(asked)
                # Whoever asked may be gone by now.
                with contextlib.suppress(ConnectionError):
                    self.answer(api._answer(asked))

            def answer(self, answer: Answer) -> None:
                body = answer.body
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.lines is None:
                    self.send_header("content-length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                    return
                self.send_header("connection", "close")
                self.end_headers()
                for line in answer.lines:
                    text = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
                    self.wfile.write(text)
                    self.wfile.flush()
                self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        return Handler


@contextmanager
def run_api(answer: Callable[[Asked], Answer]) -> Iterator[FakeApi]:
    """The server, for as long as the block runs."""
    api = FakeApi(answer)
    thread = threading.Thread(target=api._server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api._server.shutdown()
        api._server.server_close()
