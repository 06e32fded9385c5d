"""`lictor up`: how soon it is ready, and how it bears many objects and many watches.

    python tools/bench/embedded.py [--objects 5000] [--watches 1000] [--starts 5] [--policies 600]

Pods are created by lictor's own client, with the webhook asked about each. Times are wall-clock,
beside the CPU seconds of all processes together; memory counts shared pages once (PSS).
"""

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import Resource

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "examples" / "policies"
PODS = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACE = "bench"
HANDS = 16
_TICKS = os.sysconf("SC_CLK_TCK")


class Cluster:
    """A `lictor up` that runs."""

    def __init__(self, process: "subprocess.Popen[str]", kubeconfig: Path, ready: float) -> None:
        self.process = process
        self.kubeconfig = kubeconfig
        self.ready = ready

    def list_processes(self) -> list[int]:
        """The parent and all that it started."""
        pids, found = [self.process.pid], []
        while pids:
            pid = pids.pop()
            found.append(pid)
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            pids += [int(each) for each in children.split()]
        return found

    def measure_memory(self) -> float:
        """Megabytes of all processes, shared pages counted once."""
        total = 0
        for pid in self.list_processes():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total / 1024

    def measure_cpu(self) -> float:
        """CPU seconds of all processes so far."""
        total = 0
        for pid in self.list_processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS


@contextmanager
def run_cluster(*words: str) -> Iterator[Cluster]:
    """Start it, and wait for its first word."""
    with tempfile.TemporaryDirectory(prefix="lictor-bench-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "lictor", "up", f"--kubeconfig={kubeconfig}", *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            if process.stdout is None or not process.stdout.readline():
                raise SystemExit("lictor up did not start")
            yield Cluster(process, kubeconfig, time.monotonic() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def make_pod(index: int) -> dict[str, Any]:
    """A Pod that all policies let in."""
    metadata = {"name": f"pod-{index}", "namespace": NAMESPACE, "labels": {"team": "bench"}}
    spec = {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def create_many(cluster: Cluster, count: int) -> float:
    """Create so many Pods, several at a time; how long that took."""
    client = Client(load_config(str(cluster.kubeconfig)))
    numbers = iter(range(count))
    try:
        namespace = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
        await client.create(namespace, {"metadata": {"name": NAMESPACE}})
        began = time.monotonic()

        async def work() -> None:
            for number in numbers:
                await client.create(PODS, make_pod(number))

        await asyncio.gather(*(work() for _ in range(HANDS)))
        return time.monotonic() - began
    finally:
        await client.close()


async def watch_many(cluster: Cluster, count: int) -> float:
    """Open so many watches, make one change, and wait until all have seen it."""
    client = Client(load_config(str(cluster.kubeconfig)))
    seen = 0

    async def watch(version: str) -> None:
        nonlocal seen
        async for event in client.watch(CONFIG_MAPS, since=version, namespace=NAMESPACE):
            if event.type == "ADDED":
                seen += 1
                return

    try:
        answer = await client.request("GET", CONFIG_MAPS.path(NAMESPACE))
        version = answer["metadata"]["resourceVersion"]
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(watch(version)))
            # Clients come one after the other.
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
        body = {"metadata": {"name": "seen", "namespace": NAMESPACE}}
        began = time.monotonic()
        await client.create(CONFIG_MAPS, body)
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)
        if seen != count:
            raise SystemExit(f"only {seen} of {count} watches saw the change")
        return time.monotonic() - began
    finally:
        await client.close()


def write_policies(folder: Path, count: int) -> None:
    """The examples under so many names, a file each."""
    examples = [file.read_text() for file in sorted(POLICIES.glob("*.yaml"))]
    for number in range(count):
        text = examples[number % len(examples)]
        name = text.partition("\n  name: ")[2].partition("\n")[0]
        renamed = text.replace(f"\n  name: {name}\n", f"\n  name: {name}-{number}\n", 1)
        (folder / f"{number:04}.yaml").write_text(renamed)


async def run_kubectl(cluster: Cluster, *words: str) -> float:
    """How long one call of kubectl took."""
    began = time.monotonic()
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        "kubectl", *words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, told = await process.communicate()
    if process.returncode:
        raise SystemExit(told.decode())
    return time.monotonic() - began


def measure_policies(count: int) -> None:
    """Many policies, applied and deleted in one call each."""
    with run_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        write_policies(Path(folder), count)
        for word, more in (("apply", ()), ("delete", ("--wait=false",))):
            words = (word, "-f", folder, *more)
            took, cpu = measure(cluster, partial(run_kubectl, cluster, *words))
            shown = f"kubectl {word} of {count} policies"
            show(shown, f"{took:.1f} s, {cpu:.1f} CPU-s", "< 30 s" if word == "apply" else "< 9 s")


def show(what: str, figure: str, bar: str) -> None:
    """One line of the table."""
    print(f"{what:<44} {figure:>22}   {bar}", flush=True)


def measure(cluster: Cluster, work: Callable[[], Awaitable[float]]) -> tuple[float, float]:
    """Seconds and CPU seconds of the cluster for something."""
    before = cluster.measure_cpu()
    return asyncio.run(work()), cluster.measure_cpu() - before


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=5000)
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--policies", type=int, default=600)
    arguments = parser.parse_args()
    starts = []
    for _ in range(arguments.starts):
        with run_cluster() as cluster:
            starts.append((cluster.ready, cluster.measure_cpu()))
    ready, cpu = (statistics.median(each) for each in zip(*starts, strict=True))
    show("ready", f"{ready:.2f} s, {cpu:.2f} CPU-s", "< 2 s")
    with run_cluster(f"--policies={POLICIES}") as cluster:
        show("ready with five policies", f"{cluster.ready:.2f} s", "")
        show("memory when ready", f"{cluster.measure_memory():.0f} MB", "< 200 MB")
        took, cpu = measure(cluster, lambda: create_many(cluster, arguments.objects))
        show(f"{arguments.objects} Pods, webhooks on", f"{took:.1f} s, {cpu:.1f} CPU-s", "< 30 s")
        show("memory with them", f"{cluster.measure_memory():.0f} MB", "< 200 MB")
        took, cpu = measure(cluster, lambda: watch_many(cluster, arguments.watches))
        show(f"a change seen by {arguments.watches} watches", f"{took:.2f} s", "all hold")
        show("memory after that", f"{cluster.measure_memory():.0f} MB", "")
    if arguments.policies and shutil.which("kubectl"):
        measure_policies(arguments.policies)


if __name__ == "__main__":
    main()
