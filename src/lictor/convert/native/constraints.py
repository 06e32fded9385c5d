"""Filters of a classic rule as the match constraints of an admission policy of Kubernetes."""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.convert.native.objects import FindResources, Found, quote, write
from lictor.errors import CompileError
from lictor.model.policy import LabelRequirement, LabelSelector, Match, ResourceDescription
from lictor.raw import JsonObject

_ALL_OPERATIONS = ("CREATE", "UPDATE", "CONNECT", "DELETE")
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


def build_constraints(
    match: Match, excluded: Iterable[Match], find: FindResources
) -> tuple[JsonObject, list[tuple[str, str]]]:
    """The match constraints, and conditions for what these cannot say."""
    filters = list_descriptions(match)
    constraints: JsonObject = {"resourceRules": _build_rules(filters, find)}
    selector = _select_namespaces(filters[0])
    if selector is not None:
        constraints["namespaceSelector"] = write(selector)
    if filters[0].selector is not None:
        constraints["objectSelector"] = write(filters[0].selector)
    left_out = [each for one in excluded for each in list_descriptions(one)]
    rules = _build_rules(left_out, find)
    if rules:
        constraints["excludeResourceRules"] = rules
    return constraints, list(_list_conditions(left_out))


def list_descriptions(match: Match) -> list[ResourceDescription]:
    """The filters of a match, or the match itself in its older form."""
    filters = [each.resources for each in (*match.any, *match.all)]
    if filters:
        return filters
    return [match.resources] if match.resources != ResourceDescription() else []


def _build_rules(filters: Iterable[ResourceDescription], find: FindResources) -> list[JsonObject]:
    rules: list[JsonObject] = []
    for each in filters:
        for rule in _list_rules(each, find):
            _add_rule(rules, rule)
    return rules


def _list_rules(each: ResourceDescription, find: FindResources) -> Iterator[JsonObject]:
    for kind in each.kinds:
        if kind == "*":
            yield _make_rule(each, "*", ["*"], ["*"])
            continue
        found = _find_one(kind, find)
        resources = [found[0].resource]
        if resources == ["pods"]:
            # What is added to a Pod later is a part of it.
            resources.append("pods/ephemeralcontainers")
        yield _make_rule(each, found[0].group, sorted(f.version for f in found), resources)
    if each.namespaces and not each.kinds:
        yield {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": list(each.operations or _ALL_OPERATIONS),
            "resourceNames": list(each.namespaces),
            "resources": ["namespaces"],
        }


def _find_one(kind: str, find: FindResources) -> list[Found]:
    found = list(find(kind))
    if len({(each.group, each.resource) for each in found}) != 1:
        raise CompileError(
            "skip generating ValidatingAdmissionPolicy: no unique match for kind " + kind
        )
    return found


def _make_rule(
    each: ResourceDescription, group: str, versions: list[str], resources: list[str]
) -> JsonObject:
    rule: JsonObject = {
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": list(each.operations or _ALL_OPERATIONS),
        "resources": resources,
    }
    names = (*each.names, each.name) if each.name else each.names
    if names:
        rule["resourceNames"] = list(names)
    return rule


def _add_rule(rules: list[JsonObject], rule: JsonObject) -> None:
    """Into a rule that differs in its resources only, if there is one."""
    for known in rules:
        if _without_resources(known) == _without_resources(rule):
            known["resources"] = sorted({*known["resources"], *rule["resources"]})
            return
    rules.append(rule)


def _without_resources(rule: JsonObject) -> JsonObject:
    return {key: value for key, value in rule.items() if key != "resources"}


def _select_namespaces(each: ResourceDescription) -> LabelSelector | None:
    selector = each.namespace_selector
    if not each.namespaces:
        return selector
    named = LabelRequirement(key=_NAMESPACE_NAME, operator="In", values=each.namespaces)
    if selector is None:
        return LabelSelector(match_expressions=(named,))
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, named))


def _list_conditions(filters: Iterable[ResourceDescription]) -> Iterator[tuple[str, str]]:
    """Rules tell resources by kind and name; what is told by namespace needs a condition."""
    for each in filters:
        tests = []
        if each.namespaces:
            tests.append(f"request.namespace in {quote(each.namespaces)}")
        names = (*each.names, each.name) if each.name else each.names
        if names and not each.kinds:
            tests.append(f"request.name in {quote(names)}")
        if not tests or each.kinds:
            continue
        if each.operations:
            tests.append(f"request.operation in {quote(each.operations)}")
        yield "exclude", f"!({' && '.join(tests)})"
