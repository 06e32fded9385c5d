"""Kinds to resources and back: what Kubernetes and CRDs tell, and what is only guessed."""

import pytest

from lictor.core.facts.resource_names import builtin_names, guess_plural, guess_plurals

NAMES = builtin_names()


def crd(**spec):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Mouse", "plural": "mice"},
            "versions": [{"name": "v1", "served": True}, {"name": "v1beta1"}],
            **spec,
        },
    }


@pytest.mark.parametrize(
    ("group", "version", "kind", "resource", "namespaced"),
    [
        ("", "v1", "Pod", "pods", True),
        ("", "v1", "Namespace", "namespaces", False),
        ("", "v1", "Endpoints", "endpoints", True),
        ("", "v1", "ConfigMap", "configmaps", True),
        ("", "v1", "Node", "nodes", False),
        ("", "v1", "PersistentVolume", "persistentvolumes", False),
        ("apps", "v1", "Deployment", "deployments", True),
        ("batch", "v1", "CronJob", "cronjobs", True),
        ("batch", "v1beta1", "CronJob", "cronjobs", True),
        ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True),
        ("networking.k8s.io", "v1", "Ingress", "ingresses", True),
        ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
        ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True),
        ("policy", "v1beta1", "PodSecurityPolicy", "podsecuritypolicies", False),
        ("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", True),
        (
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            False,
        ),
    ],
)
def test_builtin_kinds(group, version, kind, resource, namespaced):
    found = NAMES.of_kind(group, version, kind)
    assert (found.resource, found.namespaced) == (resource, namespaced)
    assert (found.group, found.version, found.kind) == (group, version, kind)
    assert not found.guessed
    assert not NAMES.of_kind(group, version, kind).guessed
    assert NAMES.of_resource(group, version, resource) == found


def test_unknown_version_of_a_known_kind_is_no_guess():
    found = NAMES.of_kind("apps", "v1beta1", "Deployment")
    assert (found.version, found.resource, found.guessed) == ("v1beta1", "deployments", False)
    back = NAMES.of_resource("apps", "v9", "deployments")
    assert back is not None
    assert (back.version, back.kind) == ("v9", "Deployment")


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Certificate", "certificates"),
        ("Gateway", "gateways"),
        ("AuthorizationPolicy", "authorizationpolicies"),
        ("Prometheus", "prometheuses"),
        ("GatewayClass", "gatewayclasses"),
        ("Mesh", "meshes"),
        ("Switch", "switches"),
        ("Proxy", "proxies"),
        ("Mailbox", "mailboxes"),
        ("CustomEndpoints", "customendpoints"),
        ("Y", "ies"),
        ("", ""),
    ],
)
def test_guesses(kind, plural):
    assert guess_plural(kind) == plural
    assert guess_plurals(kind)[0] == plural
    found = NAMES.of_kind("example.com", "v1", kind)
    assert (found.resource, found.namespaced, found.guessed) == (plural, None, True)
    assert NAMES.of_kind("example.com", "v1", kind).guessed
    assert NAMES.of_resource("example.com", "v1", plural) is None


def test_builtin_kinds_need_their_group():
    assert NAMES.of_kind("", "v1", "Deployment").guessed
    assert NAMES.of_kind("example.com", "v1", "Pod").guessed


@pytest.mark.parametrize(
    ("group", "kind", "subresource", "parents"),
    [
        ("policy", "Eviction", "eviction", {"pods"}),
        ("", "Binding", "binding", {"pods"}),
        ("", "Binding", "", {"bindings"}),
        ("", "PodExecOptions", "exec", {"pods"}),
        ("authentication.k8s.io", "TokenRequest", "token", {"serviceaccounts"}),
        ("", "Pod", "ephemeralcontainers", {"pods"}),
        ("", "Pod", "status", {"pods"}),
        (
            "autoscaling",
            "Scale",
            "scale",
            {"deployments", "replicasets", "statefulsets", "replicationcontrollers"},
        ),
        # The kind of the resource itself may stand for it too.
        ("apps", "Deployment", "scale", {"deployments"}),
    ],
)
def test_targets_of_subresources(group, kind, subresource, parents):
    assert {r.resource for r in NAMES.targets(group, "v1", kind, subresource)} == parents


@pytest.mark.parametrize(
    ("group", "version", "resource", "others"),
    [
        ("autoscaling", "v2", "horizontalpodautoscalers", {"v1", "v2beta1", "v2beta2"}),
        ("apps", "v1", "deployments", set()),
        ("apps", "v1beta2", "deployments", {"v1"}),
        ("", "v1", "pods", set()),
        ("example.com", "v1", "things", set()),
    ],
)
def test_equivalent_versions(group, version, resource, others):
    assert set(NAMES.equivalents(group, version, resource)) == {(group, o) for o in others}


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (("", "v1", "events"), ("events.k8s.io", "v1")),
        (("events.k8s.io", "v1", "events"), ("", "v1")),
        (("extensions", "v1beta1", "deployments"), ("apps", "v1")),
        (("extensions", "v1beta1", "ingresses"), ("networking.k8s.io", "v1")),
    ],
)
def test_equivalent_groups(here, there):
    assert there in NAMES.equivalents(*here)


def test_crds_are_learnt():
    names = NAMES.with_crds([crd()])
    mouse = names.of_kind("example.com", "v1", "Mouse")
    assert (mouse.resource, mouse.namespaced, mouse.guessed) == ("mice", True, False)
    assert names.of_resource("example.com", "v1beta1", "mice").kind == "Mouse"
    assert names.equivalents("example.com", "v1", "mice") == (("example.com", "v1beta1"),)
    assert not names.of_kind("", "v1", "Pod").guessed
    # What was known before stays as it was.
    assert NAMES.of_kind("example.com", "v1", "Mouse").guessed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (crd(scope="Cluster"), False),
        (crd(versions=None, version="v1"), True),
        (crd(versions=[{"name": "v1", "served": False}]), None),
        (crd(names=None), None),
        (crd(names={"kind": ["Mouse"], "plural": {}}), None),
        (crd(group=1), None),
        (crd(versions="v1"), None),
        (crd(versions=[1, {"name": ["v1"]}]), None),
        ({"kind": "CustomResourceDefinition"}, None),
        ({"kind": "CustomResourceDefinition", "spec": []}, None),
        ({"kind": "Mouse"}, None),
        ("mouse", None),
        (None, None),
    ],
)
def test_odd_crds(given, expected):
    names = NAMES.with_crds([given])
    assert names.of_kind("example.com", "v1", "Mouse").namespaced is expected


def test_newer_definition_counts():
    names = NAMES.with_crds([crd(), crd(names={"kind": "Mouse", "plural": "mouses"})])
    assert names.of_kind("example.com", "v1", "Mouse").resource == "mouses"
