"""Where API calls of a Policy of one namespace may lead."""

import pytest

from lictor.errors import EvaluationError
from lictor.evaluate.namespace_bounds import check_path


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
        ("/api/v1/namespaces/./own/secrets", "must be written plainly"),
        ("/api/v1/namespaces//own/secrets", "must be written plainly"),
        ("/api/v1/namespaces/own/secrets/../configmaps", "must be written plainly"),
        ("/api/v1/namespaces/OWN/secrets", "refers to namespace OWN"),
    ],
)  # fmt: skip
def test_outside(path, message):
    with pytest.raises(EvaluationError) as error:
        check_path(path, "own")
    assert message in str(error.value)
