"""Load on `lictor serve`: CPU a request, requests a second, latencies, errors, memory.

The server judges a review by policies from files; the load comes from a process of its own, over
HTTPS, on connections that stay open. CPU seconds and memory are those of all the server's
processes; memory that they share is counted once.

A virtual machine whose host gives its cores to others stands still for tens of milliseconds, with
or without us. The kernel counts that time as stolen; latencies are shown for all requests, and for
those that were under way while nothing was stolen.
"""

import argparse
import asyncio
import bisect
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import bars
from bars import Row

LICTOR = str(Path(sys.executable).parent / "lictor")
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK = 0.05
# Kyverno v1.18.2 for the same work: milliseconds of CPU a request, megabytes.
KYVERNO = (6.7, 180)


@dataclass(frozen=True)
class Load:
    """What the callers saw."""

    requests: int
    errors: int
    seconds: float
    # Seconds, in order.
    latencies: list[float]
    # Those of requests during which the host took no core away.
    undisturbed: list[float]
    # Share of the cores' time that the host took away.
    stolen: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def latency(self, share: float) -> float:
        """The latency in milliseconds that this share of the requests stayed under."""
        return _find_quantile(self.latencies, share)

    def undisturbed_latency(self, share: float) -> float:
        """The same for requests during which the host took no core away."""
        return _find_quantile(self.undisturbed, share)


def _find_quantile(seconds: list[float], share: float) -> float:
    if not seconds:
        return 0.0
    return seconds[min(int(len(seconds) * share), len(seconds) - 1)] * 1e3


class Theft:
    """When the host took cores away, as far as the kernel tells: in ticks of 10 ms."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK)

    def look(self) -> None:
        with open("/proc/stat") as file:
            fields = file.readline().split()
        self._looks.append((time.perf_counter(), int(fields[8])))

    @property
    def share(self) -> float:
        """Of all cores' time."""
        (began, before), (ended, after) = self._looks[0], self._looks[-1]
        cores = os.cpu_count() or 1
        return (after - before) / _TICKS / max((ended - began) * cores, 1e-9)

    def is_quiet(self, began: float, ended: float) -> bool:
        """Was nothing taken between these moments, nor shortly before?"""
        times = [at for at, _ in self._looks]
        first = max(bisect.bisect_right(times, began) - 2, 0)
        last = min(bisect.bisect_left(times, ended), len(times) - 1)
        return self._looks[first][1] == self._looks[last][1]


class Caller(asyncio.Protocol):
    """One connection: sends the same request whenever it is told to, and looks at the answer."""

    def __init__(self, request: bytes, expected: bytes) -> None:
        self._request = request
        self._expected = expected
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._sent = 0.0
        self._answer: asyncio.Future[bool] | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(False)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or self._answer is None or self._answer.done():
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(body) >= length:
            right = head.startswith(b"HTTP/1.1 200") and self._expected in body
            self._buffer = b""
            self._answer.set_result(right)

    async def call(self) -> bool:
        """Send the request; was the answer the expected one?"""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return await self._answer


