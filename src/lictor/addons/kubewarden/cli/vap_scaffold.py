"""Kubernetes' own validating policy and its binding as a policy in Wasm that evaluates CEL."""

from collections.abc import Mapping

from lictor.addons.kubewarden.cli.scaffolds import API_VERSION, CLUSTER_KIND
from lictor.core.errors import LoadError
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.raw import Json, JsonObject

# The policy of Kubewarden that evaluates CEL.
CEL_POLICY = "ghcr.io/kubewarden/policies/cel-policy:latest"
_GROUP = "admissionregistration.k8s.io/"
_SELECTORS = ("namespaceSelector", "objectSelector")
_TAKEN_OVER = ("variables", "validations", "auditAnnotations")


def scaffold_vap(policy: JsonObject, binding: JsonObject, module: str) -> JsonObject:
    """The manifest; LoadError for what it could not express, as it would judge otherwise."""
    _check_kind(policy, VALIDATING_KIND)
    _check_kind(binding, f"{VALIDATING_KIND}Binding")
    spec, bound = _read_map(policy, "spec"), _read_map(binding, "spec")
    name = _read_map(policy, "metadata").get("name")
    if bound.get("policyName") != name:
        raise LoadError(f"the binding is for policy {bound.get('policyName')!r}, not for {name!r}")
    constraints, narrowed = _read_map(spec, "matchConstraints"), _read_map(bound, "matchResources")
    _refuse_lost(constraints, narrowed)
    made: JsonObject = {
        "module": module,
        "settings": _build_settings(spec, bound),
        "rules": [_convert_rule(rule) for rule in constraints.get("resourceRules") or ()],
        "mutating": False,
    }
    if not _denies(bound):
        made["mode"] = "monitor"
    if (failure := spec.get("failurePolicy")) and failure != "Fail":
        made["failurePolicy"] = failure
    match = narrowed.get("matchPolicy") or constraints.get("matchPolicy")
    made |= {"matchPolicy": match} if match else {}
    if spec.get("matchConditions"):
        made["matchConditions"] = spec["matchConditions"]
    for selector in _SELECTORS:
        both = _join_selectors(constraints.get(selector), narrowed.get(selector))
        made |= {selector: both} if both else {}
    head = {"name": _read_map(binding, "metadata").get("name")}
    return {"apiVersion": API_VERSION, "kind": CLUSTER_KIND, "metadata": head, "spec": made}


def _check_kind(body: JsonObject, kind: str) -> None:
    version = str(body.get("apiVersion", ""))
    if body.get("kind") != kind or not version.startswith(_GROUP):
        raise LoadError(f"expected a {kind}, found a {body.get('kind')} of {version}")


def _read_map(body: Mapping[str, Json], name: str) -> JsonObject:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LoadError(f"{name} must be a mapping")
    return value


def _build_settings(spec: JsonObject, bound: JsonObject) -> JsonObject:
    kind, reference = spec.get("paramKind"), bound.get("paramRef")
    if (kind is None) != (reference is None):
        raise LoadError("paramKind of the policy and paramRef of the binding go together")
    settings: JsonObject = {"failurePolicy": spec.get("failurePolicy") or "Fail"}
    if kind is not None:
        settings |= {"paramKind": kind, "paramRef": reference}
    return settings | {name: spec[name] for name in _TAKEN_OVER if spec.get(name)}


def _convert_rule(rule: JsonObject) -> JsonObject:
    if rule.get("resourceNames"):
        raise LoadError("a rule with resourceNames has no counterpart: it would match all names")
    names = ("apiGroups", "apiVersions", "resources", "operations", "scope")
    return {name: rule[name] for name in names if name in rule}


def _refuse_lost(constraints: JsonObject, narrowed: JsonObject) -> None:
    """What is not carried over makes the policy judge more than it did."""
    if constraints.get("excludeResourceRules") or narrowed.get("excludeResourceRules"):
        raise LoadError("excludeResourceRules have no counterpart")
    if narrowed.get("resourceRules"):
        raise LoadError("resourceRules of a binding have no counterpart: put them into the policy")


def _denies(bound: JsonObject) -> bool:
    actions = bound.get("validationActions")
    return not actions or "Deny" in actions


def _join_selectors(one: Json, other: Json) -> JsonObject:
    """A selector that takes what both take."""
    given = [each for each in (one, other) if each]
    if len(given) < 2:
        return dict(given[0]) if given else {}
    labels: JsonObject = {}
    expressions: list[Json] = []
    for each in given:
        expressions.extend(each.get("matchExpressions") or ())
        for key, value in (each.get("matchLabels") or {}).items():
            if labels.setdefault(key, value) != value:
                expressions.append({"key": key, "operator": "In", "values": [value]})
    made: JsonObject = {"matchLabels": labels} if labels else {}
    return made | ({"matchExpressions": expressions} if expressions else {})
