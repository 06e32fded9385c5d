"""Manifests that depend on the values of the chart: their placeholders, and what fills them.

The manifests of an installation are written once, with placeholders. `install` fills them in here;
`scripts/make_chart.py` prints the same placeholders as templates of Helm.
"""

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from lictor.core.raw import Json, JsonObject
from lictor.install.values import find_value

# In texts: `<<fullname>>-svc`, `<<account admission>>`.
MARK = re.compile(r"<<(\w+)(?: ([\w.]+))?>>")
FULLNAME = "<<fullname>>"
NAMESPACE = "<<namespace>>"
RELEASE = "<<version>>"
IMAGE = "<<image>>"


class ValueAt(msgspec.Struct, frozen=True):
    """A value, unchanged."""

    path: str


class OptionalValueAt(msgspec.Struct, frozen=True):
    """The first of these values that is not empty; where all are, the field is left out."""

    paths: tuple[str, ...]


class ReplaceableList(msgspec.Struct, frozen=True):
    """The value where it is not empty, else our own list."""

    path: str
    usual: list[Json]


class ExtendedList(msgspec.Struct, frozen=True):
    """Our own elements, then those of the values."""

    items: list[Json]
    paths: tuple[str, ...]


class ExtendedMap(msgspec.Struct, frozen=True):
    """The fields of a value, and our own, which win."""

    items: JsonObject
    path: str


class LabelSet(msgspec.Struct, frozen=True):
    """The labels of an object of a component, and of the values; those that we select by win."""

    component: str
    more: JsonObject = {}
    paths: tuple[str, ...] = ()


class ConditionalPart(msgspec.Struct, frozen=True):
    """A part that is there when all conditions hold.

    A condition is the path of a value that is not empty, `!path` of one that is, `path>1` of a
    number; with `|` between them, one of them is enough.
    """

    conditions: tuple[str, ...]
    part: Json


class ArgumentList(msgspec.Struct, frozen=True):
    """The command line of a container, whose values stand under a path."""

    command: tuple[str, ...]
    controller: str
    container: str
    own: Mapping[str, str] = {}


class ComputedMap(msgspec.Struct, frozen=True):
    """Fields that are computed from many values."""

    name: str


class Filler(msgspec.Struct, frozen=True):
    """What placeholders become in one installation."""

    values: JsonObject
    # What a mark in a text stands for, given its argument.
    texts: Mapping[str, Callable[[str], str]]
    labels: Callable[[str], Mapping[str, str]]
    arguments: Callable[[ArgumentList], list[str]]
    maps: Mapping[str, Callable[[], JsonObject]]

    def find(self, path: str) -> Json:
        return find_value(self.values, path)


class _Absent(msgspec.Struct, frozen=True):
    """A part that is not there in this installation."""


_ABSENT = _Absent()


def fill(manifests: list[Json], filler: Filler) -> list[JsonObject]:
    """Manifests without placeholders; those whose conditions do not hold are left out."""
    return list(_fill_list(manifests, filler))


def _fill(part: Json, filler: Filler) -> Json:
    match part:
        case str():
            return fill_text(part, filler)
        case dict():
            return dict(_fill_fields(part, filler))
        case list():
            return list(_fill_list(part, filler))
        case ConditionalPart(conditions, inner):
            holds = all(_holds(condition, filler) for condition in conditions)
            return _fill(inner, filler) if holds else _ABSENT
        case _:
            return _fill_value(part, filler)


def _fill_value(part: Json, filler: Filler) -> Json:
    match part:
        case ValueAt(path):
            return filler.find(path)
        case OptionalValueAt(paths):
            return next((filler.find(p) for p in paths if filler.find(p)), _ABSENT)
        case ReplaceableList(path, usual):
            return filler.find(path) or _fill(usual, filler)
        case ExtendedList(items, paths):
            theirs = [each for path in paths for each in filler.find(path) or ()]
            return [*_fill(items, filler), *theirs]
        case ExtendedMap(items, path):
            return {**(filler.find(path) or {}), **_fill(items, filler)}
        case _:
            return _fill_computed(part, filler)


def _fill_computed(part: Json, filler: Filler) -> Json:
    match part:
        case LabelSet():
            return _fill_labels(part, filler)
        case ArgumentList():
            return filler.arguments(part)
        case ComputedMap(name):
            return filler.maps[name]()
        case _:
            return part


def _fill_fields(fields: JsonObject, filler: Filler) -> Iterator[tuple[str, Json]]:
    for name, part in fields.items():
        filled = _fill(part, filler)
        if filled is not _ABSENT:
            yield fill_text(name, filler), filled


def _fill_list(items: list[Json], filler: Filler) -> Iterator[Json]:
    for item in items:
        filled = _fill(item, filler)
        if filled is not _ABSENT:
            yield filled


def _fill_labels(part: LabelSet, filler: Filler) -> JsonObject:
    paths = ("customLabels", *part.paths)
    theirs = {name: text for path in paths for name, text in (filler.find(path) or {}).items()}
    more = _fill(part.more, filler)
    return {**theirs, **filler.labels(part.component), **more}


def fill_text(text: str, filler: Filler) -> str:
    """A text without marks."""
    if "<<" not in text:
        return text
    return MARK.sub(lambda mark: filler.texts[mark[1]](mark[2] or ""), text)


def _holds(condition: str, filler: Filler) -> bool:
    return any(_holds_one(each, filler) for each in condition.split("|"))


def _holds_one(condition: str, filler: Filler) -> bool:
    if condition.startswith("!"):
        return not filler.find(condition[1:])
    path, more, number = condition.partition(">")
    found = filler.find(path)
    return bool(found) and (not more or found > int(number))
