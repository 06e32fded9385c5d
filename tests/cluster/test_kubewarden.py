"""Kubewarden's policies without PolicyServers: lictor itself is the default server."""

import base64
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from cluster_guests import MARK, REFUSAL, write_guests
from control_plane.install import Installation, install_lictor
from control_plane.local import LocalCluster
from load import Object

from lictor.images.manifests import CONFIG_TYPE, LAYER_TYPE

sys.path.append(str(Path(__file__).parents[1] / "unit" / "images"))

from registry_server import Answer, RegistryServer, digest_of

GROUP = "policies.kubewarden.io"
PATIENCE = 60.0


@dataclass
class Site:
    """The cluster of this file and lictor in it."""

    plane: LocalCluster
    lictor: Installation
    guests: Path
    made: list[str] = field(default_factory=list)

    def try_to(self, word: str, body: Object) -> tuple[bool, str]:
        done = self.plane.kubectl(word, "-f", "-", stdin=json.dumps(body), check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def add_policy(self, name: str, module: str, **spec: object) -> None:
        body = make_policy(name, f"file://{self.guests}/{module}.wasm", **spec)
        done, told = self.try_to("apply", body)
        assert done, told
        self.made.append(name)

    def find(self, resource: str, name: str, *words: str) -> Object | None:
        done = self.plane.kubectl("get", resource, name, *words, "-o", "json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def stage(self, name: str) -> tuple[str, str]:
        """The status of a policy, and why it is not active."""
        found = self.find(f"clusteradmissionpolicies.{GROUP}", name) or {}
        status = found.get("status") or {}
        told = [each for each in status.get("conditions") or () if each["type"] == "PolicyActive"]
        return status.get("policyStatus", ""), told[0]["message"] if told else ""

    def wait_for_stage(self, name: str, stage: str) -> str:
        """Returns the reason."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.stage(name))[0] != stage:
            assert time.monotonic() < deadline, (found, self.lictor.process.read_log()[-3000:])
            time.sleep(0.2)
        return found[1]

    def create_pod(self, name: str, namespace: str = "red") -> tuple[bool, str]:
        return self.try_to("create", make_pod(name, namespace))

    def clean_up(self) -> None:
        for name in self.made:
            words = ("delete", f"clusteradmissionpolicies.{GROUP}", name, "--timeout=30s")
            self.plane.kubectl(*words, "--ignore-not-found")
        self.made.clear()


def make_policy(name: str, module: str, **spec: object) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    body = {"module": module, "rules": [rule], "mutating": False, "settings": {}, **spec}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterAdmissionPolicy",
        "metadata": {"name": name},
        "spec": body,
    }


def make_pod(name: str, namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "ghcr.io/acme/web:1"}]},
    }


@pytest.fixture(scope="module")
def whole_site(
    open_cluster: "partial[LocalCluster]", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    guests = write_guests(tmp_path_factory.mktemp("modules"))
    with open_cluster() as plane:
        plane.kubectl("create", "namespace", "red")
        lictor = install_lictor(plane, flags=(f"--moduleFolders={guests}",))
        lictor.start_controller("reports-controller")
        yield Site(plane, lictor, guests)


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    yield whole_site
    whole_site.clean_up()


def test_a_policy_becomes_active_and_refuses(site: Site) -> None:
    site.add_policy("refuse", "refuse_marked")
    site.wait_for_stage("refuse", "active")
    webhook = site.find("validatingwebhookconfigurations", "clusterwide-refuse")
    assert webhook is not None
    assert webhook["webhooks"][0]["name"] == "clusterwide-refuse.kubewarden.admission"
    done, told = site.create_pod(MARK)
    assert not done
    assert REFUSAL in told
    done, told = site.create_pod("fine")
    assert done, told


def test_a_policy_changes_a_pod(site: Site) -> None:
    site.add_policy("change", "change", mutating=True)
    site.wait_for_stage("change", "active")
    assert site.find("mutatingwebhookconfigurations", "clusterwide-change")
    done, told = site.create_pod("changed")
    assert done, told
    pod = site.find("pod", "changed", "-n", "red")
    assert pod is not None
    assert pod["metadata"]["labels"] == {"by": "a-policy"}


def test_monitor_refuses_nobody(site: Site) -> None:
    site.add_policy("monitor", "refuse", mode="monitor")
    site.wait_for_stage("monitor", "active")
    done, told = site.create_pod("watched")
    assert done, told


def test_protection_is_not_taken_back(site: Site) -> None:
    site.add_policy("strict", "accept", mode="protect")
    body = make_policy("strict", f"file://{site.guests}/accept.wasm", mode="monitor")
    done, told = site.try_to("apply", body)
    assert not done
    assert "mode" in told


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("file:///etc/passwd", "not in a folder that modules may come from"),
        ("registry://localhost:9/none:1", "localhost:9"),
    ],
)
def test_a_module_that_cannot_be_had_is_told(site: Site, module: str, reason: str) -> None:
    site.made.append("missing")
    done, told = site.try_to("create", make_policy("missing", module))
    assert done, told
    deadline = time.monotonic() + PATIENCE
    while reason not in (found := site.stage("missing"))[1]:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    assert found[0] == "pending"
    # Nobody is held up by it.
    assert site.find("validatingwebhookconfigurations", "clusterwide-missing") is None
    done, told = site.create_pod("unhindered")
    assert done, told
    site.plane.kubectl("delete", "pod", "unhindered", "-n", "red", "--force")


def test_wrong_settings_are_told_and_refuse(site: Site) -> None:
    site.add_policy("invalid", "invalid")
    deadline = time.monotonic() + PATIENCE
    while "team is missing" not in (found := site.stage("invalid"))[1]:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    assert found[0] == "pending"
    # Requests are refused until the settings are valid, as in Kubewarden.
    while (tried := site.create_pod("refused"))[0]:
        site.plane.kubectl("delete", "pod", "refused", "-n", "red", "--force")
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "team is missing" in tried[1]


def test_a_policy_is_gone_when_it_is_deleted(site: Site) -> None:
    site.add_policy("short", "refuse")
    site.wait_for_stage("short", "active")
    site.clean_up()
    assert site.find("validatingwebhookconfigurations", "clusterwide-short") is None
    done, told = site.create_pod("afterwards")
    assert done, told


def test_an_existing_pod_is_reported(site: Site) -> None:
    done, told = site.create_pod(f"{MARK}-before")
    assert done, told
    site.add_policy("report", "refuse_marked")
    pod = site.find("pod", f"{MARK}-before", "-n", "red")
    assert pod is not None
    deadline = time.monotonic() + PATIENCE
    while not (found := find_results(site, pod["metadata"]["uid"])):
        assert time.monotonic() < deadline, site.lictor.controllers[0].process.read_log()[-3000:]
        time.sleep(0.5)
    [result] = found
    assert result["result"] == "fail"
    assert result["message"] == REFUSAL
    assert result["source"] == "kubewarden"


def find_results(site: Site, uid: str) -> list[Object]:
    report = site.find("policyreports.wgpolicyk8s.io", uid, "-n", "red") or {}
    results = report.get("results") or []
    return [each for each in results if each["policy"] == "clusterwide-report"]


LOGIN = base64.b64encode(b"anna:secret").decode()


@pytest.fixture
def registry(whole_site: Site) -> Iterator[RegistryServer]:
    """A registry without TLS that only anna may read, with the module that refuses."""
    # Where the cluster has a network of its own, the test is its neighbour.
    plane = whole_site.plane
    host = str(ip_address(plane.address) - 1) if plane.routes_services else "127.0.0.1"
    content = (whole_site.guests / "refuse_marked.wasm").read_bytes()
    with RegistryServer(host) as started:
        started.name = f"{host}:{started.port}"
        layer = {"mediaType": LAYER_TYPE, "digest": digest_of(content), "size": len(content)}
        started.put_blob("p/demo", content)
        config = {"mediaType": CONFIG_TYPE, "digest": started.put_blob("p/demo", b"{}"), "size": 2}
        document = {"schemaVersion": 2, "config": config, "layers": [layer]}
        started.put_manifest("p/demo", document, "v1")
        started.handle = refuse_strangers
        yield started


def refuse_strangers(_path: str, headers: Mapping[str, str]) -> Answer | None:
    if headers.get("authorization") == f"Basic {LOGIN}":
        return None
    return 401, {"WWW-Authenticate": 'Basic realm="here"'}, b"{}"


def test_a_scan_fetches_modules_as_the_server_of_a_policy_does(
    site: Site, registry: RegistryServer
) -> None:
    """What one server may read is not read for policies of another."""
    done, told = site.create_pod(f"{MARK}-scanned")
    assert done, told
    give_secret(site, registry)
    add_server(site, "green", insecureSources=[registry.name], imagePullSecret="pull")
    add_server(site, "blue", insecureSources=[registry.name])
    for name, server in (("seen", "green"), ("unseen", "blue"), ("homeless", "nobody")):
        body = make_policy(name, f"registry://{registry.name}/p/demo:v1", policyServer=server)
        done, told = site.try_to("create", body)
        assert done, told
        site.made.append(name)
    pod = site.find("pod", f"{MARK}-scanned", "-n", "red")
    assert pod is not None
    assert wait_for_result(site, pod, "seen", "fail")["message"] == REFUSAL
    assert registry.name in wait_for_result(site, pod, "unseen", "error")["message"]
    told = wait_for_result(site, pod, "homeless", "error")["message"]
    assert "no PolicyServer nobody" in told
    # What was wrong is put right, and the report says so.
    add_server(site, "nobody", insecureSources=[registry.name], imagePullSecret="pull")
    wait_for_result(site, pod, "homeless", "fail")
    for name in ("green", "blue", "nobody"):
        site.plane.kubectl("delete", f"policyservers.{GROUP}", name, "--timeout=60s")


def add_server(site: Site, name: str, **spec: object) -> None:
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "PolicyServer",
        "metadata": {"name": name},
        "spec": {"image": "ghcr.io/acme/lictor:1", "replicas": 1, **spec},
    }
    done, told = site.try_to("apply", body)
    assert done, told


def give_secret(site: Site, registry: RegistryServer) -> None:
    """In the namespace of the servers; as docs/guides/kubewarden.md says, reports may read it."""
    account = "system:serviceaccount:lictor:lictor-reports-controller"
    login = (
        f"--docker-server={registry.name}",
        "--docker-username=anna",
        "--docker-password=secret",
    )
    for words in (
        ("secret", "docker-registry", "pull", *login),
        ("role", "pull", "--verb=get", "--resource=secrets", "--resource-name=pull"),
        ("rolebinding", "pull", "--role=pull", f"--user={account}"),
    ):
        site.plane.kubectl("create", *words, "-n", "lictor")


def wait_for_result(site: Site, pod: Object, policy: str, wanted: str) -> Object:
    deadline = time.monotonic() + PATIENCE
    while True:
        report = site.find("policyreports.wgpolicyk8s.io", pod["metadata"]["uid"], "-n", "red")
        for each in (report or {}).get("results") or ():
            if each["policy"] == f"clusterwide-{policy}" and each["result"] == wanted:
                found: Object = each
                return found
        log = site.lictor.controllers[0].process.read_log()[-3000:]
        assert time.monotonic() < deadline, (policy, report, log)
        time.sleep(0.5)