async def drive(port: int, review: bytes, count: int, connections: int, rate: float) -> Load:
    """Send reviews; as fast as answers come (rate 0), or so many a second."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    head = (
        "POST /validate/fail?timeout=10s HTTP/1.1\r\nhost: lictor\r\n"
        f"content-type: application/json\r\ncontent-length: {len(review)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    callers = [
        (
            await loop.create_connection(
                lambda: Caller(head.encode() + review, b'"allowed":true'),
                "127.0.0.1",
                port,
                ssl=context,
            )
        )[1]
        for _ in range(connections)
    ]
    spans: list[tuple[float, float]] = []
    errors = 0
    theft = Theft()
    watching = asyncio.create_task(theft.watch())
    started = time.perf_counter()
    numbers = iter(range(count))

    async def work(caller: Caller) -> None:
        nonlocal errors
        for number in numbers:
            due = started + number / rate if rate else 0.0
            if due and (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            # With a rate, whoever has to wait for a free connection has waited, too.
            began = due or time.perf_counter()
            right = not caller.lost and await caller.call()
            spans.append((began, time.perf_counter()))
            errors += not right

    await asyncio.gather(*(work(caller) for caller in callers))
    seconds = time.perf_counter() - started
    watching.cancel()
    theft.look()
    return Load(
        count,
        errors,
        seconds,
        sorted(ended - began for began, ended in spans),
        sorted(ended - began for began, ended in spans if theft.is_quiet(began, ended)),
        theft.share,
    )


def drive_elsewhere(port: int, review: Path, count: int, connections: int, rate: float) -> Load:
    """The same in a process of its own."""
    command = [
        sys.executable, __file__, "--drive", str(port), "--review", str(review),
        "--requests", str(count), "--connections", str(connections), "--rate", str(rate),
    ]  # fmt: skip
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Load(**json.loads(found.stdout))


class Server:
    """`lictor serve` with policies from files, until the block ends."""

    def __init__(self, policies: Path, port: int, *options: str) -> None:
        self.port = port
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the block)
        self._process = subprocess.Popen(
            [
                LICTOR, "serve", "--policies", str(policies), "--webhookServerPort", str(port),
                "--metricsPort", str(port + 1), "--shutdownDelay", "0s", *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )  # fmt: skip

    def __enter__(self) -> "Server":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        import urllib.request

        # Thousands of policies take their time on a busy machine.
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            try:
                url = f"https://127.0.0.1:{self.port}/health/readiness"
                urllib.request.urlopen(url, context=context, timeout=2).close()
                return self
            except OSError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.1)
        self._log.seek(0)
        told = self._log.read().decode()[-2000:]
        self.__exit__()
        raise RuntimeError(f"the server did not start: {told}")

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._log.close()
        try:
            self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pids(self) -> list[int]:
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes so far."""
        total = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    @property
    def megabytes(self) -> float:
        """Resident memory of all processes; what several share is counted once."""
        total = 0
        for pid in self.pids:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total / 1024


@dataclass(frozen=True)
class Figures:
    """What the table shows."""

    milliseconds: float
    rate: float
    full: Load
    half: Load
    megabytes: float


def measure(policies: Path, review: Path, count: int, connections: int, port: int) -> Figures:
    """Full load, then half of it."""
    with Server(policies, port) as server:
        drive_elsewhere(port, review, 2000, connections, 0)
        before = server.cpu
        full = drive_elsewhere(port, review, count, connections, 0)
        cpu = server.cpu - before
        half_rate = full.rate / 2
        half = drive_elsewhere(port, review, int(half_rate * 10), connections, half_rate)
        return Figures(cpu / count * 1e3, full.rate, full, half, server.megabytes)


@dataclass(frozen=True)
class Cost:
    """What a request costs at full load, and what the server needs."""

    milliseconds: float
    megabytes: float


def measure_cost(policies: Path, review: Path, count: int, connections: int, port: int) -> Cost:
    """Full load alone, after the policies are compiled."""
    with Server(policies, port) as server:
        drive_elsewhere(port, review, 2000, connections, 0)
        before = server.cpu
        drive_elsewhere(port, review, count, connections, 0)
        return Cost((server.cpu - before) / count * 1e3, server.megabytes)


def judge(figures: Figures) -> Row:
    """The row of the table: what a request costs at full load, and how long it takes."""
    full, half = figures.full, figures.half
    theirs, megabytes = KYVERNO
    return bars.ADMISSION.judge(
        {
            "ms of CPU": figures.milliseconds,
            "MB": figures.megabytes,
            "requests/s": figures.rate,
            "wrong": float(full.errors + half.errors),
        },
        peer=(
            f"known    {theirs:.1f} ms of CPU {megabytes} MB, "
            f"{theirs / figures.milliseconds:.1f} times ours"
        ),
        note=(
            f"p50 {full.latency(0.5):.2f} ms, p99 {full.latency(0.99):.2f} ms; at half load "
            f"p50 {half.latency(0.5):.2f} ms, p99 {half.latency(0.99):.2f} ms, while the host took "
            f"no core away ({half.stolen:.1%} of the time it did) "
            f"p99 {half.undisturbed_latency(0.99):.2f} ms"
        ),
    )


def main() -> None:
    """Print the row of the table, or be the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--policies", type=Path)
    parser.add_argument("--review", type=Path)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--port", type=int, default=19443)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--drive", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    review = given.review or given.shared / "bench" / "review-allowed.json"
    if given.drive:
        import uvloop

        load = drive(
            given.drive, review.read_bytes(), given.requests, given.connections, given.rate
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(vars(runner.run(load))))
        return
    policies = given.policies or given.shared / "bench" / "pss"
    if not policies.is_dir() or not review.is_file():
        print(f"bench: {policies} or {review} is not here; admission was not measured")
        return
    bars.show(judge(measure(policies, review, given.requests, given.connections, given.port)))


if __name__ == "__main__":
    main()
