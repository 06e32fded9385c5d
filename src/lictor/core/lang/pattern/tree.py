"""Compiles maps and lists of a pattern to checks that return None or the fault.

A check is called with the value and with a record of the anchored keys that were found; one frame
per level of the pattern, and no paths unless there is a fault.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from lictor.core.lang.pattern.anchor import (
    ANYWHERE,
    CHECKED,
    MismatchPath,
    Modifier,
    holds_anchors,
    parse_anchor,
    strip_anchor,
)
from lictor.core.lang.pattern.chain import compile_chain, find_chain
from lictor.core.lang.pattern.go_values import name_type
from lictor.core.lang.pattern.mismatch import (
    Comparison,
    MismatchKind,
    PatternFault,
    Seen,
    differ_in_structure,
    differ_in_value,
    forbid_value,
    gather,
    lack_condition,
    lack_element,
    lack_key,
    lack_list,
    refuse,
)
from lictor.core.lang.pattern.scalar import Predicate, compile_scalar
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.raw import Json


class PatternEntry(msgspec.Struct, frozen=True, eq=False):
    """One key of a map pattern; `predicate` replaces `check` if the value is a leaf."""

    raw: str
    key: str
    modifier: Modifier | None
    expected: Json
    predicate: Predicate | None
    check: Comparison


def compile_node(pattern: Json, place: MismatchPath = ANYWHERE) -> Comparison:
    """Compile any part of a pattern, after its shape was checked."""
    if isinstance(pattern, dict):
        chain = find_chain(pattern, place)
        if not chain.steps:
            return _compile_map(pattern, place)
        if isinstance(chain.end, (dict, list)):
            return compile_chain(chain, compile_node(chain.end, chain.place))
        predicate = compile_scalar(chain.end)
        return compile_chain(chain, _compile_leaf(predicate, chain.end), predicate)
    if isinstance(pattern, list):
        return _compile_list(pattern)
    return _compile_leaf(compile_scalar(pattern), pattern)


def _compile_leaf(predicate: Predicate, pattern: Json) -> Comparison:
    def check(value: Json, _: Seen) -> PatternFault | None:
        fits = all(map(predicate, value)) if isinstance(value, list) else predicate(value)
        return None if fits else differ_in_value(pattern, value)

    return check


# ---------------------------------------------------------------------------------------- maps


def _compile_map(pattern: Json, place: MismatchPath) -> Comparison:
    # Kyverno converts tags to maps of strings, and loses all other values.
    raws = [raw for raw, value in pattern.items() if not place.is_tags or isinstance(value, str)]
    entries = [_compile_entry(raw, pattern[raw], place) for raw in sorted(raws)]
    if place.is_tags and any(has_wildcard(entry.raw) for entry in entries):
        return _compile_tags(pattern, entries)
    if any(entry.modifier is not None for entry in entries):
        return _compile_anchored_map(pattern, _plan(entries))
    return _compile_plain_map(pattern, entries)


def _compile_entry(raw: str, value: Json, place: MismatchPath) -> PatternEntry:
    anchor = parse_anchor(raw)
    # Wildcards and metadata are also recognized below `+(metadata)`.
    inner = place.enter(raw if anchor is None else anchor.key)
    if anchor is None or anchor.modifier not in CHECKED:
        return _compile_plain_entry(raw, value, inner)
    if anchor.modifier is Modifier.EXISTENCE:
        check = _compile_existence(value)
    elif anchor.modifier is Modifier.NEGATION:
        check = _be_forbidden
    else:
        check = compile_node(value, inner)
    return PatternEntry(raw, anchor.key, anchor.modifier, value, None, check)


def _compile_plain_entry(key: str, value: Json, place: MismatchPath) -> PatternEntry:
    if value == "*":
        return PatternEntry(key, key, None, value, None, _exists)
    if isinstance(value, (dict, list)):
        return PatternEntry(key, key, None, value, None, compile_node(value, place))
    predicate = compile_scalar(value)
    return PatternEntry(key, key, None, value, predicate, _compile_leaf(predicate, value))


_ABSENT = lack_key("")


def _exists(value: Json, _: Seen) -> PatternFault | None:
    """Any value but null; the map reports a missing key."""
    return None if value is not None else _ABSENT


def _be_forbidden(value: Json, _: Seen) -> PatternFault | None:
    return forbid_value(value)


def _order_plain(entries: list[PatternEntry]) -> tuple[PatternEntry, ...]:
    """Conditions first: entries with anchors come before others, and last before first."""
    first = [
        entry
        for entry in entries
        if entry.modifier is Modifier.GLOBAL or holds_anchors(entry.expected)
    ]
    return (*reversed(first), *[entry for entry in entries if entry not in first])


def _compile_plain_map(pattern: Json, entries: list[PatternEntry]) -> Comparison:
    ordered = _order_plain(entries) if len(entries) > 1 else entries
    steps = tuple((entry.key, entry.predicate, entry.check, entry.expected) for entry in ordered)

    def check(value: Json, seen: Seen) -> PatternFault | None:
        if not isinstance(value, dict):
            return differ_in_structure(pattern, value)
        for key, predicate, compare, expected in steps:
            item = value.get(key)
            if predicate is None:
                fault = compare(item, seen)
                if fault is not None:
                    return lack_key(key) if fault is _ABSENT else fault.below(key)
            elif isinstance(item, list):
                if not all(map(predicate, item)):
                    return differ_in_value(expected, item).below(key)
            elif not predicate(item):
                return differ_in_value(expected, item).below(key)
        return None

    return check


# Key, modifier, check, and the fault for a missing key.
AnchoredStep = tuple[str, Modifier | None, Comparison, PatternFault | None]
PlainStep = tuple[str, Modifier | None, Comparison]
Plan = tuple[tuple[tuple[str, str], ...], tuple[AnchoredStep, ...], tuple[PlainStep, ...]]

_NO_CONDITION = lack_condition()


def _plan(entries: list[PatternEntry]) -> Plan:
    """Sort entries into those to record, the anchors, and the remaining keys."""
    later = (None, Modifier.GLOBAL)
    recorded = (Modifier.CONDITION, Modifier.EXISTENCE)
    anchored = [entry for entry in entries if entry.modifier not in later]
    plain = [entry for entry in entries if entry.modifier in later]
    return (
        tuple((entry.raw, entry.key) for entry in anchored if entry.modifier in recorded),
        tuple((entry.key, entry.modifier, entry.check, _absence(entry)) for entry in anchored),
        tuple((entry.key, entry.modifier, entry.check) for entry in _order_plain(plain)),
    )


def _absence(entry: PatternEntry) -> PatternFault | None:
    return _NO_CONDITION if entry.modifier is Modifier.CONDITION else None


def _compile_anchored_map(
    pattern: Json, plan: Plan, find_plan: Callable[[Json], Plan] | None = None
) -> Comparison:
    def check(value: Json, seen: Seen) -> PatternFault | None:
        if not isinstance(value, dict):
            return differ_in_structure(pattern, value)
        recorded, anchored, plain = plan if find_plan is None else find_plan(value)
        for raw, key in recorded:
            seen[raw] = key in value or seen.get(raw, False)
        # Built only for a fault, which is rare.
        skips: list[PatternFault] | None = None
        applied = False
        for key, modifier, compare, absence in anchored:
            fault = compare(value[key], seen) if key in value else absence
            if fault is None:
                applied = True
                continue
            skips = skips or []
            if _outweighs(_lift(fault, key, modifier), skips):
                return fault
        if skips and (not applied or _is_condition_among(skips)):
            return gather(skips)
        for key, modifier, compare in plain:
            fault = compare(value.get(key), seen) if modifier is None or key in value else None
            if fault is not None:
                return _lift(fault, key, modifier)
        return None

    return check


def _lift(fault: PatternFault, key: str, modifier: Modifier | None) -> PatternFault:
    """Lift a fault from the value of a key to the map."""
    if fault is _ABSENT:
        return lack_key(key)
    if fault is _NO_CONDITION:
        return fault
    fault.below(key)
    if modifier is Modifier.CONDITION:
        return fault.become_condition("conditional anchor mismatch")
    if modifier is Modifier.GLOBAL:
        return fault.become_condition("global anchor mismatch")
    return fault


def _outweighs(fault: PatternFault, skips: list[PatternFault]) -> bool:
    """Whether the fault decides; conditions are kept, and excuse later faults."""
    if fault.skips:
        skips.append(fault)
        return False
    return not _is_condition_among(skips)


def _is_condition_among(faults: list[PatternFault]) -> bool:
    return any(fault.kind is MismatchKind.CONDITION for fault in faults)


def _compile_tags(pattern: Json, entries: list[PatternEntry]) -> Comparison:
    """Labels or annotations with wildcards in keys, which mean the first key that matches."""
    fitting = [
        (entry, compile_wildcard(strip_anchor(entry.raw)) if has_wildcard(entry.raw) else None)
        for entry in entries
    ]

    def find_plan(value: Json) -> Plan:
        tags = [key for key, tag in value.items() if isinstance(key, str) and isinstance(tag, str)]
        renamed = []
        for entry, matches in fitting:
            found = next(filter(matches, tags), None) if matches is not None else None
            renamed.append(entry if found is None else _rename(entry, found))
        renamed.sort(key=lambda entry: entry.raw)
        return _plan(renamed)

    return _compile_anchored_map(pattern, _plan(entries), find_plan)


def _rename(entry: PatternEntry, key: str) -> PatternEntry:
    anchor = parse_anchor(entry.raw)
    if anchor is None:
        return replace(entry, raw=key, key=key)
    raw = str(replace(anchor, key=key))
    return replace(entry, raw=raw, key=raw if entry.modifier is None else key)


# --------------------------------------------------------------------------------------- lists


def _compile_list(pattern: list[Json]) -> Comparison:
    if not pattern:
        return _compile_empty(pattern)
    if isinstance(pattern[0], dict):
        # Kyverno reads the first element only, and policies rely on it.
        return _compile_list_of_maps(pattern, compile_node(pattern[0]))
    if isinstance(pattern[0], list):
        return _compile_list_of_lists(pattern, [compile_node(item) for item in pattern])
    return _compile_list_of_leaves(pattern, compile_scalar(pattern[0]))


def _compile_empty(pattern: Json) -> Comparison:
    def check(value: Json, _: Seen) -> PatternFault | None:
        if not isinstance(value, list):
            return lack_list(pattern, value)
        return refuse("pattern Array empty", pattern, value)

    return check


def _compile_list_of_leaves(pattern: list[Json], predicate: Predicate) -> Comparison:
    def check(value: Json, _: Seen) -> PatternFault | None:
        if not isinstance(value, list):
            return lack_list(pattern, value)
        return None if all(map(predicate, value)) else differ_in_value(pattern[0], value)

    return check


def _compile_list_of_maps(pattern: Json, compare: Comparison) -> Comparison:
    """Every element must match, except those whose conditions are not met; at least one must."""

    def check(value: Json, seen: Seen) -> PatternFault | None:
        if not isinstance(value, list):
            return lack_list(pattern, value)
        skips: list[PatternFault] | None = None
        for index, item in enumerate(value):
            fault = compare(item, seen)
            if fault is None:
                continue
            fault.below(str(index))
            if not fault.skips:
                return fault
            skips = [*(skips or ()), fault]
        return gather(skips) if skips and len(skips) == len(value) else None

    return check


def _compile_list_of_lists(pattern: Json, comparisons: list[Comparison]) -> Comparison:
    """Elements are compared one by one with the pattern's element at the same index."""
    width = len(comparisons)

    def check(value: Json, seen: Seen) -> PatternFault | None:
        if not isinstance(value, list):
            return lack_list(pattern, value)
        if len(value) < width:
            return _be_too_short(pattern, value)
        skips: list[PatternFault] = []
        for index, compare in enumerate(comparisons):
            fault = compare(value[index], seen)
            if fault is None:
                continue
            fault.below(str(index))
            if not fault.skips:
                return fault
            skips.append(fault)
        return gather(skips) if len(skips) == width else None

    return check


