"""What kind of JSON is a value? In words that people who never saw Python understand."""

from typing import Final

from lictor.raw import Json

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
    return _NAMES.get(type(value), "something that is no JSON")


def name_cel_type(value: Json) -> str:
    """`list`, `null_type`: the names that expressions in CEL use."""
    return _CEL_NAMES.get(type(value), "dyn")
