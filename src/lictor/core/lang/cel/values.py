"""JSON on its way into CEL and back: what the engine cannot carry is mended or refused here."""

import base64
from datetime import UTC, datetime, timedelta

import orjson

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.raw import Json

_DEEPEST = 200
# With more elements than these, loops over lists must be cut into pieces.
MANY = 500
# What cannot be written out may be as long as it likes.
_UNKNOWN = (10_000, 10_000_000)
_INT64 = range(-(2**63), 2**63)


def weigh(value: Json) -> tuple[Json, int, int]:
    """The value as the engine can take it without harm, and roughly its elements and bytes."""
    # Printing JSON is the fastest way to visit every part of a value: it fails on all that the
    # engine would choke on (lone surrogates, huge numbers, odd types, bottomless nesting).
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return _mend(value, 0), *_UNKNOWN
    # The engine cuts a text at the first NUL: a check would see another text than the cluster.
    admitted = _mend(value, 0) if b"\\u0000" in text else value
    return admitted, text.count(b","), len(text)


def admit(value: Json) -> Json:
    """The value as the engine can take it without harm."""
    return weigh(value)[0]


def admit_text(value: Json) -> Json:
    """The same for a single text."""
    return (
        value if isinstance(value, str) and value.isascii() and "\0" not in value else admit(value)
    )


def emit(value: Json) -> Json:
    """A value of the engine as JSON: times, durations and bytes as Kubernetes prints them."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, dict):
        return {_emit_key(key): emit(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [emit(item) for item in value]
    return _emit_scalar(value)


def format_time(moment: datetime) -> str:
    """RFC 3339 with as many decimals as needed."""
    text = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    text = text.rjust(19, "0")
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{text}{fraction}Z"


def format_length(length: timedelta) -> str:
    """A duration as CEL's `string()` writes it: seconds, with as many decimals as needed."""
    whole, rest = divmod(abs(length), timedelta(seconds=1))
    fraction = f".{rest.microseconds:06d}".rstrip("0") if rest else ""
    return f"{'-' if length < timedelta() else ''}{whole}{fraction}s"


def _emit_key(key: Json) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else str(key)


def _emit_scalar(value: Json) -> Json:
    if isinstance(value, bytearray | bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, timedelta):
        return format_length(value)
    return str(value).lower()


def _mend(value: Json, depth: int) -> Json:
    if depth > _DEEPEST:
        raise TooLargeError("the value is nested too deeply for CEL")
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return _mend_text(value)
    if isinstance(value, int):
        # As in Go, where a JSON number that is no int64 is a float64.
        return value if value in _INT64 else float(value) if abs(value) < 2**1023 else float("inf")
    if isinstance(value, dict):
        return {_mend_text(str(key)): _mend(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mend(item, depth + 1) for item in value]
    raise EvaluationError("an expression made something that is no JSON value")


def _mend_text(text: str) -> str:
    if "\0" in text:
        raise EvaluationError("CEL cannot judge a text with a NUL character")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
