"""The background scan: CPU, memory, what is judged again, how replicas share.

    python tests/bench/scan.py [--pods 10000] [--replicas 2]      on a real control plane
    python tests/bench/scan.py --fake 200000                      on a cluster that stores nothing

CPU seconds and memory are those of lictor's own processes, from their start to the end of the scan.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "unit" / "control")]

import yaml  # noqa: E402
from control_plane.embedded import EmbeddedCluster  # noqa: E402
from control_plane.install import Installation, Replica, install_lictor  # noqa: E402
from control_plane.local import LocalCluster  # noqa: E402
from control_plane.manifests import apply_objects  # noqa: E402
from control_plane.plane import ControlPlane  # noqa: E402
from control_plane.programs import NoControlPlaneError, find_programs  # noqa: E402

Object = dict[str, Any]
COMPONENT = "reports-controller"
NOTE = "lictor.io/scan"
PODS = "/api/v1/pods"
REPORTS = "/apis/wgpolicyk8s.io/v1alpha2/policyreports"
_TICKS = os.sysconf("SC_CLK_TCK")


def make_pod(index: int, dice: random.Random) -> Object:
    """A Pod that keeps some of the usual rules and breaks others."""
    hardened = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {"limits": {"memory": "128Mi"}, "requests": {"memory": "64Mi", "cpu": "100m"}}
    images = ("nginx:1.25", "nginx:latest", f"ghcr.io/acme/app:v1.{index % 9}", "redis")
    containers = [
        {
            "name": f"c{number}",
            "image": dice.choice(images),
            "resources": dice.choice(({}, limits)),
            "securityContext": dice.choice(({}, {"privileged": True}, hardened)),
        }
        for number in range(1 + index % 3)
    ]
    labels = dice.choice(({"app": "none"}, {"app.kubernetes.io/name": "x", "team": "t"}))
    metadata = {"name": f"pod-{index}", "namespace": f"bench-{index % 20}", "labels": labels}
    spec: Object = {"containers": containers, "hostNetwork": index % 5 == 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def find_policies(folder: Path | None) -> tuple[Path, list[Object]]:
    """The policies of a folder; by default those to compare with, or else our examples."""
    shared = ROOT.parent / "shared" / "bench" / "policies"
    chosen = folder or (shared if shared.is_dir() else ROOT / "examples" / "policies")
    found = [
        document
        for path in sorted(chosen.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document and document.get("kind", "").endswith("Policy")
    ]
    return chosen, found


# --- a real control plane


class Bench:
    """A control plane with Pods and policies, and lictor's reports controller beside it."""

    def __init__(self, plane: LocalCluster, installation: Installation) -> None:
        self.plane = plane
        self.installation = installation
        self.replicas: list[Replica] = []

    def start(self) -> Replica:
        """One more replica of the reports controller."""
        replica = self.installation.start_controller(COMPONENT)
        self.replicas.append(replica)
        return replica

    def read_notes(self) -> list[Object]:
        """What each live replica says of its scan."""
        path = "/apis/coordination.k8s.io/v1/namespaces/lictor/leases"
        with self.plane.connect() as client:
            leases = client.get(path, params={"labelSelector": "lictor.io/member-of"}).json()
        notes = ((each["metadata"].get("annotations") or {}) for each in leases["items"])
        return [json.loads(note[NOTE]) for note in notes if NOTE in note]

    def count(self, path: str) -> int:
        """How many objects there are."""
        with self.plane.connect() as client:
            answer = client.get(path, params={"limit": 1}).json()
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)

    def wait(self, done: Callable[[list[Object]], bool], seconds: float = 900) -> list[Object]:
        """The notes, once they say what is waited for."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            notes = self.read_notes()
            if notes and done(notes):
                return notes
            for replica in self.replicas:
                if not replica.process.is_running():
                    raise RuntimeError(replica.process.read_log())
            time.sleep(1)
        raise TimeoutError(f"not done within {seconds} s: {self.read_notes()}")


def measure(pid: int) -> tuple[float, float]:
    """CPU seconds and the most memory in megabytes of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / _TICKS, int(peak.split()[1]) / 1024


def fill(plane: LocalCluster, policies: Sequence[Object], count: int) -> None:
    """Policies, namespaces and Pods."""
    apply_objects(plane, policies)
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"bench-{number}"}}
        for number in range(20)
    ]
    apply_objects(plane, spaces)
    time.sleep(3)  # every namespace gets its service account
    dice = random.Random(7)
    pods = [make_pod(index, dice) for index in range(count)]
    with plane.connect() as client, ThreadPoolExecutor(8) as crew:

        def create(pod: Object) -> None:
            space = pod["metadata"]["namespace"]
            answer = client.post(f"/api/v1/namespaces/{space}/pods", json=pod)
            if not answer.is_success and answer.status_code != 409:
                raise RuntimeError(answer.text)

        list(crew.map(create, pods))


