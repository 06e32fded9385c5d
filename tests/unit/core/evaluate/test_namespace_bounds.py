"""Where API calls of a Policy of one namespace may lead."""

import pytest

from lictor.core.errors import EvaluationError
from lictor.core.evaluate.namespace_bounds import (
    check_kind,
    check_namespace,
    check_path,
    check_same_object,
)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/own/secrets",
        "/api/v1/namespaces/own/secrets/a",
        "/api/v1/namespaces/own/secrets?labelSelector=a%2Fb",
        "/api/v1/namespaces/own",
        "/api/v1/namespaces/own/",
        "/apis/apps/v1/namespaces/own/deployments",
    ],
)
def test_inside(path):
    check_path(path, "own")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "path . does not contain a namespace segment"),
        ("/api/v1/nodes", "path /api/v1/nodes does not contain a namespace segment, which is required for namespaced policies"),
        ("/api/v1/secrets", "does not contain"),
        ("/api/v1/namespaces", "does not contain"),
        ("/version", "does not contain"),
        ("api/v1/namespaces/own/secrets", "does not contain"),
        ("/api/v1/secrets/namespaces/own", "does not contain"),
        ("/apis/a/b/c/namespaces/own/x", "does not contain"),
        ("/api/v1/namespaces/kube-system/secrets", "path /api/v1/namespaces/kube-system/secrets refers to namespace kube-system, which is different from the policy namespace own"),
        ("/api/v1/namespaces/own/../kube-system/secrets", "refers to namespace kube-system"),
        ("/api/v1/namespaces/own/%2e%2e/kube-system/secrets", "refers to namespace kube-system"),
        ("/api/v1/namespaces/own%2f..%2fkube-system/secrets", "refers to namespace kube-system"),
        ("/api/v1/namespaces/./own/secrets", "must not contain dots, double slashes"),
        ("/api/v1/namespaces//own/secrets", "must not contain dots, double slashes"),
        ("/api/v1/namespaces/own/secrets/../configmaps", "must not contain dots, double slashes"),
        ("/api/v1/namespaces/OWN/secrets", "refers to namespace OWN"),
        ("//api/api/v1/namespaces/own/secrets", "does not contain"),
        ("https://elsewhere/api/v1/namespaces/own/secrets", "does not contain"),
        ("/api/v1/namespaces/own/secrets/%252e%252e/a", "must not contain dots, double slashes"),
        ("/api/v1/namespaces/own/secrets\t/a", "must not contain dots, double slashes"),
        ("/api/v1/namespaces/own/secrets#/../../blue", "must not contain dots, double slashes"),
        ("/api/v1/namespaces/ow\nn/secrets", "refers to namespace"),
    ],
)  # fmt: skip
def test_outside(path, message):
    with pytest.raises(EvaluationError) as error:
        check_path(path, "own")
    assert message in str(error.value)


@pytest.mark.parametrize("found", ["blue", "", None, "ow", "own/../blue", "*", ["own"], "OWN", 1])
def test_another_namespace(found):
    check_namespace("own", "own", "it")
    with pytest.raises(EvaluationError, match="it must be in namespace own"):
        check_namespace(found, "own", "it")


@pytest.mark.parametrize(
    ("api_version", "kind", "is_refused"),
    [
        ("v1", "ConfigMap", False),
        ("ex.io/v1", "Widget", False),  # nobody knows: asked again where it is written
        ("v1", "Namespace", True),
        ("v1", "Node", True),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", True),
        ("rbac.authorization.k8s.io/v1beta1", "ClusterRoleBinding", True),
    ],
)
def test_kinds_of_the_whole_cluster(api_version, kind, is_refused):
    if not is_refused:
        check_kind(api_version, kind, "own")
        return
    with pytest.raises(EvaluationError, match="the kind is cluster-scoped"):
        check_kind(api_version, kind, "own")


BEFORE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "own", "uid": "1"},
}


@pytest.mark.parametrize(
    ("metadata", "more", "said"),
    [
        ({"labels": {"x": "y"}}, {"data": {}}, ""),
        ({"namespace": "blue"}, {}, "metadata.namespace"),
        ({"namespace": None}, {}, "metadata.namespace"),
        ({"name": "b"}, {}, "metadata.name"),
        ({"name": "../../blue/configmaps/a"}, {}, "metadata.name"),
        ({"uid": "2"}, {}, "metadata.uid"),
        ({}, {"kind": "Secret"}, "apiVersion or kind"),
        ({}, {"apiVersion": "v2"}, "apiVersion or kind"),
        ({}, {"metadata": None}, "the metadata"),
    ],
)
def test_a_change_stays_with_its_object(metadata, more, said):
    after = {**BEFORE, "metadata": {**BEFORE["metadata"], **metadata}, **more}
    if not said:
        check_same_object(BEFORE, after)
        return
    with pytest.raises(EvaluationError, match=said):
        check_same_object(BEFORE, after)
