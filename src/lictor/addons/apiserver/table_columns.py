"""Columns of tables for `kubectl get`, and cells that many kinds have."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import reduce
from typing import TypeAlias

import msgspec

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.core.raw import Json, JsonObject

UNKNOWN = "<unknown>"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 31_536_000}
# Durations of fewer seconds than these are shown in these units, as kubectl shows them.
_DURATIONS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (120, ("s",)), (600, ("m", "s")), (3 * 3600, ("m",)), (8 * 3600, ("h", "m")),
    (48 * 3600, ("h",)), (8 * 86_400, ("d", "h")), (730 * 86_400, ("d",)),
    (8 * 31_536_000, ("y", "d")),
)  # fmt: skip


def format_age(moment: Json, now: datetime) -> str:
    """How long ago a moment was."""
    read = read_moment(moment)
    return UNKNOWN if read is None else format_duration((now - read).total_seconds())


def read_moment(text: Json) -> datetime | None:
    """Parse a timestamp; None if it is invalid."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def format_duration(total: float) -> str:
    """A number of seconds in one or two units."""
    seconds = max(int(total), 0)
    if total <= -2:
        return "<invalid>"
    large, *small = next((units for most, units in _DURATIONS if seconds < most), ("y",))
    count, rest = divmod(seconds, _UNITS[large])
    parts = [f"{rest // _UNITS[unit]}{unit}" for unit in small if rest // _UNITS[unit]]
    return f"{count}{large}{''.join(parts)}"


NONE = "<none>"
UNSET = "<unset>"
_MOST_WORDS = 3
# All cells of a row.
Fill: TypeAlias = Callable[[JsonObject, datetime], list[Json]]
# The cells of a row that are neither its name nor its age nor the text of a field.
ListCells: TypeAlias = Callable[[JsonObject], list[Json]]


class Column(msgspec.Struct, frozen=True):
    """One column; those with a priority are shown by `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def describe(self) -> JsonObject:
        """The column definition of a Table."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


class TableColumns(msgspec.Struct, frozen=True):
    """The columns of a kind, and how a row is filled."""

    columns: tuple[Column, ...]
    fill: Fill


def build_columns(columns: str, list_cells: ListCells = lambda _: []) -> TableColumns:
    """Read `Name | Phase=status.phase | Count:integer | Node! | Age`; `!` is for wide.

    Name, Age and cells with a path are filled in; the other cells come from `list_cells`. A path
    means text; `path?x` any value, or x without one; `#path` the length of a list or map; `+path`
    a number, or 0; `^path` a boolean; `,path` the items of a list, `,path[].x` a field of each;
    `~path` a label selector; `%path` labels; `{path}/{path}?x` a text with the values of paths, or
    x if all are empty.
    """
    words = [word.strip() for word in columns.split("|")]
    cells = [_read_cell(word) for word in words]

    def fill(document: JsonObject, now: datetime) -> list[Json]:
        others = iter(list_cells(document))
        return [next(others) if cell is None else cell(document, now) for cell in cells]

    return TableColumns(tuple(map(_read_column, words)), fill)


def build_timed_columns(columns: str, fill: Fill) -> TableColumns:
    """The same for rows of which more than the age depends on the time: `fill` gives all cells."""
    return TableColumns(tuple(_read_column(word.strip()) for word in columns.split("|")), fill)


def _show_value(holder: JsonObject, field: str, missing: str) -> Json:
    value = holder.get(field)
    return missing if value in (None, "") else value


def count_field(holder: JsonObject, field: str, _: str = "") -> int:
    """A number of a spec or a status; 0 if it is missing."""
    value = holder.get(field)
    return value if isinstance(value, int) else 0


def _read_cell(word: str) -> Callable[[JsonObject, datetime], Json] | None:
    """How a cell is filled that every kind fills alike."""
    name, _, path = word.partition("=")
    if path:
        show = _compile_text(path) if "{" in path else _compile_path(path)
        return lambda document, _: show(document)
    if name == "Name":
        return lambda document, _: name_of(document)
    return age_of if name == "Age" else None


def _compile_path(path: str) -> Callable[[JsonObject], Json]:
    kind, path = (path[0], path[1:]) if path[0] in _CELLS else ("", path)
    path, _, missing = path.partition("?")
    *holders, field = path.replace("[].", "[]").split(".")
    show = _CELLS["?" if missing else kind]
    return lambda document: show(reduce(read_object, holders, document), field, missing)


def _compile_text(text: str) -> Callable[[JsonObject], Json]:
    # re: trusted - the text is a row of kinds.yaml
    parts = re.split(r"\{(.*?)\}", text)
    *between, end = parts[::2]
    tail, mark, missing = end.partition("?")
    paths = [_compile_path(path) for path in parts[1::2]]

    def show(document: JsonObject) -> str:
        values = [path(document) for path in paths]
        if mark and not any(values):
            return missing
        pairs = zip(between, values, strict=True)
        return "".join([f"{before}{value}" for before, value in pairs]) + tail

    return show


def _join_items(holder: JsonObject, field: str, _: str) -> str:
    name, _, inner = field.partition("[]")
    items = read_list(holder, name)
    return join_words(read_text(each, inner) for each in items) if inner else join_words(items)


def _read_column(word: str) -> Column:
    name, _, kind = word.partition("=")[0].partition(":")
    bare = name.removesuffix("!")
    shape = "name" if bare in ("Name", "Attacher") else ""
    return Column(bare, kind or "string", shape, int(name != bare))


def name_of(document: JsonObject) -> str:
    """The name of the object."""
    return read_text(read_object(document, "metadata"), "name")


def age_of(document: JsonObject, now: datetime) -> str:
    """How long the object has been there."""
    return format_age(read_object(document, "metadata").get("creationTimestamp"), now)


def join_words(words: Iterable[str]) -> str:
    """A list in a cell."""
    return ",".join(words)


def list_images(spec: JsonObject) -> list[Json]:
    """Two cells: the names of the containers, and their images."""
    containers = read_list(spec, "containers")
    return [
        join_words(read_text(each, field) for each in containers) for field in ("name", "image")
    ]


def format_labels(labels: JsonObject, empty: str = NONE) -> str:
    """Labels, or the selector of a Service."""
    return join_words(f"{key}={value}" for key, value in sorted(labels.items())) or empty


_OPERATORS = {"In": " in ({})", "NotIn": " notin ({})"}


def format_selector(selector: JsonObject | None, empty: str = NONE) -> str:
    """A label selector in one line; one that is not there selects nothing."""
    if selector is None:
        return "<error>" if empty == NONE else empty
    parts = [(key, f"{key}={value}") for key, value in read_object(selector, "matchLabels").items()]
    for each in read_list(selector, "matchExpressions"):
        parts.append((read_text(each, "key"), _format_expression(each)))
    return join_words(text for _, text in sorted(parts)) or empty


def _format_expression(expression: JsonObject) -> str:
    key, operator = read_text(expression, "key"), read_text(expression, "operator")
    if operator in _OPERATORS:
        return key + _OPERATORS[operator].format(
            join_words(sorted(read_list(expression, "values")))
        )
    return f"!{key}" if operator == "DoesNotExist" else key


def shorten_list(words: list[str], empty: str = NONE) -> str:
    """The first few, and how many more there are."""
    if len(words) <= _MOST_WORDS:
        return join_words(words) if words else empty
    return f"{join_words(words[:_MOST_WORDS])} + {len(words) - _MOST_WORDS} more..."


# How cells with a path show their field, by the sign in front of the path.
_CELLS: dict[str, Callable[[JsonObject, str, str], Json]] = {
    "": lambda holder, field, _: read_text(holder, field),
    "?": _show_value,
    "#": lambda holder, field, _: len(holder.get(field) or ()),
    "+": count_field,
    "^": lambda holder, field, _: holder.get(field) is True,
    ",": _join_items,
    "%": lambda holder, field, _: format_labels(read_object(holder, field)),
    "~": lambda holder, field, _: format_selector(holder.get(field)),
}
# For kinds without declared columns.
OTHER = build_columns("Name | Created At:date=metadata.creationTimestamp?<unknown>")
