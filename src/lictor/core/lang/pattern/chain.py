"""Compiles nested maps with one key each to one check, as most of a pattern is such a path.

`=(securityContext): {=(windowsOptions): {=(hostProcess): "false"}}` is a walk along three keys with
one comparison at the end. A call for each map would cost more than all comparisons.
"""

import msgspec

from lictor.core.lang.pattern.anchor import MismatchPath, Modifier, parse_anchor
from lictor.core.lang.pattern.mismatch import (
    Comparison,
    PatternFault,
    Seen,
    differ_in_structure,
    gather,
)
from lictor.core.lang.pattern.scalar import Predicate
from lictor.core.raw import Json

# A key, and whether everything below it is skipped if it is missing.
Step = tuple[str, bool]


class Chain(msgspec.Struct, frozen=True, eq=False):
    """Nested keys, the maps of the pattern that contain them, and the last value."""

    steps: tuple[Step, ...]
    maps: tuple[Json, ...]
    end: Json
    place: MismatchPath


def find_chain(pattern: Json, place: MismatchPath) -> Chain:
    """The longest chain that starts here; without steps if the map has several keys."""
    steps: list[Step] = []
    maps: list[Json] = []
    while isinstance(pattern, dict) and len(pattern) == 1 and not place.is_tags:
        ((raw, value),) = pattern.items()
        anchor = parse_anchor(raw)
        is_optional = anchor is not None and anchor.modifier is Modifier.EQUALITY
        if (anchor is not None and not is_optional) or (value == "*" and not is_optional):
            # Other anchors interpret their values; `*` has its own message for a missing key.
            break
        key = raw if anchor is None else anchor.key
        steps.append((key, is_optional))
        maps.append(pattern)
        pattern, place = value, place.enter(key)
    return Chain(tuple(steps), tuple(maps), pattern, place)


def compile_chain(
    chain: Chain, compare: Comparison, predicate: Predicate | None = None
) -> Comparison:
    """Walk along the keys, and call `compare` with the value at the end.

    `predicate` is that of a leaf at the end: most values fit, and need no further call.
    """
    steps = chain.steps

    def check(value: Json, seen: Seen) -> PatternFault | None:
        found = value
        for key, is_optional in steps:
            if not isinstance(found, dict):
                return _differ_on_the_way(chain, value)
            if key in found:
                found = found[key]
            elif is_optional:
                return None
            else:
                found = None
        if predicate is not None and not isinstance(found, list) and predicate(found):
            return None
        fault = compare(found, seen)
        return None if fault is None else _lift(fault, steps)

    return check


def _differ_on_the_way(chain: Chain, value: Json) -> PatternFault:
    """Some value on the path is no map."""
    found = value
    for number, (key, _) in enumerate(chain.steps):
        if not isinstance(found, dict):
            return _lift(differ_in_structure(chain.maps[number], found), chain.steps[:number])
        found = found.get(key)
    raise AssertionError("a walk that failed once fails again")


def _lift(fault: PatternFault, steps: tuple[Step, ...]) -> PatternFault:
    """Lift a fault to the first map, as nested maps would."""
    for key, is_optional in reversed(steps):
        fault.below(key)
        if is_optional and fault.skips:
            fault = gather([fault])
    return fault
