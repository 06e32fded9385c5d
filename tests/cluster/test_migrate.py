"""From Kyverno to lictor and back, while people go on working."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from control_plane.local import LocalCluster
from control_plane.plane import ControlPlane
from control_plane.programs import Programs
from kubelet import Kubelet
from kyverno_site import (
    NAMESPACE,
    Requests,
    find_manifests,
    make_certificates,
    open_kubelet,
    write_webhooks,
)
from kyverno_stand_in import REFUSAL

NAMES = ("--namespace", NAMESPACE, "--prefix", "kyverno")
IMAGE = ("--image", "lictor:test")
SHOP = "shop"
FILTERS = "[Event,*,*] [*/*,kyverno,*] [Secret,hidden-*,*]"
SETTINGS = {"resourceFilters": FILTERS, "excludeGroups": "system:nodes,night-watch"}
FLAGS = ("--enablePolicyException=true", "--exceptionNamespace=shop", "--webhookTimeout=25")
TOLERATION = {"key": "policy", "operator": "Exists", "effect": "NoSchedule"}
EXCEPTIONS = "policyexceptions.kyverno.io"
OLD_VERSION = "v2alpha1"


def make_policies() -> Iterator[dict]:
    """Twenty, of five kinds; one of them refuses."""
    resources = {"kinds": ["ConfigMap"], "namespaces": [SHOP]}
    match = {"any": [{"resources": resources}]}
    for number in range(16):
        refuses = number == 0
        validate = {
            "message": REFUSAL,
            "failureAction": "Enforce" if refuses else "Audit",
            "pattern": {"metadata": {"name": "!bad*" if refuses else f"!wrong-{number}*"}},
        }
        rule = {"name": "names", "match": match, "validate": validate}
        yield make("kyverno.io/v1", "ClusterPolicy", f"names-{number}", rules=[rule])
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "operations": ["CREATE"],
        }
    ]
    for number in range(2):
        yield make(
            "policies.kyverno.io/v1",
            "ValidatingPolicy",
            f"sizes-{number}",
            matchConstraints={"resourceRules": rules},
            validationActions=["Audit"],
            validations=[{"expression": f"size(object.metadata.name) < {200 + number}"}],
        )
    patch = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {
            "expression": 'Object{metadata: Object.metadata{labels: {"seen": "yes"}}}'
        },
    }
    yield make(
        "policies.kyverno.io/v1",
        "MutatingPolicy",
        "seen",
        matchConstraints={"resourceRules": rules},
        mutations=[patch],
    )
    generate = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "zone",
        "namespace": "{{request.object.metadata.name}}",
        "data": {"data": {"zone": "a"}},
    }
    rule = {
        "name": "zone",
        "match": {"any": [{"resources": {"kinds": ["Namespace"], "names": ["zone-*"]}}]},
        "generate": generate,
    }
    yield make("kyverno.io/v1", "ClusterPolicy", "zones", rules=[rule])


def make(version: str, kind: str, name: str, namespace: str = "", **spec: object) -> dict:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def make_report() -> dict:
    result = {"policy": "names-1", "rule": "names", "result": "fail", "source": "kyverno"}
    scope = {"apiVersion": "v1", "kind": "ConfigMap", "name": "of-old", "namespace": SHOP}
    return {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {"name": "of-old", "namespace": SHOP},
        "scope": scope,
        "results": [result],
    }


def make_right() -> dict:
    """The cleanup controller may delete nothing by itself: people have given it more, by label."""
    labels = {"rbac.kyverno.io/aggregate-to-cleanup-controller": "true"}
    verbs = ["get", "list", "watch", "delete"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "clean-config-maps", "labels": labels},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}],
    }


@dataclass(frozen=True)
class Site:
    plane: LocalCluster
    kubelet: Kubelet

    def apply(self, *documents: dict) -> None:
        whole = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(whole))

    def read(self, *words: str) -> dict:
        return json.loads(self.plane.kubectl("get", *words, "-o", "json").stdout)

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = self.plane.command(sys.executable, "-m", "lictor", *words)
        called = [*command, "--kubeconfig", str(self.plane.kubeconfig)]
        return subprocess.run(
            called, text=True, check=False, capture_output=True, stdin=subprocess.DEVNULL
        )

    def run(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0, (
            f"{done.stdout}{done.stderr}\n{self.kubelet.failure}\n{self.kubelet.logs}"
        )
        return done.stdout

    def deployment(self, controller: str) -> dict:
        return self.read("deployment", f"kyverno-{controller}-controller", "-n", NAMESPACE)

    def settings(self, name: str = "kyverno") -> dict[str, str]:
        return self.read("configmap", name, "-n", NAMESPACE)["data"]

    def is_settled(self) -> bool:
        """Are all Pods of the newest templates, and ready?"""
        found = self.read("deployments", "-n", NAMESPACE)["items"]
        return all(
            (each.get("status") or {}).get("updatedReplicas") == each["spec"]["replicas"]
            and each["status"].get("availableReplicas") == each["spec"]["replicas"]
            and each["status"].get("replicas") == each["spec"]["replicas"]
            for each in found
        )

    def images(self) -> set[str]:
        pods = self.read("pods", "-n", NAMESPACE)["items"]
        return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def wait_until(is_so: Callable[[], bool], site: Site, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, (
            f"waited in vain\n{site.kubelet.failure}\n{site.kubelet.logs}"
        )
        time.sleep(0.3)


@pytest.fixture(scope="module")
def site(programs: Programs) -> Iterator[Site]:
    """A cluster with Kyverno in it, as people have it after years."""
    manifests = find_manifests()
    if manifests is None:
        pytest.skip("Kyverno's manifests cannot be had: there is no Go, or no way to its modules")
    with ControlPlane(programs) as plane:
        if not (plane.routes_services and plane.collects_garbage):
            pytest.skip("Pods with addresses of their own cannot be played here")
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("create", "namespace", SHOP)
        make_kyverno(plane, manifests)
        certificates = make_certificates(plane)
        kubelet = open_kubelet(plane)
        try:
            made = Site(plane, kubelet)
            wait_until(made.is_settled, made)
            made.apply(*make_policies(), make_report(), make_right())
            write_webhooks(plane, certificates)
            yield made
        finally:
            kubelet.close()


def make_kyverno(plane: LocalCluster, manifests: Path) -> None:
    documents = list(yaml.load_all(manifests.read_text(), Loader=yaml.CSafeLoader))
    whole = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [change(each) for each in documents if each],
    }
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(whole))
    grow_old(plane)


def change(document: dict) -> dict:
    """What people change."""
    name = document["metadata"]["name"]
    if document["kind"] == "ConfigMap" and name == "kyverno":
        document["data"].update(SETTINGS)
    if document["kind"] == "Deployment":
        spec = document["spec"]
        spec["replicas"] = 2 if "admission" in name else 1
        spec["template"]["spec"]["tolerations"] = [TOLERATION]
        if "admission" in name:
            spec["template"]["spec"]["containers"][0]["args"] += FLAGS
    return document


def grow_old(plane: LocalCluster) -> None:
    """An exception that an older release has stored, in a version that no release has now."""
    crd = json.loads(plane.kubectl("get", "crd", EXCEPTIONS, "-o", "json").stdout)
    versions = crd["spec"]["versions"]
    newest = next(each for each in versions if each["storage"])
    for stored in (OLD_VERSION, newest["name"]):
        listed = [*versions, {**newest, "name": OLD_VERSION}]
        patch = [{**each, "storage": each["name"] == stored} for each in listed]
        body = json.dumps({"spec": {"versions": patch}})
        plane.kubectl("patch", "crd", EXCEPTIONS, "--type=merge", "-p", body)
        if stored == OLD_VERSION:
            time.sleep(1.5)
            exception = make(
                "kyverno.io/v2",
                "PolicyException",
                "of-old",
                SHOP,
                exceptions=[{"policyName": "names-3", "ruleNames": ["names"]}],
                match={"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["odd"]}}]},
            )
            plane.kubectl("apply", "-f", "-", stdin=json.dumps(exception))


# --- the tests follow each other: what is there, what would change, there, and back


def test_a_live_installation_is_described(site: Site) -> None:
    done = site.call("migrate", "--format=json")
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads(done.stdout)
    report = said["report"]
    kept = {
        each["name"]: each["value"] for each in report["settings"] if each["configMap"] == "kyverno"
    }
    assert SETTINGS.items() <= kept.items()
    assert not [each for each in report["settings"] if each.get("problem")]
    assert report["keptFlags"]["exceptionNamespace"] == SHOP
    assert report["keptFlags"]["webhookTimeout"] == "25"
    assert "backgroundScanWorkers" in {each["name"] for each in report["droppedFlags"]}
    assert report["policies"] == {
        "ClusterPolicy": 17,
        "MutatingPolicy": 1,
        "PolicyException": 1,
        "ValidatingPolicy": 2,
    }
    assert report["reports"] == {"PolicyReport": 1}
    assert report["staleKinds"] == {EXCEPTIONS: [OLD_VERSION]}
    assert report["unused"] == ["service/kyverno-cleanup-controller"]
    assert any("--apply" in step["command"] for step in said["plan"])


def test_nothing_changes_before_someone_says_so(site: Site) -> None:
    before = site.deployment("admission")
    shown = site.call("install", *NAMES, *IMAGE, "--diff")
    assert shown.returncode == 1
    assert "runs reg.kyverno.io/kyverno/kyverno:latest, and would be replaced" in shown.stdout
    assert "--exceptionNamespace=shop" in shown.stdout
    assert (
        "networkpolicy.networking.k8s.io/kyverno-admission-controller would be made" in shown.stdout
    )
    refused = site.call("install", *NAMES, *IMAGE, "--apply")
    assert refused.returncode == 2
    assert "--yes replaces these Deployments in place" in refused.stderr
    assert (
        site.deployment("admission")["metadata"]["generation"] == before["metadata"]["generation"]
    )


def test_both_are_compared_on_live_requests(site: Site) -> None:
    """A policy that the stand-in does not know is what differs."""
    [odd, *_] = make_policies()
    odd = json.loads(json.dumps(odd).replace("!bad*", "!odd*").replace("names-0", "odd"))
    site.apply(odd)
    command = site.plane.command(sys.executable, "-m", "lictor", "migrate", "--compare")
    where = f"--reached-by={site.plane.address}:9876"
    words = ["--for=12s", "--format=json", where, "--kubeconfig", str(site.plane.kubeconfig)]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *words], stdout=pipe, stderr=pipe, text=True) as compare:
        wait_until(lambda: has_observers(site) or compare.poll() is not None, site)
        time.sleep(1)
        with site.plane.connect() as client:
            for name, passes in (("good", True), ("bad", False), ("odd", True)):
                metadata = {"name": f"{name}-compared"}
                made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                answer = client.post(f"/api/v1/namespaces/{SHOP}/configmaps", json=made)
                assert answer.is_success is passes
        out, err = compare.communicate(timeout=120)
    site.plane.kubectl("delete", "clusterpolicy", "odd")
    assert compare.returncode == 1, err
    said = json.loads(out)
    assert said["unanswered"] == {}
    # A mutating and a validating webhook were asked about each, but for what the first refused.
    assert said["compared"] >= 5
    assert said["same"] == said["compared"] - said["different"]
    [found] = said["differences"]
    assert (found["name"], found["path"]) == ("odd-compared", "/validate/fail")
    assert found["kyverno"] == "allowed"
    assert REFUSAL in found["lictor"]
    assert not has_observers(site)


def has_observers(site: Site) -> bool:
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    listed = [each["metadata"]["name"] for each in site.read(kinds)["items"]]
    return listed.count("compare-with-lictor") == 2


def test_there_and_back_without_a_request_that_fails(site: Site, tmp_path: Path) -> None:
    saved = tmp_path / "before.json"
    site.run("migrate", "--save", str(saved))
    before = {name: site.settings(name) for name in ("kyverno", "kyverno-metrics")}
    theirs = {name: site.deployment(name)["spec"] for name in ("admission", "reports")}
    with Requests(site.plane, SHOP) as requests:
        time.sleep(1)
        site.run("install", *NAMES, *IMAGE, "--apply", "--yes")
        wait_until(lambda: site.is_settled() and site.images() == {"lictor:test"}, site)
        check_kept(site, before)
        # Once more, as the next upgrade would, without naming any of it.
        site.run("install", *NAMES, *IMAGE, "--apply")
        check_kept(site, before)
        there = requests.count
        time.sleep(1)
        site.run("migrate", "--restore", str(saved))
        wait_until(lambda: site.is_settled() and "lictor:test" not in site.images(), site)
        for name, spec in theirs.items():
            assert site.deployment(name)["spec"] == spec
        assert {name: site.settings(name) for name in before} == before
        time.sleep(1)
    assert requests.faults == [], site.kubelet.logs
    assert requests.count > there > 20
    labels = "app.kubernetes.io/managed-by=lictor"
    left = site.read("networkpolicies,services,deployments,clusterroles", "-A", "-l", labels)[
        "items"
    ]
    assert left == []


def check_kept(site: Site, before: dict[str, dict[str, str]]) -> None:
    """Every setting is as it was."""
    assert {name: site.settings(name) for name in before} == before
    spec = site.deployment("admission")["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    assert TOLERATION in pod["tolerations"]
    assert set(FLAGS) <= set(pod["containers"][0]["args"])
    assert TOLERATION in site.deployment("cleanup")["spec"]["template"]["spec"]["tolerations"]
    assert len(site.read("clusterpolicies")["items"]) == 17
    assert site.read("policyreport", "of-old", "-n", SHOP)["results"][0]["result"] == "fail"
    assert site.read("crd", EXCEPTIONS)["status"]["storedVersions"] == ["v2"]
    assert (
        site.read(EXCEPTIONS, "of-old", "-n", SHOP)["spec"]["exceptions"][0]["policyName"]
        == "names-3"
    )
