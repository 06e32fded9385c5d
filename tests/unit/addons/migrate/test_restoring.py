"""`migrate --restore` replaces what `--save` writes, and nothing else, whatever its file says."""

import pytest

from lictor.addons.migrate.restoring import check_saved
from lictor.core.errors import UsageError
from lictor.kubernetes.names import Names

NAMES = Names("kyverno", "kyverno")
OURS = {"app.kubernetes.io/part-of": "kyverno"}
RBAC = "rbac.authorization.k8s.io/v1"


def make(version, kind, name, namespace="", **body):
    metadata = {"name": name, "labels": OURS} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def define(name, group, kind):
    spec = {"group": group, "names": {"kind": kind}}
    return make("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec)


def test_what_is_saved_is_restored():
    check_saved(
        [
            make("v1", "Namespace", "kyverno"),
            make("v1", "ServiceAccount", "kyverno-admission-controller", "kyverno"),
            make("v1", "ConfigMap", "kyverno", "kyverno"),
            make(RBAC, "ClusterRole", "kyverno:admission-controller"),
            make(
                RBAC,
                "ClusterRoleBinding",
                "kyverno:admission-controller",
                subjects=[{"kind": "ServiceAccount", "name": "a", "namespace": "kyverno"}],
            ),
            make("apps/v1", "Deployment", "kyverno-admission-controller", "kyverno"),
            define("clusterpolicies.kyverno.io", "kyverno.io", "ClusterPolicy"),
        ],
        NAMES,
    )


@pytest.mark.parametrize(
    "document",
    [
        make("v1", "Secret", "kyverno-tls", "kyverno"),
        make("v1", "Pod", "kyverno-x", "kyverno"),
        make("batch/v1", "Job", "kyverno-x", "kyverno"),
        make("v1", "Namespace", "kube-system"),
        make("v1", "ServiceAccount", "default", "kube-system"),
        make("v1", "ConfigMap", "coredns", "kube-system"),
        make("apps/v1", "Deployment", "coredns", "kube-system"),
        make(RBAC, "ClusterRole", "cluster-admin"),
        make(RBAC, "ClusterRoleBinding", "cluster-admin"),
        make(RBAC, "RoleBinding", "kyverno:x", "kube-system"),
        make("kyverno.io/v1", "ClusterPolicy", "kyverno-policy"),
        define("backups.example.org", "example.org", "Backup"),
        define("clusterpolicies.kyverno.io", "example.org", "Backup"),
    ],
    ids=lambda each: f"{each['kind']}-{each['metadata']['name']}",
)
def test_other_objects_are_refused(document):
    with pytest.raises(UsageError, match=r"not saved by lictor|writes no such object"):
        check_saved([document], NAMES)


def test_an_object_without_the_label_is_refused():
    role = make(RBAC, "ClusterRole", "kyverno:theirs")
    role["metadata"]["labels"] = {}
    with pytest.raises(UsageError, match="writes no such object"):
        check_saved([role], NAMES)


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "ServiceAccount", "name": "default", "namespace": "red"},
        {"kind": "ServiceAccount", "name": "default"},
        {"kind": "User", "name": "eve", "namespace": "kyverno"},
        {"kind": "Group", "name": "system:authenticated"},
    ],
)
def test_a_file_gives_no_rights_to_others(subject):
    own = {"kind": "ServiceAccount", "name": "a", "namespace": "kyverno"}
    binding = make(RBAC, "ClusterRoleBinding", "kyverno:a", subjects=[own, subject])
    with pytest.raises(UsageError, match="gives rights to others"):
        check_saved([binding], NAMES)
