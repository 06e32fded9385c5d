"""Defaults and checks of built-in kinds, compiled from kinds.yaml.

A path leads to objects: `a.b` to a field of a field, `a?` to a field if it is there, `a[]` to the
items of a list, `a[kind=X|Y]` to those with one of these values (`!=`: with none of them). A step
without a name, such as `[kind=X]`, is the object itself, if it has the value.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import copy_json, read_list
from lictor.addons.apiserver.kind import Defaults, Validate
from lictor.addons.apiserver.name_rules import NAME_RULES
from lictor.core.raw import Json, JsonObject

# Finds a function by its name, such as `pod_defaults.set_pod_defaults`.
FindFunction: TypeAlias = Callable[[str], Json]
# re: trusted - our own table
_STEP = re.compile(r"([\w-]*)(\[(?:(\w+)(!?=)([^\]]*))?\])?(\??)")
_CALL = "()"


class PathStep(msgspec.Struct, frozen=True):
    """One step of a path."""

    name: str
    is_list: bool
    is_optional: bool
    field: str
    is_excluded: bool
    words: frozenset[str]

    @property
    def is_plain(self) -> bool:
        """Is it the name of a field, and nothing else?"""
        return not self.is_list and not self.is_optional

    def admits(self, value: Json) -> bool:
        """Does the value meet the condition?"""
        return (str(value.get(self.field)) in self.words) is not self.is_excluded

    def fill(self, holder: JsonObject) -> list[JsonObject]:
        """The objects to which the step leads; one that is missing is created."""
        if self.is_list:
            found = read_list(holder, self.name) if self.name else [holder]
        else:
            found = [
                holder.get(self.name) if self.is_optional else holder.setdefault(self.name, {})
            ]
        return [
            each
            for each in found
            if isinstance(each, dict) and (not self.field or self.admits(each))
        ]

    def visit(self, holder: CheckedField) -> list[CheckedField]:
        """The same for checks."""
        if self.is_list:
            found = holder.items(self.name) if self.name else [holder]
        elif self.is_optional and not isinstance(holder.get(self.name), dict):
            return []
        else:
            found = [holder.at(self.name)]
        return [each for each in found if self.admits(each.value)] if self.field else found


def _read_path(path: str) -> list[PathStep]:
    return [_read_step(step) for step in path.split(".")] if path else []


def _read_step(text: str) -> PathStep:
    found = _STEP.fullmatch(text)
    if found is None:
        raise ValueError(f"kinds.yaml: invalid step {text!r} of a path")
    name, brackets, field, sign, words, optional = found.groups()
    return PathStep(
        name,
        brackets is not None,
        bool(optional),
        field or "",
        sign == "!=",
        frozenset((words or "").split("|")),
    )


# --- defaults


def compile_defaults(rules: Mapping[str, Json], find: FindFunction) -> Defaults:
    """Defaults by path, set in order.

    `path!` also replaces empty values; `path()` calls a function with the object at the path.
    """
    setters = [_compile_default(path, value, find) for path, value in rules.items()]

    def set_defaults(document: JsonObject) -> None:
        for set_default in setters:
            set_default(document)

    return set_defaults


def _compile_default(path: str, value: Json, find: FindFunction) -> Defaults:
    if path.endswith(_CALL):
        return _at(_read_path(path.removesuffix(_CALL)), find(value))
    holders, _, field = path.rpartition(".")
    name = field.removesuffix("!")

    def set_missing(holder: JsonObject) -> None:
        if name not in holder or (name != field and not holder[name]):
            holder[name] = copy_json(value)

    return _at(_read_path(holders), set_missing)


def _at(steps: list[PathStep], change: Defaults) -> Defaults:
    if all(step.is_plain for step in steps):
        return _at_fields([step.name for step in steps], change)

    def set_default(document: JsonObject) -> None:
        holders = [document]
        for step in steps:
            holders = [inner for holder in holders for inner in step.fill(holder)]
        for holder in holders:
            change(holder)

    return set_default


def _at_fields(names: list[str], change: Defaults) -> Defaults:
    def set_default(holder: JsonObject) -> None:
        for name in names:
            holder = holder.setdefault(name, {})
        change(holder)

    return set_default


# --- checks


def compile_checks(rules: Iterable[Json], find: FindFunction) -> Validate:
    """Checks in order: `verb arguments`, or a path with the checks of the objects there."""
    checks = [_compile_check(rule, find) for rule in rules]
    if len(checks) == 1:
        return checks[0]

    def validate(field: CheckedField) -> None:
        for check in checks:
            check(field)

    return validate


def _compile_check(rule: Json, find: FindFunction) -> Validate:
    if isinstance(rule, dict):
        [(path, inner)] = rule.items()
        return _check_inside(_read_path(path), compile_checks(inner, find))
    verb, _, text = rule.partition(" ")
    if verb == "call":
        function: Validate = find(text)
        return function
    return _VERBS[verb](text)


def _check_inside(steps: list[PathStep], check: Validate) -> Validate:
    first, *rest = steps
    inner = _check_inside(rest, check) if rest else check

    def validate(field: CheckedField) -> None:
        for found in first.visit(field):
            inner(found)

    return validate


def _check_fields(check: Callable[[CheckedField, str], None]) -> Callable[[str], Validate]:
    """A check with the names of fields."""

    def compile_check(text: str) -> Validate:
        names = text.split()
        if len(names) == 1:
            [only] = names
            return lambda field: check(field, only)

        def validate(field: CheckedField) -> None:
            for name in names:
                check(field, name)

        return validate

    return compile_check


def _read_words(text: str) -> list[str]:
    return ["" if word == "-" else word for word in text.split()]


def _check_choice(text: str) -> Validate:
    name, *words = _read_words(text)
    choices = tuple(words)
    return lambda field: field.choice(name, choices)


def _check_one(text: str) -> Validate:
    name, *words = _read_words(text)
    choices = tuple(words)
    return lambda field: field.one(name, choices)


def _check_name(text: str) -> Validate:
    name, word = _read_words(text)
    rule = NAME_RULES[word]
    return lambda field: field.named(name, rule)


def _check_range(text: str) -> Validate:
    name, low, high, why = text.split(maxsplit=3)
    least, most = int(low), int(high)
    return lambda field: field.between(name, least, most, why)


def _check_required(text: str) -> Validate:
    name, _, why = text.partition(" ")
    return lambda field: field.require(name, why)


def _check_kept(text: str) -> Validate:
    name, why = text.split(maxsplit=1)
    return lambda field: field.keep(name, why)


def _check_address(text: str) -> Validate:
    [name] = _read_words(text)
    return lambda field: field.address(name)


_VERBS: dict[str, Callable[[str], Validate]] = {
    "address": _check_address,
    "between": _check_range,
    "choice": _check_choice,
    "counts": _check_fields(CheckedField.counts),
    "keep": _check_kept,
    "labels": _check_fields(CheckedField.labels),
    "named": _check_name,
    "need": _check_fields(CheckedField.need),
    "one": _check_one,
    "port": _check_fields(CheckedField.port),
    "require": _check_required,
    "same": _check_fields(CheckedField.same),
    "selector": _check_fields(CheckedField.selector),
    "unique_names": _check_fields(CheckedField.unique_names),
}
