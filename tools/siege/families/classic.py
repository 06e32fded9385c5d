"""Policies of kyverno.io in one namespace: validate, mutate, generate."""

from collections.abc import Sequence
from random import Random
from typing import Any

import jmespath_texts as texts

Object = dict[str, Any]
Names = Sequence[str]
_KINDS = ("Pod", "Secret", "v1/*", "v1/ConfigMap", "Namespace", "v1/*/*", "Deployment")
_RBAC = "rbac.authorization.k8s.io/v1"
_DEEPEST = 60


def make_policy(random: Random, name: str) -> Object:
    """A Policy with one to three rules."""
    makers = (_validate, _deny, _foreach, _mutate, _patch, _mutate_existing, _generate, _clone)
    rules = [_rule(random, number, makers) for number in range(random.choice((1, 1, 1, 2)))]
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": name, "namespace": "red"},
        "spec": {
            "failurePolicy": random.choice(("Fail", "Ignore")),
            "background": random.random() < 0.2,
            "admission": True,
            "rules": rules,
        },
    }


def _rule(random: Random, number: int, makers: tuple[Any, ...]) -> Object:
    kind = random.choice(_KINDS) if random.random() < 0.2 else "ConfigMap"
    resources: Object = {"kinds": [kind]}
    if random.random() < 0.04:
        resources["namespaces"] = [texts.name_elsewhere(random), "red"]
    context = make_context(random)
    names = [entry["name"] for entry in context]
    rule = {
        "name": f"rule-{number}",
        "match": {"any": [{"resources": resources}]},
        "context": context,
        **random.choice(makers)(random, names),
    }
    if random.random() < 0.2:
        rule["preconditions"] = {"all": [make_condition(random, names)]}
    return rule


def make_context(random: Random) -> list[Object]:
    """Variables from everywhere."""
    made = [{"name": "where", "variable": {"value": random.choice(texts.ELSEWHERE)}}]
    for _ in range(random.randint(0, 2)):
        made += random.choice((_look_up, _compute, texts.doubling))(random)
    return made


def _look_up(random: Random) -> list[Object]:
    where, name = texts.name_elsewhere(random), texts.name_object(random)
    post = {
        "urlPath": texts.path_elsewhere(random),
        "method": "POST",
        "data": [
            {"key": "apiVersion", "value": "v1"},
            {"key": "kind", "value": "ConfigMap"},
            {"key": "metadata", "value": {"generateName": "made-", "namespace": where}},
        ],
    }
    return [
        random.choice(
            (
                {"name": "found", "apiCall": {"urlPath": texts.path_elsewhere(random)}},
                {"name": "found", "apiCall": post},
                {"name": "found", "apiCall": {"service": {"url": "LISTENER"}, "method": "GET"}},
                {"name": "found", "configMap": {"name": name, "namespace": where}},
                {"name": "found", "globalReference": {"name": "everywhere", "jmesPath": "@"}},
                {"name": "found", "imageRegistry": {"reference": f"127.0.0.1:5000/{where}"}},
            )
        )
    ]


def _compute(random: Random) -> list[Object]:
    return [{"name": "v0", "variable": {"jmesPath": texts.query(random)}}]


def _show(random: Random, names: Names) -> str:
    """What a message or a condition asks for: mostly the last variable, whole or in part."""
    name = random.choice((names[-1], names[-1], random.choice(names)))
    return random.choice(
        (
            f"{{{{ {name} }}}}",
            f"{{{{ {name}.data.word || {name} }}}}",
            f"{{{{ {name}.items[].data || 'none' }}}}",
            f"{{{{ base64_encode(to_string({name})) }}}}",
            f"{{{{ length(to_string({name})) }}}}",
            f"{{{{ {name} == {name} }}}}",
            f"{{{{ to_string({name}) }}}}",
            f"{{{{ {texts.query(random)} }}}}",
        )
    )


def make_condition(random: Random, names: Names) -> Object:
    """A condition that has to look at all this."""
    operator = random.choice(
        ("Equals", "NotEquals", "AnyIn", "AllNotIn", "GreaterThan", "LessThan", "DurationLessThan")
    )
    value = random.choice(
        ("never", _show(random, names), "1e1000000000", "9" * 3000, ["a*"] * 500, "1-9999999999", 1)
    )
    return {"key": _show(random, names), "operator": operator, "value": value}


def _validate(random: Random, names: Names) -> Object:
    pattern: Any = random.choice(
        (
            _show(random, names),
            {"=(word)": _show(random, names)},
            {"(*)": "?" * 2000},
            {"word": " | ".join(["*a*b*c*"] * 500)},
            {f"X({'x' * 1000})": "1"},
        )
    )
    for _ in range(random.choice((0, 3, _DEEPEST))):
        pattern = {"^(a)": [pattern]} if random.random() < 0.3 else {"=(a)": pattern}
    return {"validate": _enforced(random, names, pattern={"data": pattern})}


