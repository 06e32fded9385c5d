"""What do patterns and deny conditions ask of single fields?"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from lictor.errors import CompileError
from lictor.lang.pattern import compile_pattern
from lictor.lang.pattern.anchor import Modifier, parse_anchor
from lictor.lint.cluster_mutations import KeyPath
from lictor.lint.field import Field
from lictor.lint.value_sets import (
    ANY_VALUE,
    ValuePart,
    ValueSet,
    is_within,
    negate,
    read_compared,
    read_equal,
    read_scalar,
)
from lictor.model.finding import FieldPath
from lictor.raw import Json


class FieldConstraint(msgspec.Struct, frozen=True):
    """The values that a rule allows at a field of an object."""

    path: KeyPath
    allowed: ValueSet
    # Where the rule says so.
    at: FieldPath = ()
    # It follows from another one: what is in a map asks for the map.
    is_implied: bool = False


class CheckConstraints(msgspec.Struct, frozen=True):
    """What a check asks for: all of these must hold for a resource to pass."""

    constraints: tuple[FieldConstraint, ...] = ()
    # Nothing else is asked for: a resource passes if these hold.
    is_complete: bool = False

    def __and__(self, other: "CheckConstraints") -> "CheckConstraints":
        return CheckConstraints(
            (*self.constraints, *other.constraints), self.is_complete and other.is_complete
        )


# Something is asked for that cannot be told.
UNKNOWN = CheckConstraints()
NOTHING = CheckConstraints(is_complete=True)


def join_all(checks: Iterable[CheckConstraints]) -> CheckConstraints:
    """All of them must hold."""
    whole = NOTHING
    for check in checks:
        whole = whole & check
    return whole


def join_any(checks: Iterable[CheckConstraints]) -> CheckConstraints:
    """One of them must hold: that says something where all speak of one field."""
    listed = list(checks)
    if len(listed) == 1:
        return listed[0]
    asked = [[each for each in check.constraints if not each.is_implied] for check in listed]
    if not all(len(each) == 1 for each in asked):
        return UNKNOWN
    first, *others = [each[0] for each in asked]
    longest = max((first, *others), key=lambda each: len(each.path)).path
    allowed = ValueSet()
    for each in (first, *others):
        if each.path != longest and (each.allowed.parts or each.path != longest[: len(each.path)]):
            return UNKNOWN
        allowed = allowed | each.allowed
    is_complete = all(check.is_complete for check in listed)
    return CheckConstraints((FieldConstraint(longest, allowed, first.at),), is_complete)


def has_items(path: KeyPath) -> bool:
    """Is it a list that API servers want something in?"""
    return path[-1] == "containers" and path[-2:-1] == ("spec",)


# --- patterns


def read_pattern(pattern: Field) -> CheckConstraints:
    """What a pattern asks for; little where it has conditions."""
    if not pattern.is_object or _has_conditions(pattern):
        return UNKNOWN
    return join_all(_walk(pattern, (), frozenset()))


def _has_conditions(pattern: Field) -> bool:
    found = (parse_anchor(key) for key in _list_keys(pattern.value))
    return any(each and each.modifier in (Modifier.CONDITION, Modifier.GLOBAL) for each in found)


def _list_keys(value: Json) -> Iterator[str]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _walk(at: Field, path: KeyPath, absent: frozenset[int]) -> Iterator[CheckConstraints]:
    # Null is a pattern, too.
    for key in at.value:
        item = at[key]
        anchor = parse_anchor(key)
        name = key if anchor is None else anchor.key
        inner = (*path, name)
        if "{{" in name or "*" in name or "?" in name:
            yield UNKNOWN
        elif anchor is None:
            yield from _ask(item, inner, absent)
        elif anchor.modifier is Modifier.EQUALITY:
            yield from _ask(item, inner, absent | {len(inner)})
        elif anchor.modifier is Modifier.NEGATION:
            yield _one(inner, ValueSet((), absent | {len(inner)}), item)
        else:
            yield UNKNOWN


def _ask(item: Field, path: KeyPath, absent: frozenset[int]) -> Iterator[CheckConstraints]:
    if item.is_object:
        yield _imply(path, absent, item)
        yield from _walk(item, path, absent)
    elif item.is_list:
        yield _imply(path, absent, item)
        yield from _walk_list(item, path, absent)
    else:
        yield _read_leaf(item, path, absent)


def _imply(path: KeyPath, absent: frozenset[int], item: Field) -> CheckConstraints:
    implied = FieldConstraint(path, ValueSet((ANY_VALUE,), absent), item.path, is_implied=True)
    return CheckConstraints((implied,), is_complete=True)


def _walk_list(item: Field, path: KeyPath, absent: frozenset[int]) -> Iterator[CheckConstraints]:
    elements = list(item.each())
    if len(elements) != 1 or not elements[0].is_object:
        yield UNKNOWN
        return
    inner = (*path, "*")
    # An empty list holds nothing that could be wrong.
    spared = absent if has_items(path) else absent | {len(inner)}
    yield from _walk(elements[0], inner, spared)


def _read_leaf(item: Field, path: KeyPath, absent: frozenset[int]) -> CheckConstraints:
    parts = read_scalar(item.value)
    if parts is None:
        return UNKNOWN
    if _allows_absence(item.value):
        absent = absent | {len(path)}
    return _one(path, ValueSet(parts, absent), item)


def _allows_absence(pattern: Json) -> bool:
    try:
        return compile_pattern({"key": pattern})({}) is None
    except CompileError:
        return True


def _one(path: KeyPath, allowed: ValueSet, at: Field) -> CheckConstraints:
    return CheckConstraints((FieldConstraint(path, allowed, at.path),), is_complete=True)


# --- deny conditions

_KEY = re.compile(
    r"""\{\{\s*request\.object\.((?:[\w-]+|"[^"]+")(?:\.(?:[\w-]+|"[^"]+"))*)"""
    r"""\s*(?:\|\|\s*(`[^`]*`|'[^']*'))?\s*\}\}"""
)
_STEP = re.compile(r'"([^"]+)"|([\w-]+)')
_Read: TypeAlias = Callable[[Json], tuple[ValuePart, ...] | None]


def _read_equals(value: Json) -> tuple[ValuePart, ...] | None:
    part = read_equal(value)
    return None if part is None or isinstance(value, list) else (part,)


def _read_listed(value: Json) -> tuple[ValuePart, ...] | None:
    values = value if isinstance(value, list) else [value]
    found = [read_equal(each) for each in values]
    parts = tuple(part for part in found if part is not None)
    return parts if parts and len(parts) == len(found) else None


def _compare(sign: str) -> _Read:
    def read(value: Json) -> tuple[ValuePart, ...] | None:
        part = read_compared(sign, value)
        return None if part is None else (part,)

    return read


_OPERATORS: Final[Mapping[str, _Read]] = {
    "equals": _read_equals,
    "equal": _read_equals,
    "anyin": _read_listed,
    "in": _read_listed,
    "greaterthan": _compare(">"),
    "greaterthanorequals": _compare(">="),
    "lessthan": _compare("<"),
    "lessthanorequals": _compare("<="),
}
_NEGATED: Final[Mapping[str, _Read]] = {
    "notequals": _read_equals,
    "notequal": _read_equals,
    "anynotin": _read_listed,
    "allnotin": _read_listed,
    "notin": _read_listed,
}


def read_deny(conditions: Field) -> CheckConstraints:
    """What conditions under which a rule refuses ask for."""
    if not conditions.is_object or not set(conditions.value) <= {"any", "all"}:
        return UNKNOWN
    if conditions["any"].value and conditions["all"].value:
        return UNKNOWN
    found = [_read_condition(each) for each in conditions["any"].each()]
    if found:
        return join_all(found)
    # All of them must hold for a refusal: one that does not is enough.
    return join_any([_read_condition(each) for each in conditions["all"].each()] or [UNKNOWN])


def _read_condition(condition: Field) -> CheckConstraints:
    """What lets a resource pass: that the condition does not hold."""
    key = _KEY.fullmatch(condition["key"].text.strip())
    operator = condition["operator"].text.lower()
    read = _OPERATORS.get(operator) or _NEGATED.get(operator)
    if key is None or read is None or _has_variables(condition["value"]):
        return UNKNOWN
    path = tuple(quoted or plain for quoted, plain in _STEP.findall(key[1]))
    parts = read(condition["value"].value)
    if parts is not None and operator in _OPERATORS:
        parts = negate(parts)
    return UNKNOWN if parts is None else _deny(path, parts, key[2], condition)


def _has_variables(value: Field) -> bool:
    return any("{{" in leaf.text for leaf in value.leaves())


def _deny(
    path: KeyPath, parts: tuple[ValuePart, ...], default: str | None, at: Field
) -> CheckConstraints:
    everywhere = frozenset(range(1, len(path) + 1))
    if default is None:
        # What a missing value leads to is an error, which is no answer to rely on.
        return CheckConstraints((FieldConstraint(path, ValueSet(parts, everywhere), at.path),))
    value = _read_default(default)
    allows = any(_fits(part, value) for part in parts)
    allowed = ValueSet(parts, everywhere if allows else frozenset())
    return CheckConstraints((FieldConstraint(path, allowed, at.path),), is_complete=True)


def _read_default(text: str) -> Json:
    if text.startswith("'"):
        return text[1:-1]
    try:
        return msgspec.json.decode(text[1:-1])
    except msgspec.DecodeError:
        return text[1:-1]


def _fits(part: ValuePart, value: Json) -> bool:
    found = read_equal(value)
    return found is not None and is_within(ValueSet((found,)), ValueSet((part,)))
