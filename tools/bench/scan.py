"""The background scan: CPU, memory, what is judged again, how replicas share.

    python tools/bench/scan.py [--pods 10000] [--replicas 2]      on a real control plane
    python tools/bench/scan.py --cluster embedded                 on the one inside lictor
    python tools/bench/scan.py --fake 200000                      on a cluster that stores nothing

CPU seconds and memory are those of lictor's own processes, from their start to the end of the scan.
`--rate` is the setting by which lictor spares the API server; how many requests that counted in a
second is shown beside it, those of its own controllers included.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "unit" / "controllers")]

import bars  # noqa: E402
import yaml  # noqa: E402
from bars import Bar, Row  # noqa: E402
from control_plane.embedded import EmbeddedCluster  # noqa: E402
from control_plane.install import Installation, Replica, install_lictor  # noqa: E402
from control_plane.local import LocalCluster  # noqa: E402
from control_plane.manifests import apply_objects  # noqa: E402
from control_plane.plane import ControlPlane  # noqa: E402
from control_plane.programs import NoControlPlaneError, find_programs  # noqa: E402
from measuring import read_cpu  # noqa: E402

Object = dict[str, Any]
COMPONENT = "reports-controller"
NOTE = "lictor.io/scan"
PODS = "/api/v1/pods"
REPORTS = "/apis/wgpolicyk8s.io/v1alpha2/policyreports"
# The policy that changes between two scans; about every Pod.
CHANGING = "disallow-latest-tag"
PODS_OF_BAR = 10_000


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

    def __init__(self, plane: LocalCluster, installation: Installation, count: int) -> None:
        self.plane = plane
        self.installation = installation
        self.count = count
        self.replicas: list[Replica] = []

    def start(self) -> Replica:
        """One more replica of the reports controller."""
        replica = self.installation.start_controller(COMPONENT)
        self.replicas.append(replica)
        return replica

    def stop(self) -> None:
        """End the replicas."""
        for replica in self.replicas:
            replica.process.stop()
        self.replicas.clear()

    def read_notes(self) -> list[Object]:
        """What each live replica says of its scan."""
        path = "/apis/coordination.k8s.io/v1/namespaces/lictor/leases"
        with self.plane.connect() as client:
            leases = client.get(path, params={"labelSelector": "lictor.io/member-of"}).json()
        notes = ((each["metadata"].get("annotations") or {}) for each in leases["items"])
        return [json.loads(note[NOTE]) for note in notes if NOTE in note]

    def count_reports(self) -> int:
        """How many reports there are."""
        with self.plane.connect() as client:
            answer = client.get(REPORTS, params={"limit": 1}).json()
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)

    def count_requests(self) -> float:
        """How many requests the API server has had, where it tells."""
        with self.plane.connect() as client:
            answer = client.get("/metrics")
        rows = answer.text.splitlines() if answer.is_success else ()
        return sum(
            float(row.rpartition(" ")[2])
            for row in rows
            if row.startswith("apiserver_request_total{")
        )

    def list_entries(self) -> Iterator[Object]:
        """Every entry of every report, page by page."""
        token = ""
        with self.plane.connect() as client:
            while True:
                params = {"limit": "500", **({"continue": token} if token else {})}
                answer = client.get(REPORTS, params=params, timeout=120).json()
                for report in answer["items"]:
                    yield from report.get("results") or ()
                token = answer["metadata"].get("continue") or ""
                if not token:
                    return

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


def measure(pid: int) -> dict[str, float]:
    """CPU seconds of a process and of those that it started, and the most memory that it had."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {"CPU-s": read_cpu(pid), "MB": int(peak.split()[1]) / 1024}


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


def run_real(arguments: argparse.Namespace) -> Iterator[Row]:
    """Scan, change one policy, scan again from a new process; then two replicas from nothing."""
    folder, policies = find_policies(arguments.policies)
    rate = arguments.rate
    flags = (f"--clientRateLimitQPS={rate}", f"--clientRateLimitBurst={rate}") if rate else ()
    with _open(arguments.cluster) as plane:
        installation = install_lictor(plane, replicas=0, flags=flags)
        bench = Bench(plane, installation, arguments.pods)
        fill(plane, policies, arguments.pods)
        print(f"{arguments.pods} Pods, {len(policies)} policies of {folder}", flush=True)
        yield from scan_alone(bench, policies)
        if arguments.replicas > 1:
            yield scan_together(bench, arguments.replicas)
        installation.stop()


def _open(name: str) -> LocalCluster:
    if name == "embedded":
        return EmbeddedCluster(loopback=True)
    return ControlPlane(find_programs(print))


