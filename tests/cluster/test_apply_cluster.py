"""`lictor apply --cluster`: policies on what a real cluster holds, with its own context."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from control_plane.cluster import Cluster

NAMESPACES = ("live-a", "live-b")

OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: live-a, labels: {tier: gold}}
---
apiVersion: v1
kind: Namespace
metadata: {name: live-b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: teams, namespace: live-a}
data: {names: '["red", "blue"]'}
---
apiVersion: v1
kind: Secret
metadata: {name: good, namespace: live-a, labels: {team: red}}
---
apiVersion: v1
kind: Secret
metadata: {name: bad, namespace: live-a, labels: {team: green}}
---
apiVersion: v1
kind: Secret
metadata: {name: elsewhere, namespace: live-b, labels: {team: green}}
"""

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: known-team}
spec:
  rules:
  - name: team-is-known
    match:
      any:
      - resources:
          kinds: [Secret]
          namespaces: ["live-*"]
    context:
    - name: teams
      configMap: {name: teams, namespace: live-a}
    validate:
      message: the team is not known
      deny:
        conditions:
          any:
          - key: "{{ request.object.metadata.labels.team }}"
            operator: AnyNotIn
            value: "{{ teams.data.names | parse_json(@) }}"
"""

GOLD = POLICY.replace("known-team", "gold-only").replace(
    'namespaces: ["live-*"]', "namespaceSelector: {matchLabels: {tier: gold}}"
)

CEL = """
apiVersion: policies.kyverno.io/v1beta1
kind: ValidatingPolicy
metadata: {name: has-team}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
  matchConditions:
  - {name: ours, expression: "object.metadata.namespace.startsWith('live-')"}
  variables:
  - {name: teams, expression: "resource.Get('v1', 'configmaps', 'live-a', 'teams').data.names"}
  validations:
  - {expression: "variables.teams.contains(object.metadata.labels.team)", message: no such team}
"""

CLEANUP = """
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: green-goes}
spec:
  schedule: "0 0 * * *"
  match:
    any:
    - resources: {kinds: [Secret], selector: {matchLabels: {team: green}}}
"""


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Cluster:
    cluster.kubectl("apply", "-f", "-", stdin=OBJECTS)
    return cluster


def apply(cluster: Cluster, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lictor", "apply", "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.run(
        [*command, "--remove-color", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_resources_and_context_of_the_cluster(filled: Cluster, tmp_path: Path) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", POLICY), "--cluster")
    assert done.returncode == 1, done.stderr
    assert "policy known-team -> resource live-a/Secret/bad failed:" in done.stdout
    assert "policy known-team -> resource live-b/Secret/elsewhere failed:" in done.stdout
    assert "pass: 1, fail: 2, warn: 0, error: 0" in done.stdout
    assert "Applying 1 policy rule(s) to " in done.stdout


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (("-n", "live-a"), "pass: 1, fail: 1"),
        (("-n", "live-b"), "pass: 0, fail: 1"),
        (("-n", "default"), "pass: 0, fail: 0"),
        (("--cluster-wide-resources",), "pass: 0, fail: 0"),
        (("-r", "good"), "pass: 1, fail: 0"),
        (("-r", "good,bad", "--batch-size", "1", "--concurrent", "4"), "pass: 1, fail: 1"),
        (("--batch-size", "1", "--show-performance"), "pass: 1, fail: 2"),
    ],
)
def test_choices(filled: Cluster, tmp_path: Path, words: tuple[str, ...], counts: str) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", POLICY), "-c", *words)
    assert counts in done.stdout, done.stdout + done.stderr


POSTS = """
apiVersion: policies.kyverno.io/v1beta1
kind: ValidatingPolicy
metadata: {name: posts}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}
  matchConditions:
  - {name: ours, expression: "object.metadata.namespace.startsWith('live-')"}
  validations:
  - expression: >-
      resource.Post('v1', 'configmaps', 'live-a', {'metadata': dyn({'generateName': 'posted-'})})
      .metadata.name != ''
