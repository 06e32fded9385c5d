"""`crds`, `install` and `uninstall` on a cluster: what is there, who may do what, what is left."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from control_plane.cluster import Cluster

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: shop-labels}
spec:
  rules:
  - name: labels
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: label it, pattern: {metadata: {labels: {team: "?*"}}}}
"""


def run_lictor(cluster, *words):
    command = cluster.command(sys.executable, "-m", "lictor", *words)
    words = [*command, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def read(cluster, *words):
    return json.loads(cluster.kubectl("get", *words, "-o", "json").stdout)


def exists(cluster, *words):
    return cluster.kubectl("get", *words, check=False).returncode == 0


def wait_until(is_so, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


@dataclass(frozen=True)
class Shop:
    """One installation of a test, with names of its own."""

    cluster: Cluster
    prefix: str

    @property
    def namespace(self):
        return f"{self.prefix}-policies"

    @property
    def owner(self):
        return f"{self.prefix}:admission-controller"

    @property
    def webhook(self):
        return f"{self.prefix}-resource-validating-webhook-cfg"

    def install(self, *words):
        names = ("--prefix", self.prefix, "--namespace", self.namespace)
        return run_lictor(self.cluster, "install", "--apply", *names, *words)

    def uninstall(self, *words):
        names = ("--prefix", self.prefix, "--namespace", self.namespace)
        return run_lictor(self.cluster, "uninstall", *names, *words)

    def can(self, *words, controller="admission"):
        user = f"system:serviceaccount:{self.namespace}:{self.prefix}-{controller}-controller"
        done = self.cluster.kubectl("auth", "can-i", *words, "--as", user, check=False)
        return done.stdout.strip() == "yes"

    def leave_webhook(self):
        """A webhook as our controllers make it, which refuses all once nobody answers."""
        owner = read(self.cluster, "clusterrole", self.owner)["metadata"]
        reference = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "name": owner["name"],
            "uid": owner["uid"],
        }
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
        webhook = {
            "name": "validate.shop.svc",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/validate"},
            "rules": [{**rule, "operations": ["CREATE"]}],
            "objectSelector": {"matchLabels": {"shop": "judged"}},
        }
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.webhook, "ownerReferences": [reference]},
            "webhooks": [webhook],
        }
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))


@pytest.fixture(scope="module")
def shop(cluster):
    """An installation that the tests look at."""
    made = Shop(cluster, "shop")
    made.install()
    yield made
    made.uninstall("--keep-crds")


@pytest.fixture
def stall(cluster, shop, request):
    """An installation that a test takes away."""
    made = Shop(cluster, f"stall-{len(request.function.__name__)}")
    made.install("--skip-crds")
    yield made
    made.uninstall("--keep-crds")


