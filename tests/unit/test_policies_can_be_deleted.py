"""Policies of a namespace refuse nobody the deletion of policies, least of all their own."""

from typing import Any

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.ports import NoLookups

Object = dict[str, Any]
OPERATIONS = ["CREATE", "UPDATE", "DELETE"]


def classic(kind: str, **metadata: str) -> Object:
    resources = {"kinds": ["*"], "operations": OPERATIONS}
    deny = {"failureAction": "Enforce", "message": "no", "deny": {}}
    rule = {"name": "all", "match": {"any": [{"resources": resources}]}, "validate": deny}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "all", **metadata},
        "spec": {"background": False, "rules": [rule]},
    }


def cel(kind: str, **metadata: str) -> Object:
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": OPERATIONS,
        "resources": ["*"],
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "all", **metadata},
        "spec": {
            "matchConstraints": {"resourceRules": [everything]},
            "validations": [{"expression": "false", "message": "no"}],
        },
    }


CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "red"},
}
EXCEPTION = {
    "apiVersion": "kyverno.io/v2",
    "kind": "PolicyException",
    "metadata": {"name": "a", "namespace": "red"},
}
OWN = [
    classic("Policy", namespace="red"),
    cel("NamespacedValidatingPolicy", namespace="red"),
]


def count_results(policy: Object, resource: Object, operation: str) -> int:
    programs = compile_documents(
        load_documents(orjson.dumps(policy), "test").records, lookups=NoLookups()
    )
    old = None if operation == "CREATE" else resource
    request = Request.of(resource, operation=operation, old=old)
    return len(Engine(programs).evaluate(request).results)


@pytest.mark.parametrize("policy", OWN, ids=lambda policy: policy["kind"])
@pytest.mark.parametrize("resource", [*OWN, EXCEPTION], ids=lambda resource: resource["kind"])
def test_policies_can_always_be_deleted(policy: Object, resource: Object) -> None:
    assert count_results(policy, resource, "DELETE") == 0


@pytest.mark.parametrize("policy", OWN, ids=lambda policy: policy["kind"])
def test_everything_else_is_refused(policy: Object) -> None:
    assert count_results(policy, CONFIG_MAP, "DELETE") == 1
    assert count_results(policy, policy, "CREATE") == 1


@pytest.mark.parametrize("make", [classic, cel], ids=["classic", "cel"])
def test_policies_of_the_cluster_may_protect_policies(make: Any) -> None:
    """That is how administrators keep others from taking policies away."""
    policy = make("ClusterPolicy" if make is classic else "ValidatingPolicy")
    assert count_results(policy, OWN[0], "DELETE") == 1
