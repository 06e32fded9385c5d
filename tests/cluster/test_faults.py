"""What goes wrong in real clusters, done on purpose while objects are being created.

One control plane for all of this file, as it is broken and healed again. Elections, rotations and
webhooks that go with their namespace are in test_leadership_faults.py, a cluster that starts while
nobody answers also in test_webhook_configurations.py, malformed reviews in
tests/unit/webhook/test_malformed.py.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Thread

import pytest
from control_plane.install import Installation, Replica, install_lictor
from control_plane.local import LocalCluster
from load import Answer, End, Object, Sample, ask, load, until

TAKEOVER = 15.0
# The API server gives a webhook ten seconds; beyond that it answers without us.
LONGEST = 10.0
CONFIGURATIONS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
NAMESPACES = ("stream", "broken", "broken-cel", "slow", "slow-cel", "greedy", "silent")
MAPS = "/api/v1/namespaces/{}/configmaps"
PODS = "/api/v1/namespaces/{}/pods"


def policy(name: str, *rules: Object, kind: str = "ClusterPolicy") -> Object:
    spec = {"failurePolicy": "Fail", "background": False, "rules": list(rules)}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def rule(name: str, kinds: list[str], body: Object, *namespaces: str, **more: object) -> Object:
    resources: Object = {"kinds": kinds}
    if namespaces:
        resources["namespaces"] = list(namespaces)
    return {"name": name, "match": {"any": [{"resources": resources}]}, **body, **more}


def enforce(message: str, **body: object) -> Object:
    return {"validate": {"failureAction": "Enforce", "message": message, **body}}


def never(key: str) -> Object:
    """Conditions that refuse nothing, once they are asked."""
    return {"conditions": {"any": [{"key": key, "operator": "Equals", "value": "never"}]}}


def validating(name: str, namespace: str, expression: str, **spec: object) -> Object:
    constraints = {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["configmaps"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": constraints,
            "validations": [{"expression": expression, "message": "no"}],
            **spec,
        },
    }


GOOD = (
    policy(
        "no-passwords",
        rule(
            "data", ["ConfigMap"], enforce("no passwords", pattern={"data": {"X(password)": "x"}})
        ),
    ),
    policy(
        "teams",
        rule(
            "team",
            ["Pod"],
            enforce("whose is it", pattern={"metadata": {"labels": {"team": "?*"}}}),
            "stream",
        ),
    ),
    policy(
        "stamps",
        rule(
            "stamp",
            ["ConfigMap", "Pod"],
            {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"judged": "yes"}}}}},
            "stream",
        ),
    ),
    validating("no-tokens", "stream", "!('token' in object.?data.orValue({}))"),
)
KEYS = "request.object.data.keys(@)"
SLOW = {"list": KEYS, "foreach": [{"list": KEYS, "foreach": [{"list": KEYS, "deny": None}]}]}
SLOW["foreach"][0]["foreach"][0]["deny"] = never("{{ element }}")
DOUBLING = [{"name": "v0", "variable": {"value": ["a", "b", "c", "d"]}}] + [
    {"name": f"v{n}", "variable": {"jmesPath": f"[{','.join([f'v{n - 1}'] * 9)}][]"}}
    for n in range(1, 10)
]


def bad_policies(silent: str) -> tuple[Object, ...]:
    """Policies that our own webhook would refuse in part, so they are there before it is."""
    asking = {"name": "answer", "apiCall": {"service": {"url": silent}, "method": "GET"}}
    return (
        policy(
            "broken",
            rule("nonsense", ["ConfigMap"], enforce("x", deny=never("{{ a.[ }}")), "broken"),
        ),
        validating("broken-cel", "broken-cel", "object.data. +"),
        policy("slow", rule("loops", ["ConfigMap"], enforce("x", foreach=[SLOW]), "slow")),
        validating(
            "slow-cel",
            "slow-cel",
            "variables.many.all(a, variables.many.all(b, variables.many.all(c, a + b + c >= 0)))",
            variables=[{"name": "many", "expression": "lists.range(9000)"}],
        ),
        policy(
            "greedy",
            rule(
                "doubles",
                ["ConfigMap"],
                enforce("x", deny=never("{{ length(v9) }}")),
                "greedy",
                context=DOUBLING,
            ),
        ),
        policy(
            "silent",
            rule(
                "asks",
                ["ConfigMap"],
                enforce("x", deny=never("{{ answer }}")),
                "silent",
                context=[asking],
            ),
        ),
    )


def config_map(namespace: str, **data: str) -> Sample:
    body = {"metadata": {"generateName": "stream-"}, "data": data or {"fine": "1"}}
    said = "no passwords" if "password" in data else "no-tokens" if "token" in data else ""
    label = "" if said or namespace != "stream" else "judged"
    return Sample(MAPS.format(namespace), body, said, label)


def pod(**labels: str) -> Sample:
    body = {
        "metadata": {"generateName": "stream-", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.local/main:1"}]},
    }
    said = "" if "team" in labels else "whose is it"
    return Sample(PODS.format("stream"), body, said, "" if said else "judged")


SAMPLES = (
    config_map("stream"),
    config_map("stream", password="1"),
    pod(team="red"),
    pod(),
    config_map("stream", token="1"),
)


@dataclass
class Site:
    """The cluster of this file and lictor in it."""

    plane: LocalCluster
    lictor: Installation

    def replicas(self) -> list[Replica]:
        """Two of them, ready, whatever the test before has done."""
        running = [each for each in self.lictor.replicas if each.process.is_running()]
        if len(running) != 2:
            self.lictor.stop()
            for _ in range(2):
                self.lictor.start_replica(wait=False)
        for each in self.lictor.replicas:
            self.lictor.wait_ready(each)
        until(self.leader, "a leader")
        return self.lictor.replicas

    def kill(self, replica: Replica) -> None:
        """`kill -9`; then, as the kubelet would see to, nobody is sent there any more."""
        replica.process.kill()
        slices = json.loads(
            self.plane.kubectl(
                "get", "endpointslices", "-n", self.lictor.namespace, "-o", "json"
            ).stdout
        )
        for each in slices["items"]:
            if any(port["port"] == replica.port for port in each["ports"]):
                name = each["metadata"]["name"]
                self.plane.kubectl("delete", "endpointslice", name, "-n", self.lictor.namespace)

    def leader(self) -> str:
        words = ("get", "lease", self.lictor.prefix, "-n", self.lictor.namespace)
        shown = self.plane.kubectl(*words, "-o", "jsonpath={.spec.holderIdentity}", check=False)
        return shown.stdout.strip()

    def find_leader(self) -> tuple[Replica, Replica]:
        """Who leads, and the other one."""
        number = int(self.leader().rpartition("-")[2]) - 1
        replicas = self.lictor.replicas
        return replicas[number], replicas[1 - number]

    def versions(self) -> dict[str, str]:
        """What must not change while nothing happens."""
        kinds = ",".join(CONFIGURATIONS)
        found = json.loads(self.plane.kubectl("get", kinds, "-o", "json").stdout)["items"]
        words = ("get", "secrets", "-n", self.lictor.namespace, "-o", "json")
        found += json.loads(self.plane.kubectl(*words).stdout)["items"]
        return {
            f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for each in found
        }

    def ask(self, sample: Sample) -> Answer:
        with self.plane.connect() as client:
            return ask(client, sample)

    def is_guarded(self) -> bool:
        """Is everything judged as policies want it?"""
        return all(self.ask(sample).end is End.RIGHT for sample in SAMPLES)


@pytest.fixture(scope="module")
def silent(plane: LocalCluster) -> Iterator[str]:
    """The address of a service that takes calls and never says a word."""
    host = str(ip_address(plane.address) - 1) if plane.routes_services else "127.0.0.1"
    with socket.create_server((host, 0)) as server:
        held: list[socket.socket] = []

        def hold() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        Thread(target=hold, daemon=True).start()
        yield f"http://{host}:{server.getsockname()[1]}/"
        for each in held:
            each.close()
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def plane(open_cluster: Callable[..., LocalCluster]) -> Iterator[LocalCluster]:
    with open_cluster() as plane:
        yield plane


@pytest.fixture(scope="module")
def site(plane: LocalCluster, silent: str) -> Site:
    lictor = install_lictor(plane, replicas=0)
    for name in NAMESPACES:
        plane.kubectl("create", "namespace", name)
    policies = {"apiVersion": "v1", "kind": "List", "items": [*GOOD, *bad_policies(silent)]}
    plane.kubectl("create", "-f", "-", stdin=json.dumps(policies))
    made = Site(plane, lictor)
    made.replicas()
    until(made.is_guarded, "policies that are enforced")
    return made


def test_a_killed_leader_is_followed_and_no_request_is_lost(site: Site) -> None:
    site.replicas()
    leader, other = site.find_leader()
    name = site.leader()
    with load(site.plane, SAMPLES) as stream:
        stream.wait_for(20)
        killed = time.monotonic()
        site.kill(leader)
        gone = time.monotonic() + 1  # by then the API server has heard of it
        took = until(lambda: site.leader() != name, "another leader", TAKEOVER)
        stream.wait_for(50)
    tell(f"another leads after {took:.1f} s; {stream.describe(killed)}")
    assert took < TAKEOVER
    # The dead one may have had a request in its hands; the living one lost none.
    assert stream.wrong(gone) == []
    dead = [each.text for each in stream.since(killed, gone) if each.end is not End.RIGHT]
    assert all("failed calling webhook" in text for text in dead)
    assert stream.count(End.LET_THROUGH) == 0
    # To be refused takes less time than to be answered.
    assert len(dead) <= stream.count(End.RIGHT, killed) / 4
    assert other.process.is_running()


def test_two_leaders_at_once_judge_alike(site: Site) -> None:
    site.replicas()
    leader, _ = site.find_leader()
    name = site.leader()
    control = find_child(leader, "control")
    with load(site.plane, SAMPLES) as stream:
        os.kill(control, signal.SIGSTOP)
        try:
            until(lambda: site.leader() != name, "another leader", TAKEOVER + 5)
            stream.wait_for(20)
            before = site.versions()
        finally:
            os.kill(control, signal.SIGCONT)
        # It wakes up as a leader, and goes on with what it did.
        for _ in range(5):
            time.sleep(0.5)
            assert site.versions() == before
        stream.wait_for(20)
    tell(stream.describe())
    assert stream.wrong() == []
    assert site.versions() == before


def tell(figures: str) -> None:
    """Figures for people; pytest shows them with `-rP`."""
    sys.stdout.write(f"{figures}\n")


def find_child(replica: Replica, role: str) -> int:
    log = replica.process.read_log(10**7)
    return int(re.findall(rf"process started role={role} child=(\d+)", log)[-1])


def test_a_worker_that_dies_is_replaced_under_load(site: Site) -> None:
    replica = site.replicas()[0]
    with load(site.plane, SAMPLES) as stream:
        stream.wait_for(20)
        killed = time.monotonic()
        os.kill(find_child(replica, "worker-0"), signal.SIGKILL)
        stream.wait_for(40)
        site.lictor.wait_ready(replica)
        stream.wait_for(20)
    tell(stream.describe(killed))
    # Only what it had in its hands is lost, which fails closed.
    assert len(stream.wrong(killed)) <= 2
    assert stream.count(End.LET_THROUGH) == 0


def test_processes_that_start_again_let_nothing_through(site: Site) -> None:
    """None of them knows a policy at first, and the port is open all the time."""
    replica = site.replicas()[0]
    with load(site.plane, SAMPLES) as stream:
        stream.wait_for(20)
        for _ in range(3):
            for role in ("worker-0", "worker-1", "slow-requests"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(find_child(replica, role), signal.SIGKILL)
            stream.wait_for(20)
        site.lictor.wait_ready(replica)
        stream.wait_for(20)
    tell(stream.describe())
    assert stream.count(End.LET_THROUGH) == 0


def test_an_api_server_that_restarts_under_load(site: Site) -> None:
    site.replicas()
    with load(site.plane, SAMPLES) as stream:
        stream.wait_for(20)
        stopped = time.monotonic()
        site.plane.restart_api_server(away=3, kill=True)
        back = time.monotonic()
        stream.wait_for(100)
        judged = next(each for each in stream.since(back) if each.end is End.RIGHT)
    tell(f"judged {judged.began - back:.1f} s after its return; {stream.describe(stopped)}")
    assert stream.wrong(but=(End.AWAY,)) == []
    assert judged.began - back < 10
    until(lambda: site.leader() and site.is_guarded(), "everything is as it was")
    assert all(each.process.is_running() for each in site.lictor.replicas)


@dataclass(frozen=True)
class Attack:
    """Objects that a bad policy is about, and what is said of them."""

    namespace: str
    said: tuple[str, ...]
    keys: int = 1
    times: int = 4

    @property
    def sample(self) -> Sample:
        return config_map(self.namespace, **{f"key-{number}": "v" for number in range(self.keys)})


ATTACKS = (
    Attack("broken", ("nonsense: 'failed to check deny conditions: incorrect query",)),
    Attack("broken-cel", ("Policy broken-cel error",)),
    # Eight at once may be more than wait for the process that takes slow requests; on a busy machine
    # the time of the request is over before that of the rules.
    Attack(
        "slow",
        ("took too long", "no time left", "too many requests at once", "in time"),
        keys=400,
        times=8,
    ),
    Attack("slow-cel", ("cost limit exceeded", "took too long")),
    Attack("greedy", ("too large", "out of memory", "took too long")),
    Attack("silent", ("no answer within",)),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.namespace)
def test_a_bad_policy_harms_only_what_it_is_about(site: Site, attack: Attack) -> None:
    site.replicas()
    with load(site.plane, SAMPLES) as stream, ThreadPoolExecutor(attack.times) as attackers:
        stream.wait_for(10)
        began = time.monotonic()
        answers = list(attackers.map(lambda _: site.ask(attack.sample), range(attack.times)))
        attacked = time.monotonic() - began
        # Policies that are right are heard beside it.
        beside = site.ask(config_map(attack.namespace, password="1"))
        stream.wait_for(20)
    tell(f"{attack.times} attacks in {attacked:.1f} s; {stream.describe(began)}")
    tell(answers[0].text)
    # What the policy is about is refused, as it cannot be judged.
    assert {each.end for each in answers} == {End.REFUSED}
    unexpected = [
        each.text for each in answers if not any(words in each.text for words in attack.said)
    ]
    assert unexpected == []
    assert attacked < LONGEST
    # Everything else is judged as ever, if later.
    assert stream.wrong() == []
    assert beside.end is not End.LET_THROUGH
    if attack.namespace in ("broken", "silent", "greedy"):
        assert beside.end is End.RIGHT, beside.text
    assert all(each.process.is_running() for each in site.lictor.replicas)


def test_a_cluster_without_us_starts_and_we_come_back(site: Site) -> None:
    everything = policy(
        "everything", rule("named", ["*"], enforce("x", pattern={"metadata": {"name": "?*"}}))
    )
    site.replicas()
    site.plane.kubectl("create", "-f", "-", stdin=json.dumps(everything))
    try:
        site.plane.kubectl("wait", "--for=condition=Ready", "cpol/everything", "--timeout=60s")
        for replica in site.lictor.replicas:
            replica.process.kill()
        site.plane.restart_api_server(kill=True)
        assert "failed calling webhook" in site.ask(config_map("stream")).text
        write_what_a_cold_cluster_needs(site)
        site.lictor.replicas.clear()
        site.lictor._started = 0
        began = time.monotonic()
        for _ in range(2):
            site.lictor.start_replica(wait=False)
        until(site.is_guarded, "everything is judged again")
        tell(f"judged {time.monotonic() - began:.1f} s after the start")
    finally:
        site.plane.kubectl("delete", "cpol", "everything", "--timeout=60s")


def write_what_a_cold_cluster_needs(site: Site) -> None:
    own = site.lictor.namespace
    kubectl = site.plane.kubectl
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cold"}}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "cold", "namespace": "kube-system"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "cold", "namespace": own},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": "registry.local/main:1",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
    for body in (node, lease, {**lease, "metadata": {"name": "cold", "namespace": own}}, pod):
        kubectl("create", "-f", "-", stdin=json.dumps(body))
    kubectl("create", "secret", "generic", "cold", "-n", own)
    kubectl("label", "namespace", own, "cold=yes")
    kubectl("label", "node", "cold", "cold=yes")
    kubectl("create", "token", "default", "-n", own)


def test_uninstalling_while_nothing_of_us_runs(site: Site) -> None:
    site.replicas()
    for replica in site.lictor.replicas:
        replica.process.kill()
    assert "failed calling webhook" in site.ask(config_map("stream")).text
    began = time.monotonic()
    words = ("uninstall", "--prefix", site.lictor.prefix, "--namespace", site.lictor.namespace)
    command = site.plane.command(sys.executable, "-m", "lictor", *words)
    done = subprocess.run(
        [*command, "--kubeconfig", str(site.plane.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tell(f"uninstalled in {time.monotonic() - began:.1f} s")
    shown = site.plane.kubectl("get", ",".join(CONFIGURATIONS), "-o", "name").stdout
    assert shown == ""
    answer = site.ask(config_map("stream", password="1"))
    assert answer.end is End.LET_THROUGH, "nobody is asked any more"
