"""Namespaced policies of policies.kyverno.io: validate, mutate, generate, delete."""

from random import Random
from typing import Any

import cel_texts as texts
from jmespath_texts import ELSEWHERE, VAULT

Object = dict[str, Any]
_RESOURCES = ("configmaps", "pods", "secrets", "*", "namespaces")


def make_validating(random: Random, name: str) -> Object:
    """A NamespacedValidatingPolicy."""
    variables, expression = _choose(random)
    spec: Object = {
        "validationActions": [random.choice(("Deny", "Deny", "Audit"))],
        "variables": variables,
        "validations": [{"expression": expression, "messageExpression": _message(random)}],
        "auditAnnotations": [{"key": "seen", "valueExpression": _message(random)}],
    }
    if random.random() < 0.2:
        spec["matchConditions"] = [{"name": "heavy", "expression": texts.grow(random)}]
    return _policy(random, "NamespacedValidatingPolicy", name, spec)


def make_mutating(random: Random, name: str) -> Object:
    """A NamespacedMutatingPolicy, of new or of existing objects."""
    variables, expression = _choose(random)
    text = random.choice(
        ("json.marshal(variables.out)", f"'a' + string({expression})", "'touched'")
    )
    where = random.choice(ELSEWHERE)
    applied = random.choice(
        (
            f'Object{{metadata: Object.metadata{{labels: {{"touched": {text}}}}}}}',
            f'Object{{metadata: Object.metadata{{namespace: "{where}"}}}}',
            f'Object{{data: {{"found": {text}}}}}',
        )
    )
    patch = ", ".join(
        f'JSONPatch{{op: "copy", from: "/data", path: "/data/k{number}"}}'
        for number in range(random.choice((3, 30)))
    )
    mutation = random.choice(
        (
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": applied}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patch}]"}},
        )
    )
    spec: Object = {"variables": variables, "mutations": [mutation]}
    if random.random() < 0.4:
        spec["evaluation"] = {"mutateExisting": {"enabled": True}}
        spec["targetMatchConstraints"] = _targets(random)
    return _policy(random, "NamespacedMutatingPolicy", name, spec)


def make_generating(random: Random, name: str) -> Object:
    """A NamespacedGeneratingPolicy."""
    variables, _ = _choose(random)
    where = random.choice((*ELSEWHERE, "red"))
    made = (
        '{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), "metadata": dyn({"name": "planted", '
        f'"namespace": "{where}"}}), "data": dyn({{"found": dyn({_message(random)})}})}}'
    )
    what = random.choice((f"[{made}]", f"[{texts.reach(random)}]", "[dyn(variables.out)]"))
    target = random.choice((f'"{where}"', "object.data.where", '"bl" + "ue"', '"red"', "object"))
    spec = {
        "variables": variables,
        "evaluation": {
            "synchronize": {"enabled": random.random() < 0.5},
            "generateExisting": {"enabled": random.random() < 0.3},
        },
        "generate": [{"expression": f"generator.Apply({target}, {what})"}],
    }
    return _policy(random, "NamespacedGeneratingPolicy", name, spec)


def make_deleting(random: Random, name: str) -> Object:
    """A NamespacedDeletingPolicy that runs every minute."""
    variables, expression = _choose(random)
    conditions = [{"name": "which", "expression": random.choice(("true", expression))}]
    spec = {"schedule": "* * * * *", "variables": variables, "conditions": conditions}
    made = _policy(random, "NamespacedDeletingPolicy", name, spec)
    made["spec"]["matchConstraints"] = _targets(random)
    return made


def _choose(random: Random) -> tuple[list[Object], str]:
    if random.random() < 0.35:
        variables: list[Object] = list(texts.doubling(random))
        return [*variables, _out(random)], texts.use_doubled(random, variables)
    return [_out(random)], texts.expression(random)


def _out(random: Random) -> Object:
    return {"name": "out", "expression": random.choice((texts.reach, texts.grow))(random)}


def _message(random: Random) -> str:
    return random.choice(
        (
            "json.marshal(variables.out)",
            "'%s'.format([variables.out])",
            "string(dyn(variables.out).data.word)",
            "'no'",
        )
    )


def _targets(random: Random) -> Object:
    where = random.choice(ELSEWHERE)
    found: Object = {"resourceRules": [_resource_rule(random)]}
    if random.random() < 0.5:
        found["expression"] = f'resource.List("v1", "configmaps", "{where}").items'
    if random.random() < 0.3:
        found["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": where}}
    return found


def _resource_rule(random: Random) -> Object:
    rule: Object = {
        "apiGroups": [random.choice(("", "", "*"))],
        "apiVersions": [random.choice(("v1", "*"))],
        "operations": random.choice((["CREATE"], ["CREATE", "UPDATE"], ["*"])),
        "resources": [random.choice(("configmaps", "configmaps", *_RESOURCES))],
    }
    if "*" in rule["resources"]:
        # Not policies: who refuses that they are deleted has locked himself out, and attacks no more.
        rule["apiGroups"] = [""]
    if random.random() < 0.1:
        rule["resourceNames"] = [VAULT]
    return rule


def _policy(random: Random, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": random.choice(("policies.kyverno.io/v1", "policies.kyverno.io/v1beta1")),
        "kind": kind,
        "metadata": {"name": name, "namespace": "red"},
        "spec": {"matchConstraints": {"resourceRules": [_resource_rule(random)]}, **spec},
    }
