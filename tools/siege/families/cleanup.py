"""CleanupPolicies and PolicyExceptions of one namespace that aim beyond it."""

from random import Random
from typing import Any

import jmespath_texts as texts

from families.classic import make_condition, make_context

Object = dict[str, Any]
_POLICIES = ("guard", "stamp", "green/local", "*", "red/*", "guard-cel")


def make_cleanup(random: Random, name: str) -> Object:
    """A CleanupPolicy that runs every minute."""
    resources: Object = {
        "kinds": [random.choice(("ConfigMap", "ConfigMap", "Secret", "*", "Namespace", "Pod"))]
    }
    if random.random() < 0.2:
        resources["namespaces"] = [texts.name_elsewhere(random)]
    if random.random() < 0.3:
        resources["names"] = [texts.name_object(random)]
    spec: Object = {
        "schedule": random.choice(("* * * * *", "* * * * *", "*/1 * * * *", "@every 1s")),
        "match": {"any": [{"resources": resources}]},
        "context": (context := make_context(random)),
    }
    if random.random() < 0.5:
        names = [entry["name"] for entry in context]
        spec["conditions"] = {"any": [make_condition(random, names)]}
    return _object("kyverno.io/v2", "CleanupPolicy", name, spec)


def make_exception(random: Random, name: str) -> Object:
    """A PolicyException from policies of others, for objects of others."""
    resources: Object = {"kinds": [random.choice(("ConfigMap", "*"))]}
    if random.random() < 0.7:
        resources["namespaces"] = [random.choice(("green", "gr*", "*", "{{ 'green' }}"))]
    spec: Object = {
        "match": {"any": [{"resources": resources}]},
        "exceptions": [{"policyName": random.choice(_POLICIES), "ruleNames": ["*"]}],
    }
    if random.random() < 0.3:
        spec["conditions"] = {"any": [make_condition(random, ["request"])]}
    return _object("kyverno.io/v2", "PolicyException", name, spec)


def make_cel_exception(random: Random, name: str) -> Object:
    """A PolicyException from CEL policies of others."""
    kind = random.choice(("ValidatingPolicy", "NamespacedValidatingPolicy", "MutatingPolicy"))
    spec = {
        "policyRefs": [{"name": random.choice(("guard-cel", "*")), "kind": kind}],
        "matchConditions": [{"name": "all", "expression": "true"}],
    }
    return _object("policies.kyverno.io/v1beta1", "PolicyException", name, spec)


def _object(version: str, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "red"},
        "spec": spec,
    }
