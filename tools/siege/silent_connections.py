"""Connections that say nothing, by the thousand, while others want to be served.

Opens raw TCP connections from several loopback addresses, holds them, and opens anew those that the
server drops. Meanwhile a few clients ask all the time, on connections that they keep and on new ones.
Then 1,000 clients come at once. Prints latencies, how long the 1,000 took, and the server's memory.
"""

import argparse
import asyncio
import os
import resource
import socket
import subprocess
import sys
import time

from webhook_site import MemoryLimit, Record, Webhook, build_request, client_context, connect

_PER_PROCESS = 10_000
_PER_ADDRESS = 2_500


def hold(port: int, first_address: int, count: int, rate: float) -> None:
    """Be silent on so many connections, until standard input ends; say when all are open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    os.set_blocking(0, False)
    held: list[socket.socket | None] = [None] * count
    opened = 0
    for number in range(count):
        held[number] = _open(port, first_address + number // _PER_ADDRESS)
        opened += held[number] is not None
    print(opened, flush=True)
    number = 0
    while _goes_on():
        for _ in range(max(int(rate / 20), 1) if rate else 0):
            number = (number + 1) % count
            if _is_dropped(held[number]):
                held[number] = _open(port, first_address + number // _PER_ADDRESS)
                opened += 1
        time.sleep(0.05)
    print(opened, sum(not _is_dropped(sock) for sock in held), flush=True)


def _open(port: int, address: int) -> socket.socket | None:
    sock = socket.socket()
    try:
        sock.settimeout(10)
        sock.bind((f"127.0.{1 + address // 250}.{1 + address % 250}", 0))
        sock.connect(("127.0.0.1", port))
        sock.settimeout(0)
    except OSError:
        sock.close()
        return None
    return sock


def _is_dropped(sock: socket.socket | None) -> bool:
    if sock is None:
        return True
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _goes_on() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


class Load:
    """Clients that ask all the time: some keep their connections, one makes a new one each time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._request = build_request()
        self._context = client_context()
        self.kept, self.fresh = Record(), Record()
        self._stop = asyncio.Event()

    async def run(self, *, keeps: bool, pause: float) -> None:
        record = self.kept if keeps else self.fresh
        caller = None
        while not self._stop.is_set():
            began = time.perf_counter()
            try:
                if caller is None or caller.is_over:
                    caller = await connect(self._port, self._request, self._context)
                if not await caller.ask():
                    raise ConnectionError("a wrong answer")
                record.spans.append((began, time.perf_counter() - began))
            except (OSError, TimeoutError) as error:
                record.lost.append((began, time.perf_counter(), repr(error)))
                caller = None
            if not keeps and caller is not None:
                caller.close()
            await asyncio.sleep(pause)

    def stop(self) -> None:
        self._stop.set()


async def crowd(port: int, count: int) -> tuple[float, int]:
    """So many clients at once: seconds until the last is served, and how many were not."""
    request, context = build_request(), client_context()
    began = time.perf_counter()

    async def come() -> bool:
        try:
            caller = await connect(port, request, context)
            return await caller.ask()
        except OSError as error:
            print(repr(error), file=sys.stderr)
            return False

    found = await asyncio.gather(*(come() for _ in range(count)))
    return time.perf_counter() - began, found.count(False)


