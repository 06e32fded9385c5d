"""Rolling restarts and killed workers under load: which requests are lost?

Clients ask two replicas all the time, as a Service would send them: new connections go to those that
were ready when someone last looked, and a connection is kept until the server closes it. Replicas are
restarted by SIGTERM, one after the other; then single workers get SIGTERM, then SIGKILL.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time

from webhook_site import Caller, Record, Webhook, build_request, client_context, connect

_LOOK_SECONDS = 0.5
# The kernel ends a process a moment after it was told to.
_KILL_SECONDS = 0.05


class Service:
    """Which replicas get new connections; it learns late, as kube-proxy does."""

    def __init__(self, *replicas: Webhook) -> None:
        self._replicas = replicas
        self.ready = list(replicas)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            found = [each for each in self._replicas if await asyncio.to_thread(each.is_ready)]
            self.ready = found or self.ready


class Load:
    """Clients in a closed loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._request = build_request()
        self._context = client_context()
        self._stop = asyncio.Event()
        self.record = Record()

    async def run(self) -> None:
        caller: Caller | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if caller is None or caller.is_over:
                    port = random.choice(self._service.ready).port
                    caller = await connect(port, self._request, self._context)
                if not await caller.ask():
                    raise ConnectionError("a wrong answer")
                self.record.spans.append((began, time.monotonic() - began))
            except (OSError, TimeoutError) as error:
                self.record.lost.append((began, time.monotonic(), repr(error)))
                caller = None
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        self._stop.set()


async def restart(replica: Webhook) -> None:
    replica.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(replica.process.wait, 90)
    if code != 0:
        raise RuntimeError(f"ended with {code}: {replica.log.read_text()[-2000:]}")
    replica.start()
    await asyncio.to_thread(replica.wait_ready)
    await asyncio.sleep(2 * _LOOK_SECONDS)


async def signal_worker(replica: Webhook, number: signal.Signals) -> float:
    """Signal one worker, and wait until another has taken its place; when it was signalled."""
    (first, *_) = before = replica.workers
    os.kill(first, number)
    moment = time.monotonic()
    while first in replica.workers or len(replica.workers) < len(before):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.to_thread(replica.wait_ready)
    return moment


async def besiege(replicas: tuple[Webhook, Webhook], given: argparse.Namespace) -> bool:
    service = Service(*replicas)
    load = Load(service)
    watching = asyncio.create_task(service.watch())
    tasks = [asyncio.create_task(load.run()) for _ in range(given.clients)]
    await asyncio.sleep(1)
    good = True
    for turn in range(given.restarts):
        await restart(replicas[turn % 2])
    good &= tell(load, f"{given.restarts} rolling restarts by SIGTERM", [])
    for turn in range(given.restarts):
        await signal_worker(replicas[turn % 2], signal.SIGTERM)
    good &= tell(load, f"{given.restarts} workers ended by SIGTERM", [])
    # A worker that dies young is restarted after a pause: both replicas take their turns.
    kills = []
    for turn in range(given.kills):
        kills.append(await signal_worker(replicas[turn % 2], signal.SIGKILL))
        await asyncio.sleep(0.3)
    good &= tell(load, f"{given.kills} workers killed by SIGKILL", kills)
    load.stop()
    await asyncio.gather(*tasks)
    watching.cancel()
    return good


def tell(load: Load, what: str, kills: list[float]) -> bool:
    """Print what was lost since the last time; requests in flight when a worker dies may be."""
    record, load.record.lost = load.record.lost[:], []
    count = len(load.record.spans)
    excused = [
        (began, ended, why)
        for began, ended, why in record
        if any(began <= moment + _KILL_SECONDS and moment <= ended for moment in kills)
    ]
    lost = [each for each in record if each not in excused]
    print(
        f"{what}: {count} requests answered, p99 {load.record.quantile(0.99):.0f} ms, lost"
        f" {len(lost)}" + (f", in flight at a kill {len(excused)}" if kills else "")
    )
    for _, _, why in lost[:5]:
        print("   ", why)
    load.record.spans.clear()
    return not lost


def main() -> int:
    """Read arguments, run, print; 1 where a request is lost that must not be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--delay", default="3s", help="the replicas' --shutdownDelay")
    parser.add_argument("--port", type=int, default=22543)
    given = parser.parse_args()
    replicas = tuple(
        Webhook(port, "--workers", "2", "--shutdownDelay", given.delay)
        for port in (given.port, given.port + 2)
    )
    import uvloop

    try:
        for replica in replicas:
            replica.wait_ready()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return 0 if runner.run(besiege((replicas[0], replicas[1]), given)) else 1
    finally:
        for replica in replicas:
            replica.stop()


if __name__ == "__main__":
    sys.exit(main())
