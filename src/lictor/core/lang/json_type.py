"""Names of JSON types for messages; dotted names such as `request.object.metadata.name`."""

import csv
from collections.abc import Mapping
from typing import Final

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json, JsonObject


def split_dotted(name: str) -> list[str]:
    """Split at dots; a part in double quotes may contain dots."""
    try:
        return next(iter(csv.reader([name], delimiter=".", strict=True)), None) or [name]
    except csv.Error as error:
        raise EvaluationError(f"{name!r} is not a variable name: {error}") from error


def merge_dotted(base: JsonObject, values: Mapping[str, Json]) -> JsonObject:
    """A copy of `base` with every value at its path; objects are merged, others replaced."""
    merged = base
    for name, value in values.items():
        tree = value
        for part in reversed(split_dotted(name)):
            tree = {part: tree}
        merged = merge_objects(merged, tree)
    return merged


def merge_objects(base: JsonObject, added: JsonObject) -> JsonObject:
    """A copy of `base` with `added` merged in, object by object."""
    merged = dict(base)
    for key, value in added.items():
        here = merged.get(key)
        if isinstance(value, dict) and isinstance(here, dict):
            merged[key] = merge_objects(here, value)
        else:
            merged[key] = value
    return merged


_NAMES: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
}
_CEL_NAMES: Final[dict[type, str]] = {
    dict: "map",
    list: "list",
    str: "string",
    bool: "bool",
    int: "int",
    float: "double",
    bytes: "bytes",
    bytearray: "bytes",
    type(None): "null_type",
}


def name_json_type(value: Json) -> str:
    """`a list`, `null`, for messages."""
    return _NAMES.get(type(value), "not JSON")


def name_cel_type(value: Json) -> str:
    """`list`, `null_type`: the type names of CEL."""
    return _CEL_NAMES.get(type(value), "dyn")
