"""Columns of custom kinds, as their definitions say."""

from collections.abc import Callable
from datetime import datetime

import orjson

from lictor.apiserver.object_reader import read_text
from lictor.apiserver.tables.ages import tell_age
from lictor.apiserver.tables.json_path import compile_path
from lictor.apiserver.tables.table_columns import Column, Layout, name_of
from lictor.errors import SyntaxFaultError
from lictor.raw import Json, JsonObject

_NAME = Column("Name", format="name")
_AGE: JsonObject = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
}
_CellOf = Callable[[JsonObject, datetime], Json]


def read_layout(columns: list[JsonObject]) -> Layout:
    """The name, then what the definition says, or else the age."""
    wanted = columns or [_AGE]
    cells = [_compile_cell(each) for each in wanted]

    def fill(document: JsonObject, now: datetime) -> list[Json]:
        return [name_of(document), *(cell(document, now) for cell in cells)]

    return Layout((_NAME, *map(_read_column, wanted)), fill)


def _read_column(column: JsonObject) -> Column:
    return Column(
        name=read_text(column, "name"),
        type=read_text(column, "type") or "string",
        format=read_text(column, "format"),
        priority=column.get("priority") or 0,
        description=read_text(column, "description"),
    )


def _compile_cell(column: JsonObject) -> _CellOf:
    try:
        path = compile_path(read_text(column, "jsonPath"))
    except SyntaxFaultError:
        return lambda _document, _now: None
    kind = read_text(column, "type")

    def cell(document: JsonObject, now: datetime) -> Json:
        found = path(document)
        if not found or found[0] is None:
            return None
        # Of several, the first.
        return tell_age(found[0], now) if kind == "date" else _show(found[0], kind)

    return cell


def _show(value: Json, kind: str) -> Json:
    """A cell of the type that its column has; what is of another type is left out."""
    match kind:
        case "integer":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return int(value) if is_number else None
        case "number":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return value if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return _print(value)


def _print(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
