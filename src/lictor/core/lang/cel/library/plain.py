"""JSON on its way into expressions and back: what Kubernetes reads and prints otherwise."""

import base64
import math
from collections.abc import Callable
from typing import Any

import orjson

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.lang.cel.faults import CelError
from lictor.core.lang.cel.library.conversions import format_seconds, format_timestamp
from lictor.core.lang.cel.library.structs import Answer, ObjectValue, Record
from lictor.core.lang.cel.values import (
    INT_MAX,
    INT_MIN,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    Value,
    decode_key,
)
from lictor.core.lang.written_size import check_written, ensure_room
from lictor.core.raw import Json

_MAX_DEPTH = 200
_STRICT = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)
_HELD = "the answer holds an optional: end it with orValue() or value()"


def admit(value: Json) -> Value:
    """JSON as Kubernetes reads it: a number beyond 64 bits is a double."""
    # To print JSON is the fastest way to visit every part of it; this fails on large numbers, and
    # on values that are no JSON.
    try:
        orjson.dumps(value, option=_STRICT)
    except (TypeError, ValueError, RecursionError):
        return _admit(value, 0)
    return value


def take_in(value: Json) -> Value:
    """A value from the host; MemoryError if it is too large to convert."""
    if isinstance(value, dict | list):
        ensure_room(value)
    return admit(value)


def _admit(value: Any, depth: int) -> Value:
    if depth > _MAX_DEPTH:
        raise TooLargeError("the value is nested too deeply for CEL")
    if isinstance(value, dict):
        return {_admit_text(str(key)): _admit(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_admit(item, depth + 1) for item in value]
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        # As in Go, where a JSON number that is no int64 is a float64.
        return float(value) if abs(value) < 2**1023 else math.inf
    if value is None or isinstance(value, bool | int | float | Opaque):
        return value
    if isinstance(value, str):
        return _admit_text(value)
    raise EvaluationError("a function made something that is no JSON value")


def _admit_text(text: str) -> str:
    """As Go, which reads half a surrogate pair as a replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def emit(value: Value) -> Json:
    """A value as JSON: times, durations and bytes as Kubernetes prints them."""
    if value is None or type(value) in (bool, str, int, float):
        return value
    if isinstance(value, dict | list):
        # Parts that are shared are written once for each place.
        check_written(value)
    if type(value) is Optional:
        return emit(value.value) if value.has_value else None
    return _emit(value)


def _emit(value: Value) -> Json:
    if isinstance(value, dict):
        entries = {_emit_key(decode_key(key)): item for key, item in value.items()}
        return {key: _emit(entries[key]) for key in sorted(entries)}
    if isinstance(value, list):
        return [_emit(item) for item in value]
    convert = _CONVERSIONS.get(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, Answer):
        return {value.type_name: _emit(value.fields)}
    if isinstance(value, ObjectValue):
        return _emit_object(value)
    if isinstance(value, Record):
        return {key: _emit(item) for key, item in value.fields.items()}
    return value.type_name if isinstance(value, Opaque) else value


def _emit_object(value: ObjectValue) -> Json:
    """The fields; objects inside of an Object are of the type that their place names."""
    if value.type_name.startswith("Object"):
        for key, item in value.fields.items():
            for part in item if isinstance(item, list) else (item,):
                _check_place(part, f"{value.type_name}.{key}")
    return {key: _emit(item) for key, item in value.fields.items()}


def _check_place(part: Value, expected: str) -> None:
    if isinstance(part, ObjectValue) and part.type_name != expected:
        raise CelError(
            f'type mismatch: unexpected type name "{part.type_name}", expected "{expected}", '
            "which matches field name path from root Object type"
        )


def _refuse(_: Optional) -> Json:
    raise CelError(_HELD)


_CONVERSIONS: dict[type, Callable[[Any], Json]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    UInt: int,
    Timestamp: lambda value: format_timestamp(Timestamp(value.nanoseconds)),
    Duration: format_seconds,
    TypeValue: lambda value: value.name,
    Optional: _refuse,
}


def _emit_key(key: Value) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else str(key)
