"""The API server's words for what is wrong with a value, and its names for types."""

import contextlib
from collections.abc import Callable
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.raw import Json

INVALID = "FieldValueInvalid"
# The place of faults that concern no single field.
NOWHERE = "<nil>"


def name_type(value: Json) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "integer" if isinstance(value, int) or value.is_integer() else "number"


def show(value: Json) -> str:
    """A value inside a message."""
    return orjson.dumps(value, default=str).decode()


class Cause(msgspec.Struct, frozen=True):
    """One error of an object, as a Status lists it."""

    # FieldValueInvalid, FieldValueRequired, FieldValueNotSupported, FieldValueForbidden ...
    reason: str
    # Such as `Invalid value: "x": must be ...`.
    message: str
    # Such as `spec.containers[0].name`.
    field: str


# Takes down what is found.
AddCause: TypeAlias = Callable[[Cause], None]
# Collecting more errors than these takes seconds and helps no user.
_MOST_FINDINGS = 1000


class _EnoughFound(Exception):  # noqa: N818  (ends the search, and is no error)
    pass


def collect_findings(search: Callable[[AddCause], None]) -> list[Cause]:
    """What a search finds; it ends early where there is too much."""
    found: list[Cause] = []

    def add(cause: Cause) -> None:
        found.append(cause)
        if len(found) >= _MOST_FINDINGS:
            raise _EnoughFound

    with contextlib.suppress(_EnoughFound):
        search(add)
    return found


def invalid(path: str, value: Json, why: str) -> Cause:
    """The value is not what it must be."""
    return Cause(INVALID, f"Invalid value: {show(value)}: {why}", path)


def wrong_type(path: str, detail: str, expected: str) -> Cause:
    """The value is of another type, or not in the format."""
    why = f"{path} in body must be of type {expected}: {show(detail)}"
    return Cause("FieldValueTypeInvalid", f"Invalid value: {show(detail)}: {why}", path)


def required(path: str, why: str = "") -> Cause:
    """It must be there."""
    return Cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", path)


def duplicate(path: str, value: Json) -> Cause:
    """It is there twice."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {show(value)}", path)


def unsupported(path: str, value: Json, supported: tuple[Json, ...] | list[Json]) -> Cause:
    """It is none of those that there are."""
    listed = ", ".join(show(each if isinstance(each, str) else show(each)) for each in supported)
    message = f"Unsupported value: {show(value)}: supported values: {listed}"
    return Cause("FieldValueNotSupported", message, path)


def forbidden(path: str, why: str) -> Cause:
    """It may not be there."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", path)


def too_long(path: str, most: int) -> Cause:
    """The text is too long."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", path)


def too_many(path: str, count: int, most: int) -> Cause:
    """There are too many."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} items", path)


def nowhere(why: str) -> Cause:
    """Something about a value as a whole."""
    return Cause(INVALID, f'Invalid value: "": {why}', NOWHERE)
