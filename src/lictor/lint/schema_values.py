"""Checks patterns, patches and generated objects against the fields of their kinds."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache

import msgspec

from lictor.core.facts.field_types import FieldType
from lictor.core.lang.pattern.anchor import Anchor, Modifier, parse_anchor
from lictor.core.lang.pattern.scalar import (
    compile_scalar,
    is_range,
    read_duration,
    read_quantity,
    split_operator,
)
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.schema_kinds import FieldTypes, RuleSubject, is_known


class ValueUse(StrEnum):
    """The use of a value: compared, merged into an object, or an object itself."""

    PATTERN = "pattern"
    PATCH = "patch"
    OBJECT = "object"


class _ValueContext(msgspec.Struct, frozen=True):
    """The state of a traversal: the objects, the path, and the use of the value."""

    label: str
    use: ValueUse
    names: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return ".".join(self.names)

    @property
    def is_tag(self) -> bool:
        return len(self.names) > 1 and self.names[-2] in ("labels", "annotations")

    def below(self, name: str, use: ValueUse) -> "_ValueContext":
        return _ValueContext(self.label, use, (*self.names, name))


def check_value(part: Field, subject: RuleSubject, use: ValueUse) -> Iterator[Finding]:
    """Fields that the objects do not have, and values that are never valid."""
    if part:
        yield from _walk(part, subject.types, _ValueContext(subject.label, use))


def _walk(part: Field, types: FieldTypes, context: _ValueContext) -> Iterator[Finding]:
    if part.value is None or not is_known(types):
        return
    if part.is_object:
        yield from _walk_object(part, types, context)
    elif part.is_list:
        elements = tuple(each.element for each in types if each.element is not None)
        if not elements:
            yield _refuse(part, types, context, "a list")
        for item in part.each():
            yield from _walk(item, elements, context)
    elif context.use is ValueUse.PATTERN:
        yield from _check_leaf(part, types, context)
    else:
        yield from _check_literal(part, types, context)


def _walk_object(part: Field, types: FieldTypes, context: _ValueContext) -> Iterator[Finding]:
    maps = tuple(each for each in types if each.fields or each.others is not None)
    if not maps:
        yield _refuse(part, types, context, "an object")
        return
    for key, value in part.value.items():
        item = Field(value, (*part.path, key))
        anchor = parse_anchor(key) if context.use is not ValueUse.OBJECT else None
        name = key if anchor is None else anchor.key
        if _is_filled_in(name) or has_wildcard(name) or name.startswith("$"):
            continue
        found = find_field(maps, name)
        if not found:
            yield flag_unknown(item, name, maps, context.label, context.names)
        # What must not exist is never compared.
        elif anchor is None or anchor.modifier is not Modifier.NEGATION:
            yield from _walk(item, found, context.below(name, _choose_use(anchor, context.use)))


def _choose_use(anchor: Anchor | None, use: ValueUse) -> ValueUse:
    """Below a conditional anchor, a patch compares."""
    asks = anchor is not None and anchor.modifier is not Modifier.ADDITION
    return ValueUse.PATTERN if asks else use


def _is_filled_in(text: str) -> bool:
    return "{{" in text or "$(" in text


def find_field(types: Iterable[FieldType], name: str) -> FieldTypes:
    """The types below a name, of the types that have it."""
    found = (each.fields.get(name, each.others) for each in types)
    return tuple(each for each in found if each is not None)


def flag_unknown(
    part: Field, name: str, types: FieldTypes, label: str, names: tuple[str, ...] = ()
) -> Finding:
    """A field that none of the types has."""
    known = {field for each in types for field in each.fields}
    message = f'{label} has no field "{".".join((*names, name))}"'
    finding = flag("unknown-property", part.path, message, suggest(name, known))
    return finding.with_code("unknown-property", name, *list_near(name, known))


# The similarity from which a word is treated as a typo.
_NEAR = 0.8


def list_near(name: str, known: Iterable[str]) -> list[str]:
    """The known words that are similar enough for a typo; at most two."""
    return list(_find_near(name, tuple(known)))


# The same mistake often occurs in many places, and again with each edit.
@lru_cache(maxsize=256)
def _find_near(name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    folded = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), folded, n=2, cutoff=_NEAR)
    return tuple(folded[word] for word in found)


def describe_types(types: FieldTypes) -> str:
    """The allowed types at a field, as text."""
    return " or ".join(dict.fromkeys(_describe(each) for each in types))


def _describe(each: FieldType) -> str:
    if each.element is not None:
        return "a list"
    if each.scalar is None:
        return "an object"
    if each.is_quantity:
        return "a quantity"
    words = {bool: "true or false", str: "text", int: "a number"}
    return next((words[kind] for kind in words if kind in each.scalar), "a number")


def _refuse(part: Field, types: FieldTypes, context: _ValueContext, found: str) -> Finding:
    where = f"{context.path} of {context.label}" if context.names else context.label
    message = f"{where} is {describe_types(types)}: {found} never matches"
    return flag("wrong-type", part.path, message)


# --- leaves of patterns


def _check_leaf(part: Field, types: FieldTypes, context: _ValueContext) -> Iterator[Finding]:
    value = part.value
    # Labels that are no strings are reported elsewhere.
    if context.is_tag or (isinstance(value, str) and _is_filled_in(value)):
        return
    # A plain value is compared with every element of a list.
    leaves = tuple(each.element or each for each in types)
    if is_known(leaves) and not any(_may_fit(value, each) for each in leaves):
        if isinstance(value, str) and any(each.is_quantity for each in leaves):
            yield refuse_amount(part)
        else:
            yield _refuse(part, leaves, context, _write(value))


def _may_fit(value: Json, each: FieldType) -> bool:
    if each.scalar is None:
        return isinstance(value, str)
    if each.scalar == {bool}:
        fits = compile_scalar(value)
        return any(map(fits, (True, False)))
    if isinstance(value, bool):
        return False
    if not isinstance(value, str) or (str in each.scalar and not each.is_quantity):
        return True
    return any(_may_be_amount(word) for word in _list_words(value))


def _list_words(text: str) -> list[str]:
    return [word.strip() for word in re.split(r"[|&]", text)]


def _may_be_amount(word: str) -> bool:
    sign, operand = split_operator(word)
    operand = operand.strip()
    if sign == "!" or not operand or operand == "null":
        return True
    return has_wildcard(operand) or is_range(word) or "!-" in word or _is_amount(operand)


def _is_amount(text: str) -> bool:
    return read_quantity(text) is not None or read_duration(text) is not None


def _write(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


# An operand that can only be a quantity; `1.2.3` may be a version.
_COMPARED = re.compile(r"[0-9]*(\.[0-9]+)?[A-Za-z]+")


def check_amounts(pattern: Field) -> Iterator[Finding]:
    """Comparisons such as `>=two` and `<=1Gib`, which never hold."""
    for leaf in pattern.leaves():
        # A key has the path of its entry.
        if leaf.path and leaf.path[-1] == leaf.value:
            continue
        if leaf.text[:1] in ("<", ">") and not _is_filled_in(leaf.text):
            words = [split_operator(word) for word in _list_words(leaf.text)]
            if any(sign and sign != "!" and is_no_amount(operand) for sign, operand in words):
                yield refuse_amount(leaf)


def is_no_amount(operand: str) -> bool:
    """Whether this was meant as a quantity, and is not one."""
    text = operand.strip()
    return _COMPARED.fullmatch(text) is not None and not _is_amount(text)


_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "k", "M", "G", "T", "P", "E", "m", "u", "n")
_WRITTEN = re.compile(r"^([<>=!]*\s*)([0-9.]+)\s*([A-Za-z]+)$")
# Common units of time; Go's durations support hours, minutes and seconds.
_TIMES = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), (1, "s")),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), (1, "m")),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), (1, "h")),
    **dict.fromkeys(("d", "day", "days"), (24, "h")),
    **dict.fromkeys(("w", "week", "weeks"), (168, "h")),
}


def refuse_amount(part: Field) -> Finding:
    """A text that was meant as a quantity, and is not one."""
    message = f'"{part.text}" is neither a number nor a quantity (1Gi, 500m) nor a duration (1h)'
    return flag("bad-quantity", part.path, message, suggest_amount(part.text))


def suggest_amount(text: str) -> str:
    """`1Gib` was meant as `1Gi`, `500mb` as `500M`, `2d` as `48h`; empty if unclear."""
    written = _WRITTEN.match(text)
    if written is None:
        return ""
    sign, number, word = written.groups()
    if word.lower() in _TIMES and number.isdigit():
        factor, unit = _TIMES[word.lower()]
        return f"{sign}{int(number) * factor}{unit}"
    unit = word.lower().removesuffix("ytes").removesuffix("yte").removesuffix("b")
    meant = next((each for each in _SUFFIXES if each.lower() == unit), "")
    return f"{sign}{number}{meant}" if meant else ""


# --- values that become part of an object


def _check_literal(part: Field, types: FieldTypes, context: _ValueContext) -> Iterator[Finding]:
    value = part.value
    if isinstance(value, str) and _is_filled_in(value):
        return
    if context.is_tag and context.use is ValueUse.PATCH:
        return
    if not any(_takes(each, value) for each in types):
        yield _refuse(part, types, context, _write(value))
        return
    is_amount = isinstance(value, str) and all(each.is_quantity for each in types)
    if is_amount and read_quantity(value) is None:
        yield refuse_amount(part)


def _takes(each: FieldType, value: Json) -> bool:
    if each.scalar is None:
        return False
    return type(value) in each.scalar or (isinstance(value, float) and int in each.scalar)
