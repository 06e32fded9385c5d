"""`crds`, `install` and `uninstall` on a cluster: what is there, who may do what, what is left."""

import itertools
import json
import os
import pty
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


# A namespace that is going cannot be used again at once.
NUMBERS = itertools.count(1)
EXCEPTION = """
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: shop-debug, namespace: %s}
spec:
  exceptions: [{policyName: shop-labels, ruleNames: [labels]}]
  match: {any: [{resources: {kinds: [Pod], names: [debug]}}]}
"""


def call_lictor(cluster, *words, **streams):
    command = cluster.command(sys.executable, "-m", "lictor", *words)
    called = [*command, "--kubeconfig", str(cluster.kubeconfig)]
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, **streams}
    return subprocess.run(called, text=True, check=False, **streams)


def run_lictor(cluster, *words):
    done = call_lictor(cluster, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def answer_lictor(cluster, answer, *words):
    """Run it where someone at a terminal types an answer."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        return call_lictor(cluster, *words, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)


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

    @property
    def names(self):
        return ("--prefix", self.prefix, "--namespace", self.namespace)

    def install(self, *words):
        return run_lictor(self.cluster, "install", "--apply", *self.names, *words)

    def uninstall(self, *words):
        return run_lictor(self.cluster, "uninstall", *self.names, *words)

    def settings(self, name=""):
        words = ("configmap", name or self.prefix, "-n", self.namespace)
        return read(self.cluster, *words)["data"]

    def deployment(self, controller="admission"):
        name = f"{self.prefix}-{controller}-controller"
        return read(self.cluster, "deployment", name, "-n", self.namespace)["spec"]

    def kubectl(self, *words):
        return self.cluster.kubectl(*words, "-n", self.namespace)

    def edit(self):
        """Change by hand what people do change."""
        data = {"resourceFilters": "[Event,*,*]", "excludeGroups": None, "excludeRoles": "mine"}
        patch = json.dumps({"data": data})
        self.kubectl("patch", "configmap", self.prefix, "--type=merge", "-p", patch)
        for controller in ("admission", "reports"):
            self.kubectl("scale", "deployment", self.name(controller), "--replicas=4")
        words = ("set", "resources", "deployment", self.name("reports"), "--limits=memory=1Gi")
        self.kubectl(*words)

    def name(self, controller):
        return f"{self.prefix}-{controller}-controller"

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
    made.uninstall()


@pytest.fixture
def stall(cluster, shop):
    """An installation that a test takes away."""
    made = Shop(cluster, f"stall-{next(NUMBERS)}")
    made.install("--skip-crds")
    yield made
    # A test that failed may have left things of other people in it.
    made.uninstall()
    cluster.kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")


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
    lines = stall.uninstall()
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
        guest.uninstall()
        assert read(cluster, "namespace", guest.namespace)["status"]["phase"] == "Active"
        assert read(cluster, "deployments,services", "-n", guest.namespace)["items"] == []
    finally:
        cluster.kubectl("delete", "namespace", guest.namespace, "--wait=false")


# --- what others have set


def read_limits(spec):
    [container] = spec["template"]["spec"]["containers"]
    return container["resources"]["limits"]


def test_what_others_have_set_stays_until_someone_says_otherwise(stall):
    before = stall.settings()
    stall.edit()
    words = ("install", "--apply", *stall.names, "--skip-crds")
    done = call_lictor(stall.cluster, *words)
    assert done.returncode == 0, done.stderr
    settings = stall.settings()
    assert settings["resourceFilters"] == "[Event,*,*]"
    assert "excludeGroups" not in settings
    assert settings["excludeRoles"] == "mine"
    assert stall.deployment()["replicas"] == stall.deployment("reports")["replicas"] == 4
    assert read_limits(stall.deployment("reports")) == {"memory": "1Gi"}
    told = done.stderr
    assert f"configmap/{stall.prefix} stays as it is" in told
    assert f"cluster: [Event,*,*]\n    lictor:  {before['resourceFilters']}" in told
    assert "data.excludeGroups\n    cluster: (not set)\n    lictor:  system:nodes" in told
    assert "spec.replicas (set by kubectl)\n    cluster: 4\n    lictor:  1" in told
    assert "containers[controller].resources.limits.memory (set by kubectl-set)" in told
    assert "--yes overwrites them" in told
    asked = answer_lictor(stall.cluster, "y", *words)
    assert "Overwrite these fields with lictor's values?" in asked.stderr
    assert "  spec.replicas: 4 -> 3\n" in asked.stdout
    assert stall.settings() == {**before, "excludeRoles": "mine"}
    assert (stall.deployment()["replicas"], stall.deployment("reports")["replicas"]) == (3, 1)
    assert read_limits(stall.deployment("reports")) == {"memory": "256Mi"}


def test_what_the_call_names_wins(stall):
    stall.edit()
    stall.install("--skip-crds", "--replicas=2", "--set-config=resourceFilters=[Node,*,*]")
    assert stall.deployment()["replicas"] == 2
    assert stall.deployment("reports")["replicas"] == 4
    settings = stall.settings()
    assert settings["resourceFilters"] == "[Node,*,*]"
    assert "excludeGroups" not in settings
    stall.install("--skip-crds", "--set-config=excludeRoles=", "--flag=v=6")
    assert "excludeRoles" not in stall.settings()
    assert stall.deployment()["replicas"] == 2
    [container] = stall.deployment()["template"]["spec"]["containers"]
    assert "--v=6" in container["args"]
    stall.install("--skip-crds", "--yes")
    assert stall.deployment()["replicas"] == 3
    assert stall.settings()["excludeGroups"] == "system:nodes"
    assert all(line.endswith(" applied") for line in stall.install("--skip-crds"))


def test_a_difference_is_shown_and_nothing_changes(shop, stall):
    same = call_lictor(shop.cluster, "install", "--diff", *shop.names)
    assert (same.returncode, same.stdout) == (0, "nothing would change\n"), same.stdout
    stall.edit()
    words = ("install", "--diff", *stall.names, "--skip-crds", "--replicas=2", "--all-in-one")
    shown = call_lictor(stall.cluster, *words)
    assert shown.returncode == 1, shown.stderr
    admission = f"deployment.apps/{stall.name('admission')}"
    assert f"{admission} would change: spec.replicas: 4 -> 2\n" in shown.stdout
    assert f"deployment.apps/{stall.name('reports')} would be deleted\n" in shown.stdout
    assert f"configmap/{stall.prefix} would stay as it is in:\n  data.excludeGroups" in shown.stdout
    assert stall.deployment()["replicas"] == stall.deployment("reports")["replicas"] == 4
    both = call_lictor(stall.cluster, *words, "--apply")
    assert both.returncode == 2
    assert "give one of them" in both.stderr


def test_someone_at_a_terminal_is_asked_and_told_what_stays(cluster, stall):
    cluster.kubectl("apply", "-f", "-", stdin=POLICY)
    try:
        declined = answer_lictor(cluster, "n", "uninstall", *stall.names)
        assert declined.returncode == 1
        assert f"Remove lictor ({stall.prefix} in namespace {stall.namespace})" in declined.stderr
        assert stall.deployment()["replicas"] == 3, "nothing was removed"
        agreed = answer_lictor(cluster, "y", "uninstall", *stall.names)
        assert agreed.returncode == 0
        assert "stays: 1 clusterpolicies.kyverno.io\n" in agreed.stderr
    finally:
        cluster.kubectl("delete", "clusterpolicy", "shop-labels")


def test_settings_that_were_there_before_stay_and_outlive_us(cluster, shop):
    guest = Shop(cluster, "settled")
    cluster.kubectl("create", "namespace", guest.namespace)
    try:
        words = ("create", "configmap", guest.prefix, "--from-literal=excludeGroups=admins")
        guest.kubectl(*words)
        guest.install("--skip-crds")
        assert guest.settings() == {"excludeGroups": "admins"}
        guest.uninstall()
        assert guest.settings() == {"excludeGroups": "admins"}
        assert not exists(cluster, "configmap", f"{guest.prefix}-metrics", "-n", guest.namespace)
    finally:
        cluster.kubectl("delete", "namespace", guest.namespace, "--wait=false")


def test_a_deployment_of_someone_else_is_not_touched(cluster, shop):
    guest = Shop(cluster, "second")
    cluster.kubectl("create", "namespace", guest.namespace)
    try:
        guest.kubectl("create", "deployment", guest.name("admission"), "--image=other:1")
        done = call_lictor(cluster, "install", "--apply", *guest.names, "--skip-crds", "--yes")
        assert done.returncode == 2
        assert f"deployment.apps/{guest.name('admission')}" in done.stderr
        assert "not made by lictor" in done.stderr
        assert read(cluster, "services", "-n", guest.namespace)["items"] == []
        assert not exists(cluster, "clusterrole", guest.owner)
    finally:
        cluster.kubectl("delete", "namespace", guest.namespace, "--wait=false")


# --- what goes with us


def test_kinds_go_only_where_someone_says_so(own_cluster):
    last = Shop(own_cluster, "last")
    last.install()
    own_cluster.kubectl("apply", "-f", "-", stdin=POLICY)
    words = ("uninstall", *last.names, "--crds")
    refused = call_lictor(own_cluster, *words)
    assert refused.returncode == 2
    assert "--crds deletes 1 clusterpolicies.kyverno.io" in refused.stderr
    declined = answer_lictor(own_cluster, "n", *words)
    assert declined.returncode == 1
    assert "nothing was removed" in declined.stderr
    assert last.deployment()["replicas"] == 3, "nothing was removed"
    lines = last.uninstall()
    assert lines[-1] == f"namespace/{last.namespace} deleted"
    assert exists(own_cluster, "clusterpolicy", "shop-labels")
    gone = "customresourcedefinition.apiextensions.k8s.io/clusterpolicies.kyverno.io deleted"
    assert gone in last.uninstall("--crds", "--yes")
    wait_until(lambda: not exists(own_cluster, "crd", "clusterpolicies.kyverno.io"))
    assert last.uninstall("--crds") == []


def test_a_namespace_with_exceptions_in_it_stays(cluster, stall):
    cluster.kubectl("apply", "-f", "-", stdin=EXCEPTION % stall.namespace)
    stall.kubectl("create", "secret", "generic", "pull")
    held = "policyexception.kyverno.io/shop-debug, secret/pull"
    said = f"namespace/{stall.namespace} left as it is: it holds {held}"
    assert stall.uninstall()[-1] == said
    assert exists(cluster, "policyexception", "shop-debug", "-n", stall.namespace)
    stall.kubectl("delete", "policyexception/shop-debug", "secret/pull")
    assert stall.uninstall()[-1] == f"namespace/{stall.namespace} deleted"
