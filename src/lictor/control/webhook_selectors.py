"""Label selectors of webhooks: from policies, from the settings, and both together."""

from collections.abc import Iterable

import msgspec

from lictor.cluster.store import StoredPolicy
from lictor.lang.wildcard import compile_wildcard
from lictor.match.classic import list_descriptions
from lictor.model.policy import LabelSelector, Policy
from lictor.raw import Json, JsonObject

# Every Namespace has this label, and its name as the value.
NAME_LABEL = "kubernetes.io/metadata.name"


def write_selector(selector: LabelSelector | None) -> JsonObject:
    """A selector in the API's form; the empty one takes everything."""
    return {} if selector is None else dict(msgspec.to_builtins(selector))


def merge_selectors(*selectors: JsonObject | None) -> JsonObject:
    """A selector that takes what each of these takes."""
    labels: JsonObject = {}
    expressions: list[Json] = []
    for selector in selectors:
        for key, value in ((selector or {}).get("matchLabels") or {}).items():
            if labels.setdefault(key, value) != value:
                # Two values of one label: nothing has both, and a map cannot say so.
                expressions.append({"key": key, "operator": "In", "values": [value]})
        for expression in (selector or {}).get("matchExpressions") or ():
            if expression not in expressions:
                expressions.append(expression)
    merged: JsonObject = {}
    if labels:
        merged["matchLabels"] = labels
    if expressions:
        merged["matchExpressions"] = expressions
    return merged


def select_namespaces(policies: Iterable[StoredPolicy]) -> JsonObject:
    """Where policies that all live in namespaces apply; everywhere where one does not."""
    namespaces = {policy.namespace for policy in policies}
    if not namespaces or "" in namespaces:
        return {}
    only = {"key": NAME_LABEL, "operator": "In", "values": sorted(namespaces)}
    return {"matchExpressions": [only]}


def excludes_namespace(selector: JsonObject | None, namespace: str) -> bool:
    """Does a selector of namespaces leave this one out, by its name?"""
    if (selector or {}).get("matchLabels", {}).get(NAME_LABEL, namespace) != namespace:
        return True
    for expression in (selector or {}).get("matchExpressions") or ():
        named = namespace in (expression.get("values") or ())
        if expression.get("key") == NAME_LABEL and (
            (expression.get("operator") == "NotIn" and named)
            or (expression.get("operator") == "In" and not named)
        ):
            return True
    return False


def names_namespace(policy: StoredPolicy, namespace: str) -> bool:
    """Does a policy say by name that it is about this namespace?"""
    if policy.namespace == namespace:
        return True
    if isinstance(policy.record, Policy):
        written = [
            pattern
            for rule in policy.record.spec.rules
            for described in list_descriptions(rule.match)
            for pattern in described.namespaces
        ]
        return any(each != "*" and compile_wildcard(each)(namespace) for each in written)
    constraints = (policy.document.get("spec") or {}).get("matchConstraints") or {}
    selector = constraints.get("namespaceSelector") or {}
    if (selector.get("matchLabels") or {}).get(NAME_LABEL) == namespace:
        return True
    return any(
        each.get("key") == NAME_LABEL
        and each.get("operator") == "In"
        and namespace in (each.get("values") or ())
        for each in selector.get("matchExpressions") or ()
    )
