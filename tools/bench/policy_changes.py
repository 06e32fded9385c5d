"""Thousands of policies in a cluster: until they are served, memory, and one that changes under load.

    python tools/bench/policy_changes.py [--policies 3000] [--exceptions 10000] [--namespaces 5000]

On the cluster inside lictor. Most policies name a namespace of their own, as those of many teams do;
18 concern the request that is sent, and so does the one that changes. It is in force when every
process of the server answers by it.
"""

import argparse
import copy
import json
import ssl
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster")]

import bars  # noqa: E402
import httpx2  # noqa: E402
import yaml  # noqa: E402
from admission import Load, drive_elsewhere  # noqa: E402
from bars import Row  # noqa: E402
from control_plane.embedded import EmbeddedCluster  # noqa: E402
from control_plane.install import Installation, Replica, install_lictor  # noqa: E402
from measuring import list_processes, read_cpu  # noqa: E402

Object = dict[str, Any]
CHANGING = "/apis/kyverno.io/v1/clusterpolicies/zz-changing"
_PATH = "/validate/fail?timeout=10s"
_HEADERS = {"content-type": "application/json"}
# Connections that must answer by the new policy: more than the server has processes.
_WITNESSES = 12


def read_policies(folder: Path) -> list[Object]:
    """The policies that concern the request."""
    return [
        document
        for path in sorted(folder.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document and document.get("kind") == "ClusterPolicy"
    ]


def make_policies(originals: list[Object], count: int) -> list[Object]:
    """Those, one that changes, and as many of other teams as are missing."""
    others = [
        _limit_to_team(originals[number % len(originals)], number)
        for number in range(count - len(originals) - 1)
    ]
    return [*originals, make_changing(0), *others]


def _limit_to_team(policy: Object, number: int) -> Object:
    """The policy of a team: what it says holds in one namespace only."""
    made = copy.deepcopy(policy)
    made["metadata"]["name"] += f"-team-{number}"
    for rule in made["spec"]["rules"]:
        for clause in rule["match"]["any"]:
            clause["resources"]["namespaces"] = [f"team-{number}"]
    return made


def make_changing(version: int) -> Object:
    """A policy that refuses Pods which say that they are of this version."""
    rule = {
        "name": "marked",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {
            "message": f"version {version}",
            "pattern": {"metadata": {"=(labels)": {"=(marked)": f"!v{version}"}}},
        },
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "zz-changing"},
        "spec": {"validationFailureAction": "Enforce", "rules": [rule]},
    }


def make_exceptions(count: int) -> list[Object]:
    """Exceptions of teams from policies of theirs."""
    return [
        {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": f"exception-{number}", "namespace": "lictor"},
            "spec": {
                "exceptions": [{"policyName": f"none-team-{number}", "ruleNames": ["*"]}],
                "match": {"any": [{"resources": {"kinds": ["Pod"], "names": [f"p-{number}"]}}]},
            },
        }
        for number in range(count)
    ]


