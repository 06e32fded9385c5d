"""Mutate rules that become one MutatingPolicy: which can, and what does each ask by itself?"""

import re

import msgspec
from msgspec.structs import replace

from lictor.convert.cel_tests import TRUE, Atom, Test, all_of, render
from lictor.convert.document import RuleTrigger, split_made_name
from lictor.convert.pod_places import choose_pod_path, pod_variables, share_paths, share_text
from lictor.convert.rule_group import are_told_apart, ask_kind
from lictor.convert.selection import ResolvedKind
from lictor.convert.simplify import simplify
from lictor.raw import JsonObject

_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_PATCHES = "jsonPatch"


class MutationPart(msgspec.Struct, frozen=True):
    """One rule: its trigger, a further condition, and its mutations."""

    rule: str
    pod: tuple[str, ...] | None
    trigger: RuleTrigger
    gate: Test
    mutations: tuple[JsonObject, ...]


def group_parts(parts: list[MutationPart]) -> list[list[MutationPart]]:
    """The rules in groups that concern the same requests."""
    groups: list[list[MutationPart]] = []
    for part in parts:
        same = next((group for group in groups if _agree(group[0], part)), None)
        if same is None:
            groups.append([part])
        else:
            same.append(part)
    return groups


def _agree(one: MutationPart, other: MutationPart) -> bool:
    mine, others = one.trigger, other.trigger
    return one.pod == other.pod and (
        mine.kinds,
        mine.operations,
        mine.conditions,
        mine.namespace_selector,
    ) == (others.kinds, others.operations, others.conditions, others.namespace_selector)


# --- as few as possible


def merge_parts(parts: list[MutationPart]) -> list[list[MutationPart]]:
    """As few groups as possible: each mutation asks by itself what not all of its group ask."""
    families: list[list[MutationPart]] = []
    for part in _share_all(parts):
        fitting = next((each for each in families if _can_join(each, part)), None)
        if fitting is None:
            families.append([part])
        else:
            fitting.append(part)
    return [_ask_apart(family) for family in families]


def _can_join(family: list[MutationPart], other: MutationPart) -> bool:
    return all(
        part.trigger.namespace_selector == other.trigger.namespace_selector
        and part.trigger.operations == other.trigger.operations
        and are_told_apart(part.trigger.kinds, other.trigger.kinds)
        for part in family
    )


def _ask_apart(parts: list[MutationPart]) -> list[MutationPart]:
    if all(_agree(parts[0], part) for part in parts):
        return parts
    kinds = tuple(dict.fromkeys(kind for part in parts for kind in part.trigger.kinds))
    shared = _find_shared(parts)
    return [_ask_first(part, kinds, shared) for part in parts]


def _find_shared(parts: list[MutationPart]) -> tuple[tuple[str, str], ...]:
    first, *rest = (part.trigger.conditions for part in parts)
    return tuple(each for each in first if all(each in conditions for conditions in rest))


def _ask_first(
    part: MutationPart, kinds: tuple[ResolvedKind, ...], shared: tuple[tuple[str, str], ...]
) -> MutationPart:
    """The part in a policy about more kinds, with fewer conditions."""
    trigger = part.trigger
    gate = all_of((*ask_kind(trigger.kinds, kinds), *_list_own(part, shared), part.gate))
    return replace(
        part, pod=None, trigger=replace(trigger, kinds=kinds, conditions=shared), gate=gate
    )


def _list_own(part: MutationPart, shared: tuple[tuple[str, str], ...]) -> list[Test]:
    conditions = part.trigger.conditions
    return [Atom(f"({text})") for name, text in conditions if (name, text) not in shared]


# --- one patch for Pods wherever they are


def _share_all(parts: list[MutationPart]) -> list[MutationPart]:
    families: dict[str, list[MutationPart]] = {}
    for part in parts:
        families.setdefault(split_made_name(part.rule), []).append(part)
    made: list[MutationPart] = []
    for family in families.values():
        one = _share(family) if len(family) > 1 else None
        made += family if one is None else [one]
    return made


def _share(family: list[MutationPart]) -> MutationPart | None:
    """One part for Pods and all that makes Pods; None where that would not do the same to all."""
    shared = _find_shared(family)
    made = [_name_pod(part, shared) for part in family]
    first = made[0]
    if any((part.gate, part.mutations) != (first.gate, first.mutations) for part in made):
        return None
    if any(_PATCHES not in mutation for mutation in first.mutations):
        return None
    kinds = tuple(dict.fromkeys(kind for part in family for kind in part.trigger.kinds))
    trigger = replace(first.trigger, kinds=kinds, conditions=shared)
    return replace(first, pod=None, trigger=trigger)


def _name_pod(part: MutationPart, shared: tuple[tuple[str, str], ...]) -> MutationPart:
    gate = simplify(all_of((*_list_own(part, shared), part.gate)))
    if gate != TRUE:
        gate = Atom(share_text(render(gate)))
    return replace(part, gate=gate, mutations=tuple(map(_name_pod_in, part.mutations)))


def _name_pod_in(mutation: JsonObject) -> JsonObject:
    if _PATCHES not in mutation:
        return mutation
    text = share_paths(share_text(mutation[_PATCHES]["expression"]))
    return {**mutation, _PATCHES: {"expression": text}}


def list_variables(texts: list[str]) -> dict[str, str]:
    """The variables that expressions refer to."""
    used = {name for text in texts for name in _VARIABLE.findall(text)}
    known = {**pod_variables("object", is_strict=True), "podPath": choose_pod_path()}
    return {name: text for name, text in known.items() if name in used}
