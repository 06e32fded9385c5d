"""A git server on loopback: real `git http-backend`, with a password, redirects and a record."""

import base64
import os
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PASSWORD = "open-sesame"
_EXPECTED = "Basic " + base64.b64encode(f"ali:{PASSWORD}".encode()).decode()


def make_repository(root: Path, files: dict[str, str], links: dict[str, str] | None = None) -> Path:
    """A repository with one commit."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in (links or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    return root


class GitServer(ThreadingHTTPServer):
    """Serves `folder/OWNER/NAME`; `moved` says which requests are sent elsewhere."""

    def __init__(self, folder: Path, *, private: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.private = private
        # (method, beginning of the path) -> what the path's beginning becomes.
        self.moved: dict[tuple[str, str], str] = {}
        self.seen: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(server: GitServer):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        """Silence."""

    def _answer(self) -> None:
        given = self.headers.get("Authorization") or ""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, given))
        for (method, begin), target in self.server.moved.items():
            if method == self.command and self.path.startswith(begin):
                self._send(301, {"Location": target + self.path.removeprefix(begin)})
                return
        if self.server.private and given != _EXPECTED:
            self._send(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._run_backend(body)

    def _run_backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "REQUEST_METHOD": self.command,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(headers.pop("Status", "200").split()[0])
        self._send(status, headers, content)

    def _send(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
