"""Parses a check of a field, FIELD=VALUE: its path, its type, and values to try."""

import difflib
import re

import msgspec

from lictor.core.errors import UsageError
from lictor.core.facts.field_types import FieldType, find_field_type
from lictor.core.facts.resource_names import ResourceType, builtin_names
from lictor.core.raw import Json

_STEP = re.compile(r"""\["?'?([^"'\[\]]+)"?'?\]|"([^"]+)"|'([^']+)'|([^.\[\]"']+)""")
_COMPARED = re.compile(r"(>=|<=|>|<)(\d+)((?:[^\W\d]\w*)?)")
# The smallest step over the edge, seen from the number itself.
_EDGES = {">=": (0, -1), "<=": (0, 1), ">": (1, 0), "<": (-1, 0)}


class _Absent:
    """Stands for a field that is not there."""


ABSENT = _Absent()


class FieldDemand(msgspec.Struct, frozen=True):
    """A field and the values that it may have."""

    # Names from the top, and whether each holds a list that is gone through.
    steps: tuple[tuple[str, bool], ...]
    pattern: str
    types: frozenset[type]
    is_quantity: bool

    @property
    def field(self) -> str:
        return ".".join(name for name, _ in self.steps)

    def type_value(self, text: str) -> Json:
        """Text as the value of this field."""
        if bool in self.types and text in ("true", "false"):
            return text == "true"
        if str not in self.types and re.fullmatch("-?[0-9]+", text):
            return int(text)
        return text

    @property
    def good(self) -> tuple[Json, ...]:
        """Values that pass the check, at the limits if there are some."""
        if self.pattern == "?*":
            return ("example",)
        if self.pattern.startswith("!"):
            return (self.type_value(_differ_from(self.pattern[1:])),)
        if compared := _COMPARED.fullmatch(self.pattern):
            inside, _ = _EDGES[compared[1]]
            return (self.type_value(f"{int(compared[2]) + inside}{compared[3]}"),)
        return tuple(map(self.type_value, map(_fill_in, self.pattern.split("|"))))

    @property
    def bad(self) -> tuple[Json | _Absent, ...]:
        """Values that fail the check."""
        if self.pattern == "?*":
            return ABSENT, ""
        if self.pattern.startswith("!"):
            return (self.type_value(_fill_in(self.pattern[1:])),)
        if compared := _COMPARED.fullmatch(self.pattern):
            _, outside = _EDGES[compared[1]]
            return ABSENT, self.type_value(f"{int(compared[2]) + outside}{compared[3]}")
        return ABSENT, self.type_value(_differ_from(self.pattern))


def _fill_in(pattern: str) -> str:
    """A text that a pattern fits."""
    return pattern.strip().replace("*", "x").replace("?", "x")


def _differ_from(pattern: str) -> str:
    """A text that a pattern does not fit."""
    if pattern in ("true", "false"):
        return "false" if pattern == "true" else "true"
    return str(int(pattern) + 1) if pattern.isdecimal() else "something-else"


def find_kind(name: str) -> ResourceType:
    """The built-in kind of this name, in its stable version; an error suggests another."""
    known = [each for each in builtin_names().known if "/" not in each.resource]
    found = [each for each in known if each.kind == name]
    if not found:
        near = difflib.get_close_matches(name, {each.kind for each in known}, 1)
        hint = f' (did you mean "{near[0]}"?)' if near else ""
        raise UsageError(f'Kubernetes has no kind "{name}"{hint}')
    # Events are in two groups, and some kinds in versions that end soon: the core and v1 first.
    return min(found, key=lambda each: (each.version != "v1", len(each.group)))


def parse_demand(text: str, kind: ResourceType) -> FieldDemand:
    """Read FIELD=VALUE; an error names the field that the kind does not have."""
    field, equals, pattern = text.partition("=")
    if not equals or not field or not pattern.strip():
        raise UsageError(f'"{text}" is no check: write FIELD=VALUE, as in metadata.labels.team=?*')
    place = find_field_type(kind.api_version, kind.kind)
    steps: list[tuple[str, bool]] = []
    for groups in _STEP.findall(field):
        name = next(filter(None, groups))
        place = _enter(place, name, kind, steps)
        is_list = place.element is not None
        place = place.element or place
        steps.append((name, is_list))
    if place is None or place.fields or place.others is not None:
        raise UsageError(f'"{field}" of {kind.kind} holds more fields: name one of them')
    types = place.scalar or frozenset((str, int, bool))
    return FieldDemand(tuple(steps), pattern.strip(), types, place.is_quantity)


def _enter(
    place: FieldType | None, name: str, kind: ResourceType, steps: list[tuple[str, bool]]
) -> FieldType:
    found = None if place is None else place.fields.get(name, place.others)
    if found is None:
        known = place.fields if place else ()
        near = difflib.get_close_matches(name, known, 1)
        hint = f' (did you mean "{near[0]}"?)' if near else ""
        where = ".".join([kind.kind, *(step for step, _ in steps)])
        raise UsageError(f'{where} has no field "{name}"{hint}')
    return found