def _be_too_short(pattern: list[Json], value: list[Json]) -> PatternFault:
    reason = (
        "validate Array failed, array length mismatch, "
        f"resource Array len is {len(value)} and pattern Array len is {len(pattern)}"
    )
    return refuse(reason, pattern, value, placeless=True)


def _compile_existence(pattern: Json) -> Comparison:
    """For each map of the pattern's list, some element of the resource's list must match."""
    is_list = isinstance(pattern, list)
    wanted = tuple(
        (item, compile_node(item) if is_list and isinstance(item, dict) else None)
        for item in (pattern if is_list else [pattern])
    )
    wrong = f"invalid pattern type {name_type(pattern)}: Pattern has to be of " + (
        "type map to compare against items in resource"
        if is_list
        else "list to compare against resource"
    )

    def check(value: Json, seen: Seen) -> PatternFault | None:
        if not isinstance(value, list):
            return _be_no_list(pattern, value)
        for item, compare in wanted:
            if compare is None:
                return refuse(wrong, pattern, value)
            for element in value:
                if compare(element, seen) is None:
                    break
            else:
                return lack_element(item, value)
        return None

    return check


def _be_no_list(pattern: Json, value: Json) -> PatternFault:
    reason = (
        f"invalid resource type {name_type(value)}: "
        "Existence ^ () anchor can be used only on list/array type resource"
    )
    return refuse(reason, pattern, value)
