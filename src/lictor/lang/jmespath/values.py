"""What JMESPath asks of any JSON value: its type, whether it counts as false, what it equals."""

from lictor.lang.go_number import NUMBERS, is_number
from lictor.raw import Json


class NativeInteger(int):
    """An integer that is no JSON number: what `compare` gives. It equals no number, as in Go."""


def is_false(value: Json) -> bool:
    """False, null, and what is empty count as false; zero does not."""
    if value is None or value is False:
        return True
    return isinstance(value, (str, list, dict)) and not value


def name_type(value: Json) -> str:
    """Give the name JMESPath has for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "number"
    for kind, name in ((str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "unknown"


def equals(left: Json, right: Json) -> bool:
    """Compare deeply; a number never equals a boolean, though Python thinks so."""
    kind = type(left)
    if kind in NUMBERS:
        return type(right) in NUMBERS and bool(left == right)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equals, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(equals(value, right[key]) for key, value in left.items())
        )
    return kind is type(right) and bool(left == right)
