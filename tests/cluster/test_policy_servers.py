"""PolicyServers: their Pods come, policies follow, and none is without an answer for a moment."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from cluster_guests import MARK, REFUSAL, write_guests
from control_plane.install import install_lictor
from control_plane.local import LocalCluster
from policy_server_pods import PodRunner
from test_kubewarden import GROUP, PATIENCE, Site, make_pod

NAMESPACE = "lictor"
# Each has a port for probes of its own: all Pods are on one address.
PROBES = {"green": 18081, "blue": 18082}


@pytest.fixture(scope="module")
def site(
    open_cluster: Callable[[], LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    guests = write_guests(tmp_path_factory.mktemp("modules"))
    with open_cluster() as plane:
        if not plane.routes_services:
            pytest.skip("API servers reach Services only in a network namespace")
        plane.kubectl("create", "namespace", "red")
        yield Site(plane, install_lictor(plane), guests)


@pytest.fixture(scope="module")
def pods(site: Site) -> Iterator[PodRunner]:
    made = PodRunner(site.plane, NAMESPACE)
    yield made
    made.close()


def add_server(site: Site, name: str) -> None:
    spec = {"image": "ghcr.io/acme/lictor:1", "replicas": 1, "minAvailable": 1}
    spec["readinessProbePort"] = PROBES[name]
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "PolicyServer",
        "metadata": {"name": name},
        "spec": spec,
    }
    done, told = site.try_to("apply", body)
    assert done, told


def find_service(site: Site, name: str) -> str:
    found = site.find("validatingwebhookconfigurations", name)
    return found["webhooks"][0]["clientConfig"]["service"]["name"] if found else ""


class Siege:
    """Asks for a Pod that is refused, over and over, and notes what was let through."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._is_over = threading.Event()
        self.asked = 0
        self.passed: list[int] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Siege":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        path = "/api/v1/namespaces/red/pods"
        with self._site.plane.connect() as client:
            while not self._is_over.is_set():
                answer = client.post(path, params={"dryRun": "All"}, json=make_pod(MARK, "red"))
                self.asked += 1
                if answer.status_code < 300:
                    self.passed.append(self.asked)
                elif REFUSAL not in answer.text:
                    self.passed.append(-self.asked)
                time.sleep(0.02)


def test_a_policy_finds_its_server_and_moves_to_another(site: Site, pods: PodRunner) -> None:
    site.add_policy("moving", "refuse_marked", policyServer="green")
    assert "no PolicyServer green" in site.wait_for_stage("moving", "unscheduled")
    assert site.create_pod(f"{MARK}-1")[0]
    add_server(site, "green")
    site.wait_for_stage("moving", "pending")
    try:
        site.wait_for_stage("moving", "active")
    except AssertionError:
        pytest.fail(f"{pods.failure}\n{pods.logs}\n{site.stage('moving')}")
    done, told = site.create_pod(f"{MARK}-2")
    assert not done
    assert REFUSAL in told
    assert find_service(site, "clusterwide-moving") == "policy-server-green"
    for resource in ("deployment", "service", "configmap", "secret", "poddisruptionbudget"):
        assert site.find(resource, "policy-server-green", "-n", NAMESPACE), resource
    add_server(site, "blue")
    with Siege(site) as siege:
        site.add_policy("moving", "refuse_marked", policyServer="blue")
        deadline = time.monotonic() + PATIENCE
        while find_service(site, "clusterwide-moving") != "policy-server-blue":
            assert time.monotonic() < deadline, f"{pods.failure}\n{pods.logs}"
            time.sleep(0.3)
        # Green goes on without it, and nobody notices.
        time.sleep(4)
    assert siege.asked > 20
    assert siege.passed == []


def wait_for(is_so: Callable[[], bool], pods: PodRunner) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"{pods.failure}\n{pods.logs}"
        time.sleep(0.3)


def test_policies_change_without_new_pods(site: Site, pods: PodRunner) -> None:
    add_server(site, "blue")
    site.add_policy("swap", "accept", policyServer="blue")
    site.wait_for_stage("swap", "active")
    started = list(pods.started)
    assert site.create_pod("swap-1")[0]
    # Those that cannot be loaded say why; one with invalid settings refuses, as in Kubewarden.
    site.add_policy("away", "not-there", policyServer="blue")
    site.add_policy("swap", "refuse", policyServer="blue")
    wait_for(lambda: REFUSAL in site.create_pod("swap-2", "default")[1], pods)
    site.add_policy("broken", "invalid", policyServer="blue")
    wait_for(lambda: "team is missing" in site.stage("broken")[1], pods)
    wait_for(lambda: "not-there" in site.stage("away")[1], pods)
    stages = {name: site.stage(name)[0] for name in ("broken", "away", "swap", "moving")}
    assert stages == {"broken": "pending", "away": "pending", "swap": "active", "moving": "active"}
    assert find_service(site, "clusterwide-away") == ""
    assert find_service(site, "clusterwide-broken") == find_service(site, "clusterwide-swap")
    # Repaired, it is in force; broken again, it refuses, and is not called active.
    site.add_policy("swap", "accept", policyServer="blue")
    site.add_policy("broken", "accept", policyServer="blue")
    site.wait_for_stage("broken", "active")
    site.add_policy("broken", "invalid", policyServer="blue")
    assert "are denied" in site.wait_for_stage("broken", "pending")
    wait_for(lambda: "team is missing" in site.create_pod("swap-3", "default")[1], pods)
    assert pods.started == started
    for name in ("swap", "broken", "away"):
        site.plane.kubectl("delete", f"clusteradmissionpolicies.{GROUP}", name, "--timeout=30s")
    assert site.create_pod("swap-4")[0]


def test_a_policy_changes_pods_on_a_server(site: Site, pods: PodRunner) -> None:
    add_server(site, "blue")
    site.add_policy("changing", "change", mutating=True, policyServer="blue")
    site.wait_for_stage("changing", "active")
    done, told = site.create_pod("changed")
    assert done, told + pods.logs
    pod = site.find("pod", "changed", "-n", "red")
    assert pod is not None
    assert pod["metadata"]["labels"] == {"by": "a-policy"}


def test_a_server_goes_and_holds_up_nobody(site: Site, pods: PodRunner) -> None:
    site.plane.kubectl("delete", f"policyservers.{GROUP}", "blue", "--timeout=60s")
    assert site.stage("moving")[0] in ("scheduled", "unscheduled")
    site.wait_for_stage("moving", "unscheduled")
    done, told = site.create_pod(f"{MARK}-3")
    assert done, told + pods.failure
