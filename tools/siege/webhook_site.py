"""`lictor serve` with policies from files, in a control group with a memory limit, and its clients."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

LICTOR = str(Path(sys.executable).parent / "lictor")
_GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
)
_JOIN = 'echo $$ > "$0" && exec "$@"'
_POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: teams}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      failureAction: Enforce
      message: a team is missing
      pattern: {metadata: {labels: {team: "?*"}}}
"""
_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"team": "x"}}}


def client_context() -> ssl.SSLContext:
    """Trusts everyone: the certificate is not what is tried here."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def build_request() -> bytes:
    """A review that is allowed."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    asked = {
        "uid": "1", "kind": kind, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE", "namespace": "default", "name": "a", "object": _POD,
        "userInfo": {"username": "someone"},
    }  # fmt: skip
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    body = json.dumps(review).encode()
    head = (
        "POST /validate/fail?timeout=10s HTTP/1.1\r\nhost: lictor\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class MemoryLimit:
    """A control group; where none can be made, nothing is measured there."""

    def __init__(self, megabytes: int) -> None:
        self.folder: Path | None = None
        self._peak = ""
        for parent, limit, peak in _GROUPS:
            folder = parent / f"lictor-webhook-{os.getpid()}"
            with contextlib.suppress(OSError):
                folder.mkdir()
                (folder / limit).write_text(str(megabytes * 1024 * 1024))
                self.folder, self._peak = folder, peak
                return

    @property
    def command(self) -> list[str]:
        """What stands before a command that runs in the group."""
        if self.folder is None:
            return []
        return ["sh", "-c", _JOIN, str(self.folder / "cgroup.procs")]

    @property
    def peak(self) -> float:
        """The most megabytes that were in use at any moment; 0 where nobody knows."""
        if self.folder is None:
            return 0.0
        return int((self.folder / self._peak).read_text()) / 1024 / 1024

    def remove(self) -> None:
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()


class Webhook:
    """One replica."""

    def __init__(self, port: int, *options: str, prefix: list[str] | None = None) -> None:
        self.port = port
        self._folder = tempfile.TemporaryDirectory(prefix="lictor-siege-")
        (Path(self._folder.name) / "policy.yaml").write_text(_POLICY)
        self._command = [
            *(prefix or []), LICTOR, "serve", "--policies", self._folder.name,
            "--webhookServerPort", str(port), "--metricsPort", str(port + 1), "-v", "0", *options,
        ]  # fmt: skip
        self.log = Path(self._folder.name) / "log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_ready(self) -> bool:
        url = f"https://127.0.0.1:{self.port}/health/readiness"
        try:
            with urllib.request.urlopen(url, context=client_context(), timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def wait_ready(self, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"not ready: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes so far."""
        total = 0
        for pid in (self.process.pid, *self.workers):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        """Of all processes; what several share is counted once."""
        total = 0
        for pid in (self.process.pid, *self.workers):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        return total / 1024

    def read_metric(self, name: str) -> float:
        url = f"http://127.0.0.1:{self.port + 1}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def list_errors(self) -> list[str]:
        """What it logged that someone must look at."""
        return [line for line in self.log.read_text().splitlines() if " ERROR " in line]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._folder.cleanup()


class Caller(asyncio.Protocol):
    """One connection, as an HTTP client keeps it: it notices at once where the server hangs up."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.BaseTransport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[bool] | None = None
        # The server has closed it, or said that it will.
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("hung up"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or self._answer is None or self._answer.done():
            return
        words = head.lower()
        if len(body) >= int(words.partition(b"content-length: ")[2].split(b"\r\n")[0]):
            self.is_over = self.is_over or b"connection: close" in words
            self._buffer = b""
            right = head.startswith(b"HTTP/1.1 200") and b'"allowed":true' in body
            self._answer.set_result(right)

    async def ask(self) -> bool:
        """Send the request; was the answer the right one?"""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return await self._answer

    def close(self) -> None:
        self.is_over = True
        self._transport.close()


@dataclass
class Record:
    """What clients saw."""

    # When a request (with its connection, where it needed one) began, and how long it took.
    spans: list[tuple[float, float]] = field(default_factory=list)
    # When a request began that was never answered, or wrongly, when that was known, and why.
    lost: list[tuple[float, float, str]] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Milliseconds that this share of the requests stayed under."""
        found = sorted(seconds for _, seconds in self.spans)
        return found[min(int(len(found) * share), len(found) - 1)] * 1e3 if found else 0.0


async def connect(port: int, request: bytes, context: ssl.SSLContext) -> Caller:
    loop = asyncio.get_running_loop()
    _, caller = await loop.create_connection(
        lambda: Caller(request), "127.0.0.1", port, ssl=context, ssl_handshake_timeout=30
    )
    return caller