def test_all_kinds_are_served_and_structural(cluster, shop):
    served = [
        each
        for each in read(cluster, "crd")["items"]
        if each["spec"]["group"].endswith(("kyverno.io", "wgpolicyk8s.io"))
    ]
    assert len(served) >= 22
    for each in served:
        conditions = {c["type"]: c["status"] for c in each["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert "NonStructuralSchema" not in conditions


def test_defaults_are_filled_in_and_mistakes_are_refused(cluster, shop):
    create = ("create", "--dry-run=server", "-f", "-")
    made = json.loads(cluster.kubectl(*create, "-o", "json", stdin=POLICY).stdout)["spec"]
    assert made["validationFailureAction"] == "Audit"
    assert (made["admission"], made["background"], made["emitWarning"]) == (True, True, False)
    rule = made["rules"][0]
    assert rule["skipBackgroundRequests"] is True
    assert rule["validate"]["allowExistingViolations"] is True
    for old, new, said in (
        ("name: labels", f"name: {'a' * 64}", "may not be more than 63"),
        ("message:", "failureAction: Block, message:", "Unsupported value"),
        ("message:", "messag:", 'unknown field "spec.rules[0].validate.messag"'),
    ):
        refused = cluster.kubectl(*create, stdin=POLICY.replace(old, new), check=False)
        assert said in refused.stderr


def test_explain_speaks_of_every_field(cluster, shop):
    said = cluster.kubectl("explain", "clusterpolicies.spec.rules.validate").stdout
    assert "What a resource must look like" in said
    assert "Enforce refuses the request" in said


def test_installing_again_changes_nothing(cluster, shop):
    before = read(cluster, "deployment,service,configmap", "-n", shop.namespace)["items"]
    assert all(line.endswith(" applied") for line in shop.install())
    after = read(cluster, "deployment,service,configmap", "-n", shop.namespace)["items"]
    assert [each["metadata"].get("generation") for each in before] == [
        each["metadata"].get("generation") for each in after
    ]


def test_controllers_may_do_what_they_must_and_no_more(shop):
    wait_until(lambda: shop.can("create", "validatingwebhookconfigurations"))
    assert shop.can("patch", f"validatingwebhookconfigurations/{shop.webhook}")
    assert not shop.can("patch", "validatingwebhookconfigurations/of-someone-else")
    assert shop.can("update", "clusterpolicies/x", "--subresource=status")
    assert not shop.can("create", "clusterpolicies")
    assert not shop.can("get", "secrets", "-n", "default")
    assert not shop.can("list", "secrets", "-n", shop.namespace)
    assert shop.can("get", "pods", "-n", "default")
    assert not shop.can("create", "pods", "-n", "default")
    assert shop.can("create", "policyreports", controller="reports")
    assert not shop.can("create", "policyreports", controller="cleanup")


def test_rights_are_added_by_label(cluster, shop):
    wanted = ("delete", "secrets", "-n", "default")
    assert not shop.can(*wanted, controller="cleanup")
    cluster.kubectl("create", "clusterrole", "shop-secrets", "--verb=delete", "--resource=secrets")
    try:
        label = "rbac.kyverno.io/aggregate-to-cleanup-controller=true"
        cluster.kubectl("label", "clusterrole", "shop-secrets", label)
        wait_until(lambda: shop.can(*wanted, controller="cleanup"))
    finally:
        cluster.kubectl("delete", "clusterrole", "shop-secrets")


def test_another_shape_takes_the_place_of_the_first(cluster, stall):
    lines = stall.install("--all-in-one", "--skip-crds")
    assert f"deployment.apps/{stall.prefix}-reports-controller deleted" in lines
    found = read(cluster, "deployments", "-n", stall.namespace)["items"]
    assert [each["metadata"]["name"] for each in found] == [f"{stall.prefix}-admission-controller"]


def test_uninstalling_leaves_nothing_that_could_refuse(cluster, stall):
    stall.leave_webhook()
    lines = stall.uninstall("--keep-crds")
    assert lines[0].endswith(f"/{stall.webhook} deleted")
    assert lines[1] == f"clusterrolebinding.rbac.authorization.k8s.io/{stall.owner} deleted"
    assert not exists(cluster, "validatingwebhookconfiguration", stall.webhook)
    labels = f"app.kubernetes.io/part-of={stall.prefix}"
    assert read(cluster, "clusterrole,clusterrolebinding", "-l", labels)["items"] == []
    assert exists(cluster, "crd", "clusterpolicies.kyverno.io")


def test_deleting_the_namespace_alone_removes_the_webhooks(cluster, stall):
    if not cluster.collects_garbage:
        pytest.skip("nobody collects garbage here")
    stall.leave_webhook()
    cluster.kubectl("delete", "namespace", stall.namespace, "--wait=false")
    wait_until(lambda: not exists(cluster, "validatingwebhookconfiguration", stall.webhook))
    wait_until(lambda: not exists(cluster, "clusterrole", stall.owner))
    assert exists(cluster, "crd", "clusterpolicies.kyverno.io")


def test_a_namespace_of_someone_else_stays(cluster, shop):
    guest = Shop(cluster, "guest")
    cluster.kubectl("create", "namespace", guest.namespace)
    try:
        assert guest.install("--skip-crds")[0] == f"namespace/{guest.namespace} left as it is"
        guest.uninstall("--keep-crds")
        assert read(cluster, "namespace", guest.namespace)["status"]["phase"] == "Active"
        assert read(cluster, "deployments,services", "-n", guest.namespace)["items"] == []
    finally:
        cluster.kubectl("delete", "namespace", guest.namespace, "--wait=false")


def test_uninstalling_everything_takes_kinds_and_policies(own_cluster):
    last = Shop(own_cluster, "last")
    last.install()
    own_cluster.kubectl("apply", "-f", "-", stdin=POLICY)
    lines = last.uninstall()
    assert lines[-1] == f"namespace/{last.namespace} deleted"
    wait_until(lambda: not exists(own_cluster, "crd", "clusterpolicies.kyverno.io"))
    assert all("webhook" not in line for line in last.uninstall())