async def besiege(webhook: Webhook, given: argparse.Namespace, limit: MemoryLimit) -> bool:
    load = Load(webhook.port)
    tasks = [asyncio.create_task(load.run(keeps=True, pause=0.05)) for _ in range(4)]
    tasks.append(asyncio.create_task(load.run(keeps=False, pause=0.1)))
    await asyncio.sleep(1)
    usual = Record(load.kept.spans[:] + load.fresh.spans[:])
    print(f"before: p99 {usual.quantile(0.99):.0f} ms, {webhook.megabytes:.0f} MB")
    load.kept.spans.clear()
    load.fresh.spans.clear()
    holders = start_holders(webhook.port, given)
    began = time.monotonic()
    opened = sum([int(await asyncio.to_thread(_read_line, each)) for each in holders])
    print(f"{opened} silent connections opened in {time.monotonic() - began:.1f} s")
    peak = 0.0
    while time.monotonic() - began < given.seconds:
        peak = max(peak, webhook.megabytes)
        await asyncio.sleep(0.5)
    held = crowd_while_held = None
    if given.crowd_while_held:
        crowd_while_held = await crowd_elsewhere(webhook.port, given.clients)
    kept, fresh = load.kept, load.fresh
    for holder in holders:
        holder.stdin.close()
    ends = [(await asyncio.to_thread(_read_line, each)).split() for each in holders]
    held = sum(int(end[1]) for end in ends)
    print(
        f"meanwhile ({given.seconds:.0f} s, {sum(int(end[0]) for end in ends)} connections in all,"
        f" {held} still held at the end): kept connections p50 {kept.quantile(0.5):.0f} ms, p99"
        f" {kept.quantile(0.99):.0f} ms of {len(kept.spans)}; new connections p50"
        f" {fresh.quantile(0.5):.0f} ms, p99 {fresh.quantile(0.99):.0f} ms of {len(fresh.spans)};"
        f" lost {len(kept.lost) + len(fresh.lost)}"
    )
    load.stop()
    await asyncio.gather(*tasks)
    if crowd_while_held is not None:
        seconds, failed = crowd_while_held
        print(
            f"while these are held: {given.clients} clients: {seconds:.2f} s, {failed} not served"
        )
    cpu = webhook.cpu
    seconds, failed = await crowd_elsewhere(webhook.port, given.clients)
    peak = max(peak, webhook.megabytes)
    print(
        f"then {given.clients} clients at once: {seconds:.2f} s ({webhook.cpu - cpu:.2f} s of the"
        f" server's CPU; load {os.getloadavg()[0]:.1f}), {failed} not served"
    )
    print(
        f"memory of the processes at most {peak:.0f} MB; of the control group"
        f" {limit.peak:.0f} MB (limit {given.memory} MB)"
    )
    dropped = webhook.read_metric("lictor_connections_dropped_total")
    restarts = webhook.read_metric("lictor_worker_restarts_total")
    print(f"dropped {dropped:.0f} connections, restarted {restarts:.0f} processes")
    for line in webhook.list_errors()[:10]:
        print(line)
    worst = max(kept.quantile(0.99), fresh.quantile(0.99))
    return not failed and not kept.lost and not fresh.lost and seconds < 2.0 and worst < 250.0


async def crowd_elsewhere(port: int, clients: int) -> tuple[float, int]:
    """From two processes, so that one client's Python is not what is measured."""
    command = [sys.executable, __file__, "--crowd", str(port), "--clients", str(clients // 2)]
    processes = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for _ in range(2)
    ]
    ends = [(await each.communicate())[0].split() for each in processes]
    return max(float(end[0]) for end in ends), sum(int(end[1]) for end in ends)


def start_holders(port: int, given: argparse.Namespace) -> "list[subprocess.Popen[str]]":
    holders = []
    for first in range(0, given.silent, _PER_PROCESS):
        command = [
            sys.executable, __file__, "--hold", str(port), "--address",
            str(first // _PER_ADDRESS), "--silent", str(min(_PER_PROCESS, given.silent - first)),
            "--reopen", str(given.reopen),
        ]  # fmt: skip
        holders.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    return holders


def _read_line(process: "subprocess.Popen[str]") -> str:
    return process.stdout.readline()


def main() -> int:
    """Read arguments, run, print; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silent", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--reopen", type=float, default=200.0, help="a second, of each process")
    parser.add_argument("--memory", type=int, default=512, help="megabytes, for all processes")
    parser.add_argument("--port", type=int, default=22443)
    parser.add_argument("--crowd-while-held", action="store_true")
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--crowd", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.hold:
        hold(given.hold, given.address, given.silent, given.reopen)
        return 0
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if given.crowd:
            print(*runner.run(crowd(given.crowd, given.clients)))
            return 0
        limit = MemoryLimit(given.memory)
        webhook = Webhook(given.port, f"--memoryLimit={given.memory}Mi", prefix=limit.command)
        try:
            webhook.wait_ready()
            return 0 if runner.run(besiege(webhook, given, limit)) else 1
        finally:
            webhook.stop()
            limit.remove()


if __name__ == "__main__":
    sys.exit(main())
