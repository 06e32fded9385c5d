"""The control plane itself: what the other tests of this folder take for granted."""

import itertools
import json
import subprocess
import time

import pytest
from control_plane.install import install_lictor


def wait_until(is_so, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.2)
    return False


def config_map(name, namespace, owners=()):
    metadata = {"name": name, "namespace": namespace, "ownerReferences": list(owners)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


NUMBERS = itertools.count()


@pytest.fixture
def namespace(cluster):
    name = f"plane-{next(NUMBERS)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def test_administrator_is_known_by_the_name_that_policies_use(cluster):
    who = json.loads(cluster.kubectl("auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
    assert who["username"] == "kubernetes-admin"
    assert "system:masters" in who["groups"]


def test_client_reaches_the_server_from_outside_its_network(cluster):
    with cluster.connect() as client:
        assert client.get("/version").json()["gitVersion"].startswith("v1.")


def test_mutating_admission_policies_are_served_in_both_versions(cluster):
    with cluster.connect() as client:
        for version in ("v1beta1", "v1alpha1"):
            answer = client.get(f"/apis/admissionregistration.k8s.io/{version}").json()
            assert "mutatingadmissionpolicies" in {each["name"] for each in answer["resources"]}


def test_owned_objects_go_with_their_owner(cluster, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.connect() as client:
        owner = client.post(path, json=config_map("owner", namespace)).json()
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        assert client.post(path, json=config_map("owned", namespace, [reference])).is_success
        assert client.delete(f"{path}/owner").is_success
        assert wait_until(lambda: client.get(f"{path}/owned").status_code == 404)


def test_namespace_goes_with_what_is_in_it(cluster, namespace):
    with cluster.connect() as client:
        path = f"/api/v1/namespaces/{namespace}"
        assert client.post(f"{path}/configmaps", json=config_map("a", namespace)).is_success
        assert client.delete(path).is_success
        assert wait_until(lambda: client.get(path).status_code == 404)


def test_deployment_becomes_pods_that_stay_pending(cluster, namespace):
    words = ("create", "deployment", "web", "--image=registry.test/web:1", "-n", namespace)
    cluster.kubectl(*words)
    with cluster.connect() as client:
        path = f"/api/v1/namespaces/{namespace}/pods"

        def phases():
            return [pod["status"]["phase"] for pod in client.get(path).json()["items"]]

        assert wait_until(lambda: phases() == ["Pending"])


def test_service_account_gets_a_kubeconfig(cluster, namespace):
    words = ("get", "serviceaccount", "default", "-n", namespace)
    assert wait_until(lambda: cluster.kubectl(*words, check=False).returncode == 0)
    kubeconfig = cluster.kubeconfig_for(namespace, "default")
    asked = ("--kubeconfig", str(kubeconfig), "auth", "whoami", "-o", "json")
    done = subprocess.run(
        cluster.command("kubectl", *asked), capture_output=True, text=True, check=True
    )
    who = json.loads(done.stdout)["status"]["userInfo"]["username"]
    assert who == f"system:serviceaccount:{namespace}:default"


@pytest.mark.parametrize("kill", [False, True], ids=["gently", "killed"])
def test_api_server_comes_back_with_its_objects(own_cluster, kill):
    own_cluster.kubectl("create", "configmap", "kept")
    own_cluster.restart_api_server(away=0.5, kill=kill)
    assert (
        own_cluster.kubectl("get", "configmap", "kept", "-o", "name").stdout == "configmap/kept\n"
    )


def test_two_planes_stand_side_by_side(cluster, own_cluster):
    own_cluster.kubectl("create", "configmap", "only-here")
    words = ("get", "configmap", "only-here")
    assert cluster.kubectl(*words, check=False).returncode != 0


def test_nothing_is_left_behind(open_cluster):
    plane = open_cluster().start()
    folder, processes = plane.folder, plane.processes
    plane.stop()
    assert not folder.exists()
    assert processes
    assert not any(process.is_running() for process in processes)
    plane.stop()


def test_loopback_serves_where_namespaces_are_not_allowed(open_cluster):
    with open_cluster(loopback=True) as plane:
        assert plane.address == "127.0.0.1"
        assert not plane.routes_services
        assert "default" in plane.kubectl("get", "namespaces").stdout


POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: named}
spec:
  rules:
  - name: named
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [team]}}]}
    validate:
      failureAction: Enforce
      message: the label team is missing
      pattern: {metadata: {labels: {team: "?*"}}}
"""


def test_lictor_is_called_through_its_service(own_cluster):
    if not own_cluster.routes_services:
        pytest.skip("no right to make network namespaces, so webhooks are called by URL")
    installation = install_lictor(own_cluster)
    own_cluster.kubectl("create", "namespace", "team")
    own_cluster.kubectl("apply", "-f", "-", stdin=POLICY)
    own_cluster.kubectl("wait", "clusterpolicy/named", "--for=condition=Ready", "--timeout=60s")
    words = ("create", "configmap", "refused", "-n", "team", "--dry-run=server")
    assert wait_until(
        lambda: "the label team is missing" in own_cluster.kubectl(*words, check=False).stderr
    )
    name = f"{installation.prefix}-resource-validating-webhook-cfg"
    read = ("get", "validatingwebhookconfiguration", name, "-o", "json")
    hooks = json.loads(own_cluster.kubectl(*read).stdout)["webhooks"]
    services = {hook["clientConfig"]["service"]["name"] for hook in hooks}
    assert services == {f"{installation.prefix}-svc"}
    installation.stop()