def _deny(random: Random, names: Names) -> Object:
    conditions = {"any": [make_condition(random, names) for _ in range(random.randint(1, 4))]}
    return {"validate": _enforced(random, names, deny={"conditions": conditions})}


def _enforced(random: Random, names: Names, **body: Any) -> Object:
    action = random.choice(("Enforce", "Enforce", "Audit"))
    return {"failureAction": action, "message": _show(random, names), **body}


def _foreach(random: Random, names: Names) -> Object:
    keys = random.choice(
        (
            "request.object.data.keys(@)",
            names[-1],
            f"{names[-1]}.items",
            f"[{', '.join(['request.object'] * 300)}]",
            texts.query(random),
        )
    )
    inner: Object = {"list": keys, "deny": {"conditions": {"any": [make_condition(random, names)]}}}
    for _ in range(random.randint(0, 4)):
        inner = {"list": keys, "foreach": [inner]}
    return {
        "validate": {
            "failureAction": "Enforce",
            "message": _show(random, names),
            "foreach": [inner],
        }
    }


def _mutate(random: Random, names: Names) -> Object:
    body: Object = {
        "metadata": {"labels": {"touched": "yes"}},
        "data": {"found": _show(random, names)},
    }
    where = random.choice(("", "", texts.name_elsewhere(random)))
    if where:
        body["metadata"]["namespace"] = where
    return {"mutate": {"patchStrategicMerge": body}}


def _patch(random: Random, names: Names) -> Object:
    copies = [
        f'{{"op": "copy", "from": "/data", "path": "/data/k{number}"}}'
        for number in range(random.choice((5, 30, 60)))
    ]
    moved = ['{"op": "replace", "path": "/metadata/namespace", "value": "blue"}']
    return {"mutate": {"patchesJson6902": f"[{', '.join(random.choice((copies, moved)))}]"}}


def _mutate_existing(random: Random, names: Names) -> Object:
    target = {
        "apiVersion": "v1",
        "kind": random.choice(("ConfigMap", "Secret", "Namespace", "*", "{{ 'ConfigMap' }}")),
        "name": random.choice(("vault", "*", texts.name_object(random))),
        "namespace": random.choice(("red", texts.name_elsewhere(random))),
        "context": make_context(random) if random.random() < 0.3 else [],
    }
    patch = {"metadata": {"labels": {"touched": "{{ target.metadata.name }}"}}}
    body = {"targets": [target], "patchStrategicMerge": patch}
    return {"mutate": {**body, "mutateExistingOnPolicyUpdate": random.random() < 0.5}}


def _generate(random: Random, names: Names) -> Object:
    made: Object = {
        **_what(random),
        "synchronize": random.random() < 0.5,
        "data": {"data": {"found": _show(random, names), "planted": "yes"}},
    }
    if random.random() < 0.3:
        return {"generate": {"foreach": [{"list": "[`1`, `2`]", **made}]}}
    return {"generate": {**made, "generateExisting": random.random() < 0.3}}


def _what(random: Random) -> Object:
    where, name = texts.name_elsewhere(random), texts.name_object(random)
    if random.random() < 0.1:
        # In no namespace at all.
        names = ("planted", "red", "{{ 'planted' }}", "blue")
        kind = random.choice(("Namespace", "ClusterPolicy", "ClusterRoleBinding"))
        group = {"Namespace": "v1", "ClusterPolicy": "kyverno.io/v1"}.get(kind, _RBAC)
        return {"apiVersion": group, "kind": kind, "name": random.choice(names)}
    group, kind = random.choice(
        (
            ("v1", "ConfigMap"),
            ("v1", "Secret"),
            ("v1", "ConfigMap"),
            ("v1", "{{ 'ConfigMap' }}"),
            (_RBAC, "RoleBinding"),
            ("kyverno.io/v2", "PolicyException"),
        )
    )
    names = (name, "lictor", "planted", "lictor-metrics")
    return {
        "apiVersion": group,
        "kind": kind,
        "name": random.choice(names),
        "namespace": random.choice((where, "red")),
    }


def _clone(random: Random, names: Names) -> Object:
    where, name = texts.name_elsewhere(random), texts.name_object(random)
    synchronize = random.random() < 0.5
    if random.random() < 0.5:
        clone = {"name": name, "namespace": where}
        return {"generate": {**_what(random), "synchronize": synchronize, "clone": clone}}
    listed = {
        "namespace": where,
        "kinds": ["v1/Secret", "v1/ConfigMap"],
        "selector": {"matchLabels": {"shared": "true"}},
    }
    into = random.choice(("red", texts.name_elsewhere(random)))
    return {"generate": {"namespace": into, "synchronize": synchronize, "cloneList": listed}}