def make_namespaces(count: int) -> list[Object]:
    """Namespaces of teams."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}}
        for number in range(count)
    ]


def store(cluster: EmbeddedCluster, path: str, objects: Iterable[Object]) -> None:
    """Create objects, several at a time."""
    with cluster.connect() as client, ThreadPoolExecutor(8) as pool:

        def create(body: Object) -> None:
            answer = client.post(path, json=body)
            if answer.status_code not in (201, 409):
                raise RuntimeError(answer.text)

        list(pool.map(create, objects))


class Witnesses:
    """Connections to the server: which answer is given on each of them?"""

    def __init__(self, address: str, port: int, review: Object) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._url = f"https://{address}:{port}{_PATH}"
        self._review = review
        self._clients = [
            httpx2.Client(verify=context, timeout=30, trust_env=False, headers=_HEADERS)
            for _ in range(_WITNESSES)
        ]

    def wait_for(self, version: int, seconds: float = 60) -> None:
        """Until all of them refuse a Pod of this version."""
        body = copy.deepcopy(self._review)
        labels = body["request"]["object"]["metadata"].setdefault("labels", {})
        labels["marked"] = f"v{version}"
        content = json.dumps(body)
        deadline = time.monotonic() + seconds
        waiting = list(self._clients)
        answers = [""]
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"version {version} is not in force on {len(waiting)}: {answers[0]}"
                )
            answers = [client.post(self._url, content=content).text for client in waiting]
            pairs = zip(waiting, answers, strict=True)
            waiting = [client for client, answer in pairs if f"version {version}" not in answer]
            time.sleep(0.01)

    def close(self) -> None:
        """End the connections."""
        for client in self._clients:
            client.close()


def show_memory(replica: Replica) -> None:
    """What each process has for itself, and all together."""
    sizes: list[tuple[float, float]] = []
    for pid in list_processes(replica.process.pid):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        values = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
        sizes.append((int(values["Rss"]) / 1024, int(values["Pss"]) / 1024))
    total = sum(shared for _, shared in sizes)
    each = ", ".join(f"{resident:.0f}" for resident, _ in sizes)
    print(f"  memory: {total:.0f} MB in all, shared pages counted once; each process {each} MB")


def measure_load(replica: Replica, review: Path, count: int, rate: float) -> Load:
    """Requests that are allowed, at this rate."""
    return drive_elsewhere(replica.port, review, count, 8, rate)


def change_under_load(
    cluster: EmbeddedCluster, replica: Replica, review: Path, changes: int, rate: float
) -> Iterator[Row]:
    """Change the policy again and again while requests come in."""
    body = json.loads(review.read_text(encoding="utf-8"))
    witnesses = Witnesses(cluster.address, replica.port, body)
    witnesses.wait_for(0)
    seconds = 3.0 * changes
    with ThreadPoolExecutor(1) as pool, cluster.connect() as client:
        load: Future[Load] = pool.submit(
            measure_load, replica, review, int(rate * (seconds + 4)), rate
        )
        time.sleep(2)
        delays = [_change(client, witnesses, number + 1) for number in range(changes)]
        found = load.result()
    witnesses.close()
    delays.sort()
    yield bars.CHANGE_IN_FORCE.judge(
        {"s": delays[-1]},
        note=f"at most, of {changes} changes at {rate:.0f} requests/s; half of them within "
        f"{delays[len(delays) // 2]:.2f} s",
    )
    yield bars.CHANGE_LATENCY.judge(
        {"ms": found.latency(0.99), "wrong": float(found.errors)},
        note=f"of {found.requests} requests; p50 {found.latency(0.5):.1f} ms; while the host took no "
        f"core away p99 {found.undisturbed_latency(0.99):.1f} ms",
    )


def _change(client: httpx2.Client, witnesses: Witnesses, version: int) -> float:
    policy = client.get(CHANGING).json()
    policy["spec"] = make_changing(version)["spec"]
    began = time.monotonic()
    client.put(CHANGING, json=policy).raise_for_status()
    witnesses.wait_for(version)
    delay = time.monotonic() - began
    time.sleep(max(3.0 - delay, 0.0))
    return delay


def wait_for_rest(cluster: EmbeddedCluster, seconds: float = 600) -> None:
    """Until the status of every policy is written, and what follows from it is over."""
    deadline = time.monotonic() + seconds
    with cluster.connect() as client:
        while time.monotonic() < deadline:
            listed = client.get("/apis/kyverno.io/v1/clusterpolicies").json()["items"]
            time.sleep(5)
            if all((each.get("status") or {}).get("conditions") for each in listed):
                return
    raise TimeoutError("the cluster does not come to rest")


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    """Fill the cluster, start the server, measure."""
    bench = arguments.shared / "bench"
    review = bench / "review-allowed.json"
    policies = make_policies(read_policies(bench / "pss"), arguments.policies)
    with EmbeddedCluster(loopback=True) as cluster:
        installation = install_lictor(cluster, replicas=0, flags=("--exceptionNamespace=lictor",))
        store(cluster, "/apis/kyverno.io/v1/clusterpolicies", policies)
        store(cluster, "/api/v1/namespaces", make_namespaces(arguments.namespaces))
        path = "/apis/kyverno.io/v2/namespaces/lictor/policyexceptions"
        store(cluster, path, make_exceptions(arguments.exceptions))
        print(
            f"{len(policies)} policies, {arguments.exceptions} exceptions, "
            f"{arguments.namespaces} namespaces"
        )
        yield from _measure(installation, cluster, review, arguments)
        installation.stop()


def _measure(
    installation: Installation,
    cluster: EmbeddedCluster,
    review: Path,
    arguments: argparse.Namespace,
) -> Iterator[Row]:
    began = time.monotonic()
    replica = installation.start_replica(wait=False)
    installation.wait_ready(replica, 600)
    print(
        f"  ready after {time.monotonic() - began:.1f} s, {read_cpu(replica.process.pid):.1f} CPU-s"
    )
    wait_for_rest(cluster)
    measure_load(replica, review, 2000, 0)
    before = read_cpu(replica.process.pid)
    found = measure_load(replica, review, arguments.requests, 0)
    cpu = (read_cpu(replica.process.pid) - before) / arguments.requests * 1e3
    print(f"  a request: {cpu:.3f} ms of CPU, {found.errors} wrong, {found.rate:.0f} a second")
    show_memory(replica)
    yield from change_under_load(cluster, replica, review, arguments.changes, arguments.rate)
    show_memory(replica)


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--policies", type=int, default=3000)
    parser.add_argument("--exceptions", type=int, default=0)
    parser.add_argument("--namespaces", type=int, default=0)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=8)
    parser.add_argument("--rate", type=float, default=300.0)
    return parser.parse_args(words)


def bench(shared: Path) -> Iterator[Row]:
    """The rows of the table: 3,000 policies, one of them changing under load."""
    yield from run(parse_arguments(["--shared", str(shared)]))


def main() -> int:
    """Read the arguments and run."""
    arguments = parse_arguments()
    if not (arguments.shared / "bench" / "pss").is_dir():
        print(f"bench of changes: {arguments.shared}/bench is not here")
        return 0
    for row in run(arguments):
        bars.show(row)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
