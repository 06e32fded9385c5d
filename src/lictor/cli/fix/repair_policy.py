"""A policy in its old form becomes one in today's form; what was wrong is told."""

from lictor.cli.fix.repair import Repair
from lictor.raw import Json, JsonObject

KINDS = frozenset(("ClusterPolicy", "Policy"))
_GROUP = "kyverno.io/"
_ACTIONS = {"enforce": "Enforce", "audit": "Audit"}
_OPERATORS = {"Equal": "Equals", "NotEqual": "NotEquals", "In": "AllIn", "NotIn": "AnyNotIn"}
_OLD_FILTER = ("resources", "subjects", "roles", "clusterRoles")


def is_policy(document: Json) -> bool:
    """Whether a document is a policy of the kind that has an old form."""
    return (
        isinstance(document, dict)
        and document.get("kind") in KINDS
        and str(document.get("apiVersion")).startswith(_GROUP)
    )


def repair_policy(document: JsonObject) -> Repair:
    """Move old fields to where they belong; the document itself is left as it is."""
    messages: list[str] = []
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return Repair(document, ())
    spec = dict(spec)
    action = spec.get("validationFailureAction")
    if isinstance(action, str):
        spec["validationFailureAction"] = _ACTIONS.get(action.lower(), action)
    if isinstance(spec.get("rules"), list):
        spec["rules"] = [_repair_rule(rule, messages) for rule in spec["rules"]]
    return Repair({**document, "spec": spec}, tuple(messages))


def _repair_rule(rule: Json, messages: list[str]) -> Json:
    if not isinstance(rule, dict):
        return rule
    made = dict(rule)
    for word in ("match", "exclude"):
        if isinstance(made.get(word), dict):
            made[word] = _repair_filter(word, made[word], messages)
    if "preconditions" in made:
        made["preconditions"] = _repair_conditions(made["preconditions"], messages)
    return made


def _repair_filter(word: str, block: JsonObject, messages: list[str]) -> JsonObject:
    old = {key: block[key] for key in _OLD_FILTER if block.get(key)}
    if not old:
        return block
    messages.append(f"{word} uses old syntax, moving to any")
    kept = {key: value for key, value in block.items() if key not in _OLD_FILTER}
    present = kept.get("any")
    return {**kept, "any": [*(present if isinstance(present, list) else []), old]}


def _repair_conditions(conditions: Json, messages: list[str]) -> Json:
    if isinstance(conditions, list):
        messages.append("preconditions use old syntax, moving to all")
        conditions = {"all": conditions}
    if not isinstance(conditions, dict):
        return conditions
    return {
        word: [_repair_condition(condition, messages) for condition in block]
        if isinstance(block, list)
        else block
        for word, block in conditions.items()
    }


def _repair_condition(condition: Json, messages: list[str]) -> Json:
    operator = condition.get("operator") if isinstance(condition, dict) else None
    if not isinstance(operator, str) or operator not in _OPERATORS:
        return condition
    messages.append(f"condition uses old operator `{operator}`, updating")
    return {**condition, "operator": _OPERATORS[operator]}
