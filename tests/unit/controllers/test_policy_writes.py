"""What the work of policies may write, whatever came out of their variables."""

import asyncio
import re
from pathlib import Path

import pytest
from live_api import LiveApi

from lictor import controllers
from lictor.controllers.policy_writes import PolicyWrites
from lictor.core.errors import OutOfBoundsError
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CONFIG_MAP, Resource

NAMESPACE = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ROLE = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDING = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
WEBHOOK = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
CRD = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")
WIDGET = Resource("ex.io", "v1", "widgets", "Widget", namespaced=False)


def try_all(names, resource, namespace, name, own):
    """How many of the ways to write were refused, and what reached the API server."""
    api = LiveApi()
    writes = PolicyWrites(api, names)
    body = {"metadata": {"name": name, "namespace": namespace, "labels": {}}}
    ways = [
        lambda: writes.create(resource, body, own=own),
        lambda: writes.replace(resource, body, own=own),
        lambda: writes.apply(resource, body, own=own),
        lambda: writes.delete(resource, name, namespace, own=own),
    ]
    refused = 0
    for way in ways:
        try:
            asyncio.run(way())
        except OutOfBoundsError:
            refused += 1
        except Exception:  # noqa: BLE001  (what the small API server says is not asked)
            pass
    return refused, api.writes


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "own"),
    [
        pytest.param(CONFIG_MAP, "blue", "a", "red", id="another-namespace"),
        pytest.param(CONFIG_MAP, "", "a", "red", id="no-namespace"),
        pytest.param(CONFIG_MAP, "", "a", "", id="no-namespace-cluster-wide"),
        pytest.param(CONFIG_MAP, "RED", "a", "red", id="case"),
        pytest.param(NAMESPACE, "", "red", "red", id="its-own-namespace-object"),
        pytest.param(ROLE, "", "x", "red", id="cluster-role"),
        pytest.param(WIDGET, "red", "x", "red", id="custom-cluster-kind"),
        pytest.param(CONFIG_MAP, "lictor", "lictor", "", id="settings"),
        pytest.param(CONFIG_MAP, "lictor", "lictor", "lictor", id="settings-from-inside"),
        pytest.param(LEASE, "lictor", "lictor-health", "", id="lease"),
        pytest.param(NAMESPACE, "", "lictor", "", id="our-namespace"),
        pytest.param(ROLE, "", "lictor:admission-controller", "", id="our-role"),
        pytest.param(BINDING, "", "lictor:background-controller:view", "", id="our-binding"),
        pytest.param(WEBHOOK, "", "lictor-resource-validating-webhook-cfg", "", id="our-webhook"),
        pytest.param(CRD, "", "clusterpolicies.kyverno.io", "", id="our-kind"),
        pytest.param(CRD, "", "policyreports.wgpolicyk8s.io", "", id="our-reports"),
    ],
)
def test_out_of_bounds(resource, namespace, name, own):
    assert try_all(Names(), resource, namespace, name, own) == (4, [])


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "own"),
    [
        (CONFIG_MAP, "red", "a", "red"),
        (CONFIG_MAP, "red", "lictor", ""),
        (CONFIG_MAP, "lictor-two", "a", ""),
        (ROLE, "", "viewer", ""),
        (NAMESPACE, "", "red", ""),
        (WEBHOOK, "", "others-webhook-cfg", ""),
        (CRD, "", "widgets.ex.io", ""),
    ],
)
def test_inside(resource, namespace, name, own):
    refused, writes = try_all(Names(), resource, namespace, name, own)
    assert refused == 0
    assert writes


def test_names_are_those_of_the_installation():
    names = Names(prefix="kyverno", namespace="policies")
    assert try_all(names, CONFIG_MAP, "policies", "a", "")[0] == 4
    assert try_all(names, ROLE, "", "kyverno:rbac:view:policies", "")[0] == 4
    assert try_all(names, CONFIG_MAP, "lictor", "a", "")[0] == 0


DOORS = re.compile(r"client\.(create|replace|apply|patch|delete)\(")


@pytest.mark.parametrize(
    "pattern",
    ["generate/*.py", "mutate_existing.py", "cleanup/removal.py", "ttl.py"],
)
def test_there_is_no_way_past_it(pattern):
    """What works for policies writes here, and nowhere else."""
    files = list(Path(controllers.__file__).parent.glob(pattern))
    assert files
    assert not [file.name for file in files if DOORS.search(file.read_text("utf-8"))]