def scan_alone(bench: Bench, policies: Sequence[Object]) -> Iterator[Row]:
    """The first scan, a second process, and a policy that changes."""
    started, before = time.monotonic(), bench.count_requests()
    replica = bench.start()
    [note] = bench.wait(is_done(bench.count))
    seconds = time.monotonic() - started
    sent = (bench.count_requests() - before) / seconds
    told = f"; the API server had {sent:.0f} requests a second" if before else ""
    bar = Bar(f"first scan of {bench.count:,} Pods")
    yield (bars.FIRST_SCAN if bench.count == PODS_OF_BAR else bar).judge(
        {**measure(replica.process.pid), "s": seconds},
        note=f"{describe(note)}, reports {bench.count_reports()}{told}",
    )
    bench.stop()
    bench.plane.kubectl("label", "pod", "pod-1", "-n", "bench-1", "changed=yes", "--overwrite")
    replica, started = bench.start(), time.monotonic()
    [note] = bench.wait(is_done(bench.count))
    figures = {**measure(replica.process.pid), "s": time.monotonic() - started}
    yield Bar("scan by a new process, one Pod changed").judge(figures, note=describe(note))
    yield scan_change(bench, replica, policies)
    bench.stop()


def scan_change(bench: Bench, replica: Replica, policies: Sequence[Object]) -> Row:
    """One policy says something else: what others said must not be said again."""
    policy = next((each for each in policies if each["metadata"]["name"] == CHANGING), None)
    if policy is None:
        return bars.SCAN_OF_CHANGE.skip(f"no policy is named {CHANGING}")
    for rule in policy["spec"]["rules"]:
        rule["validate"]["message"] = "an image needs a version of its own"
    [note], before = bench.read_notes(), measure(replica.process.pid)["CPU-s"]
    seen, judged = note["seen"], note["judged"]
    time.sleep(1.5)  # times in reports are whole seconds
    started, moment = time.monotonic(), time.time()
    apply_objects(bench.plane, [policy])
    [note] = bench.wait(is_done(seen + bench.count))
    seconds, after = time.monotonic() - started, measure(replica.process.pid)
    fresh = [
        entry["policy"] for entry in bench.list_entries() if entry["timestamp"]["seconds"] >= moment
    ]
    others = sum(name != CHANGING for name in fresh)
    return bars.SCAN_OF_CHANGE.judge(
        {
            "CPU-s": after["CPU-s"] - before,
            "s": seconds,
            "results of other policies": float(others),
        },
        fault="" if len(fresh) > others else "nothing was said by the policy that changed",
        note=f"{note['judged'] - judged} objects, {len(fresh)} results are new",
    )


def scan_together(bench: Bench, replicas: int) -> Row:
    """Several replicas from nothing: who judged how much?"""
    with bench.plane.connect() as client:
        for number in range(20):
            place = REPORTS.replace("policyreports", f"namespaces/bench-{number}/policyreports")
            client.delete(place, timeout=120)
    started = time.monotonic()
    crew = [bench.start() for _ in range(replicas)]
    done = is_done(bench.count)
    notes = bench.wait(lambda found: len(found) == replicas and done(found))
    seconds = time.monotonic() - started
    total = sum(note["seen"] for note in notes)
    costs = [measure(replica.process.pid) for replica in crew]
    return bars.SCAN_SHARED.judge(
        {
            "CPU-s": sum(each["CPU-s"] for each in costs),
            "MB": max(each["MB"] for each in costs),
            "s": seconds,
            "%": 100 * max(note["seen"] for note in notes) / total,
        },
        note=f"{replicas} replicas, memory of the larger; reports {bench.count_reports()}",
    )


def describe(note: Object) -> str:
    """What a replica says of its scan."""
    return f"judged {note['judged']}, written {note['written']}, refused {note['refused']}"


def bench(policies: Path) -> Iterator[Row]:
    """The rows of the table; on the control plane inside lictor where no other is to be had."""
    try:
        find_programs(print)
        words: tuple[str, ...] = ()
    except NoControlPlaneError:
        words = ("--cluster", "embedded")
    yield from run_real(parse_arguments(["--policies", str(policies), *words]))


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


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=PODS_OF_BAR)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--policies", type=Path, help="a folder with policies")
    parser.add_argument("--cluster", choices=("real", "embedded"), default="real")
    parser.add_argument("--rate", type=int, default=0, help="requests a second; 0: the default")
    parser.add_argument("--fake", type=int, default=0, help="so many objects, without a cluster")
    return parser.parse_args(words)


def main() -> int:
    """Read the arguments and run."""
    arguments = parse_arguments()
    if arguments.fake:
        run_fake(arguments.fake)
        return 0
    try:
        for row in run_real(arguments):
            bars.show(row)
    except NoControlPlaneError as absent:
        print(f"bench of scans: {absent}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
