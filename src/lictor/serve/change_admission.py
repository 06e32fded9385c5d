"""May a stored policy become this one? What generate rules have made must stay theirs."""

from collections.abc import Iterator

from lictor.raw import Json, JsonObject
from lictor.serve.opinion import ACCEPTED, Opinion

# What may change without leaving made objects behind; all else says which objects these are.
_MUTABLE = frozenset(
    ["synchronize", "data", "foreach", "orphanDownstreamOnPolicyDelete", "generateExisting"]
)
_STALE = (
    "no synchronization will be performed to the old target resource upon policy updates: "
    "changes in the generate rule pattern could result in stale targets"
)
_IMMUTABLE = (
    "spec.rules: changes of immutable fields of a rule spec in a generate rule is disallowed: "
    'rule "{}" must stay as it is but for generate'
)


def review_change(document: JsonObject, old: JsonObject) -> Opinion:
    """What is wrong with changing the policy `old` into this one."""
    before, after = list(_list_generating(old)), list(_list_generating(document))
    targets = [_read_target(rule) for rule in after]
    if any(_read_target(rule) not in targets for rule in before):
        return Opinion(warnings=(_STALE,))
    is_kept = any(rule["generate"].get("synchronize") is True for rule in before)
    kept = [_read_identity(rule, with_match=is_kept) for rule in after]
    lost = [rule for rule in before if _read_identity(rule, with_match=is_kept) not in kept]
    if not lost:
        return ACCEPTED
    return Opinion(tuple(_IMMUTABLE.format(rule.get("name")) for rule in lost))


def is_untouched(document: JsonObject, old: JsonObject) -> bool:
    """Does the update leave alone what the policy says, or is it on its way out?"""
    metadata, before = document.get("metadata"), old.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(before, dict):
        return False
    if metadata.get("deletionTimestamp"):
        return True
    same_notes = metadata.get("annotations") == before.get("annotations")
    return same_notes and document.get("spec") == old.get("spec")


def _list_generating(document: JsonObject) -> Iterator[JsonObject]:
    spec = document.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, dict) and isinstance(rule.get("generate"), dict) and rule["generate"]:
            yield rule


def _read_target(rule: JsonObject) -> JsonObject:
    return _without(rule["generate"], _MUTABLE)


def _read_identity(rule: JsonObject, *, with_match: bool) -> JsonObject:
    return _without(rule, frozenset(["generate"] if with_match else ["generate", "match"]))


def _without(fields: JsonObject, names: frozenset[str]) -> JsonObject:
    """The other fields; an empty one is as good as none."""
    return {name: value for name, value in fields.items() if name not in names and _says(value)}


def _says(value: Json) -> bool:
    return value is not None and value not in ("", [], {})
