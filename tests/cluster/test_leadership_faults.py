"""Replicas of the controllers that die, freeze or lose the API server: one leads, nothing flaps."""

import json
import os
import signal
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event, Thread

import httpx2
import pytest
from control_plane.cluster import Cluster
from control_plane.install import Installation, install_lictor
from control_plane.local import LocalCluster
from control_plane.process import Process

from lictor.http import keys

TAKEOVER = 15.0
CONFIGURATIONS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


@dataclass
class Controllers:
    """Replicas of `lictor control` for one installation."""

    cluster: Cluster
    installation: Installation
    processes: list[Process] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return self.installation.prefix

    @property
    def namespace(self) -> str:
        return self.installation.namespace

    def start(self, name: str, *flags: str) -> Process:
        number = 8100 + len(self.processes)
        process = self.cluster.start_lictor(
            "control",
            "admission",
            *("--kubeconfig", str(self.installation.kubeconfig), "--namespace", self.namespace),
            *("--prefix", self.prefix, f"--metricsPort={self.cluster.port(number)}"),
            *flags,
            environment={"POD_NAME": name, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.processes.append(process)
        return process

    def get(self, *words: str) -> dict:
        return json.loads(self.cluster.kubectl("get", *words, "-o", "json").stdout)

    def lease(self) -> dict:
        words = (
            "get",
            "lease",
            self.prefix,
            "-n",
            self.namespace,
            "-o",
            "json",
            "--ignore-not-found",
        )
        text = self.cluster.kubectl(*words, check=False).stdout
        return json.loads(text)["spec"] if text.strip() else {}

    def leader(self) -> str:
        return self.lease().get("holderIdentity", "")

    def stamp(self) -> str:
        """When a webhook answered last; only webhooks write this."""
        lease = self.get("lease", f"{self.prefix}-health", "-n", self.namespace)
        return lease["metadata"]["annotations"]["kyverno.io/last-request-time"]

    def secret(self, which: str) -> dict:
        name = f"{self.prefix}-svc.{self.namespace}.svc.{self.prefix}-tls-{which}"
        return self.get("secret", name, "-n", self.namespace)

    def certificates(self, which: str) -> tuple:
        return keys.read_certificates(b64decode(self.secret(which)["data"]["tls.crt"]).decode())

    def configurations(self) -> list[dict]:
        found = [item for kind in CONFIGURATIONS for item in self.get(kind)["items"]]
        return [item for item in found if item["metadata"]["name"].startswith(f"{self.prefix}-")]

    def versions(self) -> dict[str, str]:
        """What must not change while nothing happens."""
        secrets = self.get("secrets", "-n", self.namespace)["items"]
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for item in (*self.configurations(), *secrets)
        }

    def bundles(self) -> set[str]:
        """The authorities that the webhooks trust."""
        return {
            webhook["clientConfig"].get("caBundle", "")
            for configuration in self.configurations()
            for webhook in configuration.get("webhooks") or ()
        }

    def settle(self) -> None:
        """Wait until a leader has built everything."""
        names = 10
        until(lambda: len(self.configurations()) >= names, "webhook configurations", 40)


def until(condition: Callable[[], object], what: str, limit: float = 30.0) -> float:
    started = time.monotonic()
    while not condition():
        # Twice as long on a busy machine: whoever minds how long it took looks at the answer.
        if time.monotonic() - started > 2 * limit:
            pytest.fail(f"{what}: not after {2 * limit:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - started


def install(cluster: Cluster, prefix: str) -> Controllers:
    installation = install_lictor(cluster, prefix=prefix, namespace=prefix, replicas=0)
    return Controllers(cluster, installation)


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Controllers:
    """An installation of this file's own in the cluster of all tests."""
    return install(cluster, "leadership")


@pytest.fixture
def controllers(installed: Controllers) -> Iterator[Controllers]:
    """The installation before anything of it ran; no webhook is left that nobody answers."""
    yield installed
    for process in installed.processes:
        process.kill()
    installed.installation.stop()
    kubectl, namespace = installed.cluster.kubectl, installed.namespace
    for item in installed.configurations():
        kubectl("delete", item["kind"], item["metadata"]["name"])
    for kind in ("leases", "secrets"):
        kubectl("delete", kind, "--all", "-n", namespace)


@pytest.fixture
def alone(own_cluster: LocalCluster) -> Controllers:
    """An installation in a cluster that may be broken."""
    return install(own_cluster, "lictor")


def test_a_killed_leader_is_followed(controllers: Controllers) -> None:
    processes = {name: controllers.start(name) for name in ("first", "second")}
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    leader = controllers.leader()
    before = controllers.versions()
    processes[leader].kill()
    other = next(name for name in processes if name != leader)
    took = until(lambda: controllers.leader() == other, "the other leads", TAKEOVER)
    assert took < TAKEOVER
    assert controllers.lease()["leaseTransitions"] == 1
    # The new leader works, and found nothing to change.
    time.sleep(3)
    assert controllers.versions() == before
    controllers.cluster.kubectl(
        "delete",
        "validatingwebhookconfiguration",
        f"{controllers.prefix}-policy-validating-webhook-cfg",
    )
    controllers.settle()


def test_a_graceful_end_is_followed_at_once(controllers: Controllers) -> None:
    processes = {name: controllers.start(name) for name in ("first", "second")}
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    before = controllers.versions()
    leader = controllers.leader()
    other = next(name for name in processes if name != leader)
    until(lambda: "started" in processes[other].read_log(), "the other watches")
    processes[leader].stop()
    assert processes[leader].popen.returncode == 0
    assert until(lambda: controllers.leader() == other, "the other leads", 5) < 5
    time.sleep(2)
    assert controllers.versions() == before, "a restart takes no webhook away"


def test_two_leaders_at_once_do_not_quarrel(controllers: Controllers) -> None:
    processes = {name: controllers.start(name) for name in ("first", "second")}
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    frozen = controllers.leader()
    other = next(name for name in processes if name != frozen)
    group = processes[frozen].pid
    os.killpg(group, signal.SIGSTOP)
    try:
        until(lambda: controllers.leader() == other, "the other leads", TAKEOVER + 5)
        time.sleep(2)
        before = controllers.versions()
    finally:
        os.killpg(group, signal.SIGCONT)
    # It wakes up as a leader, in the middle of whatever it did.
    for _ in range(8):
        time.sleep(1)
        assert controllers.leader() == other
        assert controllers.versions() == before
    until(lambda: "leadership lost" in processes[frozen].read_log(), "it knows", 10)
    assert processes[frozen].is_running()


def test_someone_who_takes_the_lease_by_hand_is_obeyed(controllers: Controllers) -> None:
    process = controllers.start("only")
    until(lambda: controllers.leader() == "only", "a leader", 40)
    patch = json.dumps({"spec": {"holderIdentity": "foo"}})
    words = (
        "patch",
        "lease",
        controllers.prefix,
        "-n",
        controllers.namespace,
        "--type=merge",
        "-p",
        patch,
    )
    controllers.cluster.kubectl(*words)
    until(lambda: "leadership lost" in process.read_log(), "it stops", 10)
    until(lambda: controllers.leader() == "only", "it leads again", 25)


def test_an_api_server_that_restarts(alone: Controllers) -> None:
    controllers = alone
    processes = {name: controllers.start(name) for name in ("first", "second")}
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    before = controllers.versions()
    controllers.cluster.restart_api_server(away=15, kill=True)
    renewed = controllers.lease().get("renewTime")
    until(lambda: controllers.lease().get("renewTime") != renewed, "someone leads", 40)
    time.sleep(5)
    assert controllers.leader() in processes
    assert controllers.versions() == before
    assert all(process.is_running() for process in processes.values())
    controllers.cluster.kubectl(
        "delete",
        "mutatingwebhookconfiguration",
        f"{controllers.prefix}-resource-mutating-webhook-cfg",
    )
    controllers.settle()


def test_certificates_rotate_with_overlap(controllers: Controllers) -> None:
    first = controllers.start("first")
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    (old,) = controllers.certificates("ca")
    (leaf,) = controllers.certificates("pair")
    assert keys.is_issued_by(leaf, old)
    first.stop()
    controllers.start("second", "--tlsKeyAlgorithm=ECDSA")
    until(lambda: len(controllers.certificates("ca")) == 2, "a second authority", 30)
    new, kept = controllers.certificates("ca")
    assert kept == old
    assert keys.find_algorithm(new) == keys.Algorithm.ECDSA
    bundle = b64encode(keys.write_certificates((new, old)).encode()).decode()
    until(lambda: controllers.bundles() == {bundle}, "webhooks that trust both")
    assert controllers.certificates("pair") == (leaf,), "the server waits for them"
    until(lambda: controllers.certificates("pair") != (leaf,), "a new certificate", 40)
    (fresh,) = controllers.certificates("pair")
    assert keys.is_issued_by(fresh, new)
    assert keys.find_algorithm(fresh) == keys.Algorithm.ECDSA


POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: rotation}
spec:
  failurePolicy: Fail
  rules:
  - name: no-secrets-here
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [rotation]}}]}
    validate:
      failureAction: Enforce
      message: no passwords
      pattern: {data: {X(password): "null"}}