"""


def test_nothing_is_created(filled: Cluster, tmp_path: Path) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", POSTS), "--cluster")
    assert "POST is for access reviews" in " ".join(done.stdout.split()), done.stdout
    assert "posted-" not in filled.kubectl("get", "configmaps", "-n", "live-a").stdout


def test_a_name_that_is_not_there(filled: Cluster, tmp_path: Path) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", POLICY), "-c", "-r", "nowhere")
    assert done.returncode == 1
    assert "Error: nowhere not found in cluster" in done.stderr


def test_labels_of_namespaces(filled: Cluster, tmp_path: Path) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", GOLD), "--cluster")
    assert "pass: 1, fail: 1, warn: 0" in done.stdout, done.stdout + done.stderr


def test_expressions_ask_the_cluster(filled: Cluster, tmp_path: Path) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", CEL), "--cluster", "-p")
    assert done.returncode == 1, done.stderr
    report = next(yaml.safe_load_all(done.stdout.partition("---\n")[2] or done.stdout))
    assert report["summary"]["fail"] + report["summary"]["pass"] == 3, done.stdout


@pytest.mark.parametrize("format", ["sarif", "junit", "markdown"])
def test_other_outputs(filled: Cluster, tmp_path: Path, format: str) -> None:
    policy = write(tmp_path / "p.yaml", POLICY)
    done = apply(filled, policy, "--cluster", "--output-format", format)
    assert done.returncode == 1, done.stderr
    assert "team-is-known" in done.stdout
    assert "warning" not in done.stderr.lower(), done.stderr


def test_files_with_the_clusters_context(filled: Cluster, tmp_path: Path) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: new, namespace: live-a, labels: {team: blue}}\n"
    file = write(tmp_path / "new.yaml", secret)
    done = apply(filled, write(tmp_path / "p.yaml", POLICY), "--cluster", "-r", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to 1 resource(s)" in done.stdout
    assert "pass: 1, fail: 0" in done.stdout


def test_what_would_be_deleted(filled: Cluster, tmp_path: Path) -> None:
    done = apply(filled, write(tmp_path / "p.yaml", CLEANUP), "--cluster")
    assert "policy green-goes would delete at" in done.stdout, done.stderr
    assert "live-a/Secret/bad" in done.stdout or "bad" in done.stdout
    assert "good" not in done.stdout


def wait_for(cluster: Cluster, kind: str) -> None:
    """Until objects of a new kind can be listed."""
    limit = time.monotonic() + 30
    while cluster.kubectl("get", kind, "-A", check=False).returncode:
        assert time.monotonic() < limit, kind
        time.sleep(0.2)


def test_policies_of_the_cluster(filled: Cluster, tmp_path: Path) -> None:
    from lictor.install.crds import build_crds

    wanted = ("clusterpolicies.kyverno.io", "policyexceptions.kyverno.io")
    crds = [crd for crd in build_crds() if crd["metadata"]["name"] in wanted]
    filled.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds))
    for name in wanted:
        wait_for(filled, name)
    exception = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "spare-bad", "namespace": "live-a"},
        "spec": {
            "exceptions": [{"policyName": "known-team", "ruleNames": ["team-is-known"]}],
            "match": {"any": [{"resources": {"kinds": ["Secret"], "names": ["bad"]}}]},
        },
    }
    filled.kubectl("apply", "-f", "-", stdin=POLICY)
    filled.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(exception))
    try:
        done = apply(filled, "--cluster")
        assert "with 1 exception(s)" in done.stdout, done.stdout + done.stderr
        assert "pass: 1, fail: 1, warn: 0, error: 0, skip: 1" in done.stdout
    finally:
        filled.kubectl("delete", "clusterpolicy", "known-team")
        filled.kubectl("delete", "-n", "live-a", "policyexception", "spare-bad")


def test_without_rights(filled: Cluster, tmp_path: Path) -> None:
    filled.kubectl("-n", "live-a", "create", "serviceaccount", "blind", check=False)
    kubeconfig = filled.kubeconfig_for("live-a", "blind")
    policy = write(tmp_path / "p.yaml", POLICY)
    done = apply(filled, policy, "--cluster", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    assert "forbidden" in done.stderr


def test_no_cluster(tmp_path: Path) -> None:
    policy = write(tmp_path / "p.yaml", POLICY)
    command = [sys.executable, "-m", "lictor", "apply", policy, "--cluster"]
    for words, message in (
        (["--kubeconfig", str(tmp_path / "absent")], "absent: no such file"),
        (["--kubeconfig", write(tmp_path / "config", "clusters: []")], "no current-context"),
    ):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert message in done.stderr