def is_done(count: int) -> Callable[[list[Object]], bool]:
    """Has every Pod been looked at, and does nothing run any more?"""

    def done(notes: list[Object]) -> bool:
        return not any(n["running"] for n in notes) and sum(n["seen"] for n in notes) >= count

    return done


def run_real(arguments: argparse.Namespace) -> None:
    """Scan, change one Pod, scan again from a new process; then two replicas from nothing."""
    folder, policies = find_policies(arguments.policies)
    count = arguments.pods
    with _open(arguments.cluster) as plane:
        bench = Bench(plane, install_lictor(plane, replicas=0))
        fill(plane, policies, count)
        print(f"{count} Pods, {len(policies)} policies of {folder}")
        scan_alone(bench, count)
        if arguments.replicas > 1:
            scan_together(bench, count, arguments.replicas)
        bench.installation.stop()


def _open(name: str) -> LocalCluster:
    if name == "embedded":
        return EmbeddedCluster(loopback=True)
    return ControlPlane(find_programs(print))


def scan_alone(bench: Bench, count: int) -> None:
    """The first scan, a change, and a second process."""
    replica, started = bench.start(), time.monotonic()
    notes = bench.wait(is_done(count))
    show("first scan", replica, notes[0], time.monotonic() - started)
    print(f"  reports: {bench.count(REPORTS)}")
    before = notes[0]["judged"]
    change_one(bench)
    notes = bench.wait(lambda found: found[0]["judged"] > before, 60)
    print(f"  judged after one Pod was changed: {notes[0]['judged'] - before}")
    replica.process.stop()
    bench.replicas.clear()
    change_one(bench, "b")
    replica, started = bench.start(), time.monotonic()
    notes = bench.wait(is_done(count))
    show("second scan, new process, one Pod changed", replica, notes[0], time.monotonic() - started)
    replica.process.stop()
    bench.replicas.clear()


def change_one(bench: Bench, value: str = "a") -> None:
    """Give a Pod another label."""
    words = ("label", "pod", "pod-1", "-n", "bench-1", f"changed={value}", "--overwrite")
    bench.plane.kubectl(*words)


def scan_together(bench: Bench, count: int, replicas: int) -> None:
    """Several replicas from nothing: who judged how much?"""
    with bench.plane.connect() as client:
        for number in range(20):
            place = REPORTS.replace("policyreports", f"namespaces/bench-{number}/policyreports")
            client.delete(place, timeout=120)
    started = time.monotonic()
    crew = [bench.start() for _ in range(replicas)]
    notes = bench.wait(lambda found: len(found) == replicas and is_done(count)(found))
    seconds = time.monotonic() - started
    total = sum(note["seen"] for note in notes)
    for note in notes:
        print(f"  a replica of {replicas}: {100 * note['seen'] / total:.0f} % of the objects")
    for number, replica in enumerate(crew):
        cpu, megabytes = measure(replica.process.pid)
        print(f"  replica {number}: {cpu:.1f} CPU-s, {megabytes:.0f} MB, {seconds:.0f} s")
    print(f"  reports: {bench.count(REPORTS)}")


def show(title: str, replica: Replica, note: Object, seconds: float) -> None:
    """One line of figures."""
    cpu, megabytes = measure(replica.process.pid)
    print(
        f"{title}: {cpu:.1f} CPU-s, {megabytes:.0f} MB, {seconds:.0f} s; "
        f"judged {note['judged']}, written {note['written']}, refused {note['refused']}"
    )


# --- a cluster that stores nothing


def run_fake(count: int) -> None:
    """The memory of a scan of very many objects, at each tenth."""
    from paged_api import PagedApi
    from test_scan import POD, POLICY, make_plan, scanning

    async def run() -> None:
        api = PagedApi(POD, count, remember=False)
        watching = asyncio.create_task(_watch_memory(api, count))
        async with scanning(api, make_plan(POLICY), deaf=True, patience=3600) as fixture:
            print(f"judged {fixture.scanner.progress.judged}, reports {api.created}")
        watching.cancel()

    before = time.process_time()
    asyncio.run(run())
    print(f"{time.process_time() - before:.1f} CPU-s for {count} objects")


async def _watch_memory(api: Any, count: int) -> None:
    step = 0
    while True:
        if api.created >= step * count // 10:
            print(
                f"  {api.created:>8} reports: {_read_memory():.0f} MB now, {_read_peak():.0f} MB peak"
            )
            step += 1
        await asyncio.sleep(0.1)


def _read_memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _read_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--policies", type=Path, help="a folder with policies")
    parser.add_argument("--cluster", choices=("real", "embedded"), default="real")
    parser.add_argument("--fake", type=int, default=0, help="so many objects, without a cluster")
    arguments = parser.parse_args()
    if arguments.fake:
        run_fake(arguments.fake)
        return 0
    try:
        run_real(arguments)
    except NoControlPlaneError as absent:
        print(f"bench of scans: {absent}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
