"""`lictor lint --cluster`: policies about custom resources, by the definitions that a cluster has."""

import subprocess
import sys
from pathlib import Path

from control_plane.cluster import Cluster

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.lint.example.com}
spec:
  group: lint.example.com
  scope: Namespaced
  names: {kind: LintCache, listKind: LintCacheList, plural: caches, singular: cache}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}}}
"""
POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: guard}
spec:
  rules:
  - name: check
    match: {any: [{resources: {kinds: [LintCache]}}]}
    validate: {message: three replicas, pattern: {spec: {replica: 3}}}
"""


def lint(kubeconfig: Path, policy: Path) -> "subprocess.CompletedProcess[str]":
    words = ["lint", "--strict", "--cluster", "--kubeconfig", str(kubeconfig), str(policy)]
    return subprocess.run(
        [sys.executable, "-m", "lictor", *words], capture_output=True, text=True, check=False
    )


def test_definitions_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    assert lint(cluster.kubeconfig, policy).returncode == 0
    cluster.kubectl("apply", "-f", "-", stdin=CRD)
    try:
        done = lint(cluster.kubeconfig, policy)
        assert done.returncode == 1, done.stderr
        told = 'LintCache has no field "spec.replica" (did you mean "replicas"?)'
        assert (
            f"policy.yaml:8:58: warning: spec.rules[0].validate.pattern.spec.replica: {told}"
            in done.stdout
        )
    finally:
        cluster.kubectl("delete", "crd", "caches.lint.example.com")


def test_without_rights(cluster: Cluster, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    cluster.kubectl("create", "serviceaccount", "lint-blind", check=False)
    done = lint(cluster.kubeconfig_for("default", "lint-blind"), policy)
    assert done.returncode == 1
    assert "cannot read the CustomResourceDefinitions of the cluster" in done.stderr
    assert "forbidden" in done.stderr
