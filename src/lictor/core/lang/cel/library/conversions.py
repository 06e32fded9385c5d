"""Conversions between types: int('1'), string(1.5), timestamp('...')."""

import math
import re
from decimal import Decimal

from lictor.core.lang.cel.faults import CelError
from lictor.core.lang.cel.functions import Library
from lictor.core.lang.cel.operators import check_int, check_uint
from lictor.core.lang.cel.values import (
    NANOSECONDS,
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    Value,
    type_name,
)
from lictor.core.lang.duration import parse_duration
from lictor.core.lang.go_number import format_general
from lictor.core.lang.gotime import GoTime, parse_rfc3339

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_INT = re.compile(r"[+-]?[0-9]{1,400}")
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|inf|infinity|nan)",
    re.IGNORECASE,
)
_HEX_FLOAT = re.compile(
    r"[+-]?0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)p[+-]?[0-9]+", re.IGNORECASE
)
_STRICT_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
    re.ASCII,
)


def fail_conversion(value: Value, to: str) -> CelError:
    """The error for a value that cannot become another type."""
    return CelError(f"type conversion error from '{type_name(value)}' to '{to}'")


def _identity(value: Value) -> Value:
    return value


def _bool_of_string(text: str) -> bool:
    if text not in _BOOLS:
        raise fail_conversion(text, "bool")
    return _BOOLS[text]


def parse_double(text: str) -> float:
    """Read a number as Go does; CelError for anything else."""
    plain = text.replace("_", "x")
    try:
        if _HEX_FLOAT.fullmatch(plain):
            number = float.fromhex(plain)
        elif (_FLOAT.fullmatch(plain) and not plain.lower().lstrip("+-").startswith("nan")) or (
            plain.lower() == "nan"
        ):
            number = float(plain)
        else:
            raise fail_conversion(text, "double")
    except (OverflowError, ValueError):
        raise fail_conversion(text, "double") from None
    if math.isinf(number) and "inf" not in plain.lower():
        raise fail_conversion(text, "double")
    return number


def _int_of_double(number: float) -> int:
    if not math.isfinite(number) or not -(2.0**63) < number < 2.0**63:
        raise CelError("integer overflow")
    return int(number)


def _int_of_string(text: str) -> int:
    if not _INT.fullmatch(text) or not text.isascii():
        raise fail_conversion(text, "int")
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise fail_conversion(text, "int")
    return number


def _uint_of_double(number: float) -> UInt:
    if not math.isfinite(number) or not 0 <= number < 2.0**64:
        raise CelError("unsigned integer overflow")
    return UInt(int(number))


def _uint_of_string(text: str) -> UInt:
    if not _INT.fullmatch(text) or text[0] in "+-" or int(text) >= 1 << 64:
        raise fail_conversion(text, "uint")
    return UInt(int(text))


def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def format_double(number: float) -> str:
    """A double as `%g` of Go writes it."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return format_general(number)


def format_timestamp(moment: Timestamp) -> str:
    """A moment in RFC 3339, with the offset it was written with."""
    text = str(GoTime(moment.nanoseconds, moment.offset))
    fraction = moment.nanoseconds % NANOSECONDS
    if not fraction:
        return text
    return f"{text[:19]}.{fraction:09d}".rstrip("0") + text[19:]


def format_seconds(length: Duration) -> str:
    """A duration as seconds, which Go computes as a double."""
    sign, amount = (-1, -length.nanoseconds) if length.nanoseconds < 0 else (1, length.nanoseconds)
    seconds, rest = divmod(amount, NANOSECONDS)
    value = sign * (seconds + rest / 1e9)
    return f"{Decimal(repr(value)).normalize():f}s" if value else "0s"


def parse_timestamp(text: str) -> Timestamp:
    """Read a moment as Go's time.Parse does, which is more than RFC 3339 allows."""
    try:
        moment = parse_rfc3339(text)
    except ValueError:
        raise fail_conversion(text, "google.protobuf.Timestamp") from None
    return Timestamp(moment.nanoseconds, moment.offset)


def _parse_strict_timestamp(text: str) -> Timestamp:
    if not _STRICT_TIME.fullmatch(text):
        raise CelError(f'invalid RFC 3339 timestamp "{text}"')
    return parse_timestamp(text)


def _parse_duration(text: str) -> Duration:
    try:
        return Duration(parse_duration(text))
    except ValueError:
        raise fail_conversion(text, "google.protobuf.Duration") from None


CONVERSIONS = Library(
    ("type(A) -> type(A)", lambda value: TypeValue(type_name(value))),
    ("bool(bool) -> bool", _identity),
    ("bool(string) -> bool", _bool_of_string),
    ("bytes(bytes) -> bytes", _identity),
    ("bytes(string) -> bytes", lambda text: text.encode("utf-8", "surrogatepass")),
    ("double(double) -> double", _identity),
    ("double(int) -> double", float),
    ("double(string) -> double", parse_double),
    ("double(uint) -> double", float),
    ("duration(duration) -> duration", _identity),
    ("duration(string) -> duration", _parse_duration),
    ("dyn(A) -> dyn", _identity),
    ("int(int) -> int", _identity),
    ("int(double) -> int", _int_of_double),
    ("int(duration) -> int", lambda length: length.nanoseconds),
    ("int(string) -> int", _int_of_string),
    ("int(timestamp) -> int", lambda moment: moment.nanoseconds // NANOSECONDS),
    ("int(uint) -> int", lambda number: check_int(int(number))),
    ("string(string) -> string", _identity),
    ("string(bool) -> string", lambda value: "true" if value else "false"),
    ("string(bytes) -> string", _string_of_bytes),
    ("string(double) -> string", format_double),
    ("string(duration) -> string", format_seconds),
    ("string(int) -> string", str),
    ("string(timestamp) -> string", format_timestamp),
    ("string(uint) -> string", lambda number: str(int(number))),
    ("timestamp(timestamp) -> timestamp", _identity),
    ("timestamp(int) -> timestamp", lambda seconds: Timestamp(seconds * NANOSECONDS)),
    ("timestamp(string) -> timestamp", parse_timestamp),
    ("uint(uint) -> uint", _identity),
    ("uint(double) -> uint", _uint_of_double),
    ("uint(int) -> uint", check_uint),
    ("uint(string) -> uint", _uint_of_string),
    single=("type", "dyn"),
)
STRICT_TIMES = Library(("timestamp(string) -> timestamp", _parse_strict_timestamp))
