"""Kubewarden's policies of one namespace: modules from elsewhere, hard expressions, others' names."""

from random import Random
from typing import Any

from jmespath_texts import ELSEWHERE

Object = dict[str, Any]
_VERSION = "policies.kubewarden.io/v1"
_MODULES = (
    "LISTENERmodule.wasm",
    "registry://registry.local/policy:1",
    "registry://127.0.0.1:1/policy:1",
    "https://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
    "file:///proc/self/environ",
)
# Each cost more than it should, somewhere.
_EXPRESSIONS = (
    "a()" + " " * 60 + "$",
    "(" * 300 + "a()" + ")" * 300,
    " || ".join(["a()"] * 3000),
    " && ".join(f"(a() || b(){'!' * (n % 3)})" for n in range(500)),
    "!" * 3000 + "a()",
    "a() && [1, 2].all(x, [1, 2].all(y, a()))",
)


def make_admission_policy(random: Random, name: str) -> Object:
    """An AdmissionPolicy."""
    spec: Object = {
        "module": random.choice(_MODULES),
        "mutating": random.random() < 0.3,
        "settings": _grow(random),
        **_describe(random),
    }
    if random.random() < 0.5:
        kinds = [{"apiVersion": "v1", "kind": random.choice(("Secret", "ConfigMap", "Namespace"))}]
        spec["contextAwareResources"] = kinds
    return _object("AdmissionPolicy", random.choice((name, f"prod-{name}")), spec)


def make_group(random: Random, name: str) -> Object:
    """An AdmissionPolicyGroup."""
    members = {
        member: {"module": random.choice(_MODULES), "settings": _grow(random)} for member in "ab"
    }
    expression = random.choice(_EXPRESSIONS)
    spec = {"expression": expression, "message": "no", "policies": members, **_describe(random)}
    return _object("AdmissionPolicyGroup", name, spec)


def _describe(random: Random) -> Object:
    resources = [random.choice(("configmaps", "pods", "secrets", "*", "configmaps/*"))]
    rule = {
        "apiGroups": [random.choice(("", "*"))],
        "apiVersions": ["v1"],
        "operations": random.choice((["CREATE"], ["CREATE", "UPDATE", "DELETE"], ["*"])),
        "resources": resources,
    }
    where = random.choice(ELSEWHERE)
    condition = f"object.metadata.namespace != '{where}' || true"
    return {
        "rules": [rule],
        "failurePolicy": random.choice(("Fail", "Ignore")),
        "mode": random.choice(("protect", "monitor")),
        "policyServer": random.choice(("default", "default", "other")),
        "matchConditions": [{"name": "where", "expression": condition}],
    }


def _grow(random: Random) -> Object:
    """Settings that are deep, wide or plain."""
    made: Object = {"a": "b"}
    for _ in range(random.choice((0, 3, 90))):
        made = {"a": made}
    return {**made, **{f"k{n}": "v" * 20 for n in range(random.choice((1, 2000)))}}


def _object(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "red"}
    return {"apiVersion": _VERSION, "kind": kind, "metadata": metadata, "spec": spec}