"""


class Load(Thread):
    """Requests that are judged by a policy that fails closed, one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.asked = 0
        self.wrong: list[str] = []
        self.enough = Event()

    def run(self) -> None:
        path = "/api/v1/namespaces/rotation/configmaps?dryRun=All"
        with self.cluster.connect() as client:
            while not self.enough.is_set():
                bad = self.asked % 2 == 0
                body = {"metadata": {"name": "x"}, "data": {"password" if bad else "fine": "1"}}
                answer = client.post(path, json=body)
                expected = 400 if bad else 201
                if answer.status_code != expected or (bad and "no passwords" not in answer.text):
                    self.wrong.append(answer.text[:300])
                self.asked += 1
                time.sleep(0.02)


def test_rotation_under_load_fails_no_request(controllers: Controllers) -> None:
    cluster = controllers.cluster
    first = controllers.start("first")
    controllers.settle()
    controllers.installation.start_replica("--no-control")
    cluster.kubectl("create", "namespace", "rotation")
    cluster.kubectl("apply", "-f", "-", stdin=POLICY)
    cluster.kubectl("wait", "--for=condition=Ready", "cpol/rotation", "--timeout=40s")
    leaf, stamp = controllers.certificates("pair"), controllers.stamp()
    load = Load(cluster)
    load.start()
    first.stop()
    controllers.start("second", "--tlsKeyAlgorithm=ECDSA")
    until(lambda: controllers.certificates("pair") != leaf, "a new certificate", 90)
    time.sleep(10)
    load.enough.set()
    load.join()
    cluster.kubectl("delete", "cpol", "rotation")
    assert load.asked > 100
    assert load.wrong == []
    assert controllers.stamp() != stamp, "heartbeats came through"


REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "operation": "CREATE",
        "name": "x",
        "namespace": "rotation",
        "userInfo": {"username": "someone"},
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "rotation"},
        },
    },
}


def test_a_killed_leader_loses_no_request_of_another_replica(controllers: Controllers) -> None:
    installation = controllers.installation
    for _ in range(2):
        installation.start_replica()
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    logs = {replica.number: replica.process.read_log(10**6) for replica in installation.replicas}
    (number,) = [number for number, log in logs.items() if "started leading" in log]
    victim = installation.replicas[number]
    other = installation.replicas[1 - number]
    leader = controllers.leader()
    victim.process.kill()
    killed = time.monotonic()
    url = f"https://{controllers.cluster.address}:{other.port}/validate/fail"
    with httpx2.Client(verify=False, timeout=5, trust_env=False) as client:
        while controllers.leader() == leader:
            assert time.monotonic() - killed < TAKEOVER
            for _ in range(10):
                answer = client.post(url, json=REVIEW)
                assert answer.status_code == 200, answer.text
                assert answer.json()["response"]["uid"] == "1"
    assert "started leading" in other.process.read_log(10**6)


@pytest.mark.parametrize("which", ["ca", "pair"])
def test_a_lost_secret_comes_back(controllers: Controllers, which: str) -> None:
    controllers.start("first")
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    name = controllers.secret(which)["metadata"]["name"]
    controllers.cluster.kubectl("delete", "secret", name, "-n", controllers.namespace)

    def is_whole() -> bool:
        secrets = controllers.get("secrets", "-n", controllers.namespace)["items"]
        if name not in [item["metadata"]["name"] for item in secrets]:
            return False
        (authority,) = controllers.certificates("ca")
        (leaf,) = controllers.certificates("pair")
        pem = b64encode(keys.write_certificates((authority,)).encode()).decode()
        return keys.is_issued_by(leaf, authority) and controllers.bundles() == {pem}

    until(is_whole, "Secrets and webhooks that belong together", 20)


def test_the_webhooks_go_with_the_namespace(controllers: Controllers) -> None:
    if not controllers.cluster.collects_garbage:
        pytest.skip("no controller manager")
    process = controllers.start("first")
    until(controllers.leader, "a leader", 40)
    controllers.settle()
    role = f"{controllers.prefix}:admission-controller"
    until(lambda: controllers.get("clusterrole", role)["metadata"].get("ownerReferences"), "owner")
    # Nothing of us runs.
    process.kill()
    controllers.cluster.kubectl("delete", "namespace", controllers.namespace, "--wait=false")
    until(lambda: not controllers.configurations(), "no webhook configuration", 60)
