"""Operators and standard functions: their signatures; the compiler has the operators' code."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel import operators
from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.functions import Implementation, Library
from lictor.core.lang.cel.values import (
    NANOSECONDS,
    Duration,
    Timestamp,
    Value,
    compare,
    equal,
)
from lictor.core.lang.gotime import GoTime, days_from_civil
from lictor.core.lang.regex import Regex, compile_regex

_ORDERED = (
    "bool, bool", "int, int", "int, double", "int, uint", "uint, uint", "uint, double",
    "uint, int", "double, double", "double, int", "double, uint", "string, string",
    "bytes, bytes", "timestamp, timestamp", "duration, duration",
)  # fmt: skip


def _no_implementation(*_: Value) -> Value:
    raise no_overload()


def _rows(
    name: str, signatures: tuple[str, ...], run: Implementation
) -> list[tuple[str, Implementation]]:
    return [
        (f"{name}({arguments}) -> {result}", run)
        for arguments, _, result in (s.partition(" -> ") for s in signatures)
    ]


def _ordering(name: str, accepted: tuple[int, ...]) -> list[tuple[str, Implementation]]:
    def run(left: Value, right: Value) -> bool:
        return compare(left, right, name) in accepted

    return [(f"{name}({pair}) -> bool", run) for pair in _ORDERED]


_NUMBERS = ("double, double -> double", "int, int -> int", "uint, uint -> uint")
_ADD = (
    "bytes, bytes -> bytes", "double, double -> double", "duration, duration -> duration",
    "duration, timestamp -> timestamp", "timestamp, duration -> timestamp", "int, int -> int",
    "list(A), list(A) -> list(A)", "string, string -> string", "uint, uint -> uint",
)  # fmt: skip
_SUBTRACT = (
    "double, double -> double", "duration, duration -> duration", "int, int -> int",
    "timestamp, duration -> timestamp", "timestamp, timestamp -> duration", "uint, uint -> uint",
)  # fmt: skip


def not_strictly_false(value: Value) -> bool:
    """Whether a loop goes on."""
    return value is not False


OPERATORS = Library(
    ("_?_:_(bool, A, A) -> A", _no_implementation),
    ("_&&_(bool, bool) -> bool", _no_implementation),
    ("_||_(bool, bool) -> bool", _no_implementation),
    ("!_(bool) -> bool", operators.invert),
    ("@not_strictly_false(bool) -> bool", not_strictly_false),
    ("_==_(A, A) -> bool", equal),
    ("_!=_(A, A) -> bool", lambda left, right: not equal(left, right)),
    *_rows("_+_", _ADD, operators.add),
    *_rows("_/_", _NUMBERS, operators.divide),
    *_rows("_%_", ("int, int -> int", "uint, uint -> uint"), operators.modulo),
    *_rows("_*_", _NUMBERS, operators.multiply),
    *_rows("-_", ("double -> double", "int -> int"), operators.negate),
    *_rows("_-_", _SUBTRACT, operators.subtract),
    *_ordering("_<_", (-1,)),
    *_ordering("_<=_", (-1, 0)),
    *_ordering("_>_", (1,)),
    *_ordering("_>=_", (1, 0)),
    ("_[_](list(A), int) -> A", _no_implementation),
    ("_[_](map(A, B), A) -> B", _no_implementation),
    ("@in(A, list(A)) -> bool", operators.contains),
    ("@in(A, map(A, B)) -> bool", operators.contains),
    ("size(bytes) -> int", operators.size),
    ("bytes::size() -> int", operators.size),
    ("size(list(A)) -> int", operators.size),
    ("list(A)::size() -> int", operators.size),
    ("size(map(A, B)) -> int", operators.size),
    ("map(A, B)::size() -> int", operators.size),
    ("size(string) -> int", operators.size),
    ("string::size() -> int", operators.size),
    single=("size", "!_", "-_", "@in", "_+_", "_-_", "_*_", "_/_", "_%_"),
)


# -- texts


def read_regex(pattern: str) -> Regex:
    """The compiled expression; CelError where it is invalid."""
    try:
        return compile_regex(pattern)
    except SyntaxFaultError as error:
        raise CelError(str(error)) from None


def _matches(text: Value, pattern: Value) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise no_overload("matches")
    return read_regex(pattern).search(text) is not None


TEXTS = Library(
    ("string::contains(string) -> bool", lambda text, part: part in text),
    ("string::endsWith(string) -> bool", lambda text, end: text.endswith(end)),
    ("string::startsWith(string) -> bool", lambda text, start: text.startswith(start)),
    ("matches(string, string) -> bool", _matches),
    ("string::matches(string) -> bool", _matches),
    single=("matches",),
)


# -- times


@lru_cache(maxsize=256)
def _load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


def _find_offset(moment: Timestamp, zone: str) -> int:
    """Seconds east of UTC: a zone's name, or hours and minutes."""
    if zone in ("", "UTC"):
        return 0
    if ":" not in zone:
        return _offset_of_zone(moment, _load_zone(zone))
    hours, _, minutes = zone.partition(":")
    try:
        offset = _read_int(hours) * 60
        offset += -_read_int(minutes) if zone.startswith("-") else _read_int(minutes)
    except ValueError:
        raise CelError(f"unknown time zone {zone}") from None
    return offset * 60


def _read_int(text: str) -> int:
    if not text.lstrip("+-").isdecimal() or not text.isascii() or len(text) > 18:
        raise ValueError(text)
    return int(text)


def _offset_of_zone(moment: Timestamp, zone: ZoneInfo) -> int:
    year, month, day, hour, minute, second = GoTime(moment.nanoseconds).civil()
    there = datetime(min(max(year, 2), 9998), month, day, hour, minute, second, tzinfo=UTC)
    offset = there.astimezone(zone).utcoffset()
    return int((offset or timedelta()).total_seconds())


Civil = tuple[int, int, int, int, int, int]


def _part(read: Callable[[GoTime, Civil], int]) -> Implementation:
    def run(moment: Timestamp, zone: str = "") -> int:
        there = GoTime(moment.nanoseconds, _find_offset(moment, zone))
        return read(there, there.civil())

    return run


def _day_of_year(_: GoTime, civil: Civil) -> int:
    return days_from_civil(civil[0], civil[1], civil[2]) - days_from_civil(civil[0], 1, 1)


def _unit(nanoseconds: int) -> Implementation:
    def run(length: Duration) -> int:
        whole = abs(length.nanoseconds) // nanoseconds
        return -whole if length.nanoseconds < 0 else whole

    return run


_PARTS: dict[str, Callable[[GoTime, Civil], int]] = {
    "getFullYear": lambda _, civil: civil[0],
    "getMonth": lambda _, civil: civil[1] - 1,
    "getDayOfYear": _day_of_year,
    "getDayOfMonth": lambda _, civil: civil[2] - 1,
    "getDate": lambda _, civil: civil[2],
    "getDayOfWeek": lambda there, _: there.weekday(),
    "getHours": lambda _, civil: civil[3],
    "getMinutes": lambda _, civil: civil[4],
    "getSeconds": lambda _, civil: civil[5],
    "getMilliseconds": lambda there, _: there.nanoseconds % NANOSECONDS // 1_000_000,
}
_UNITS = {
    "getHours": 3600 * NANOSECONDS,
    "getMinutes": 60 * NANOSECONDS,
    "getSeconds": NANOSECONDS,
    "getMilliseconds": 1_000_000,
}


def _time_rows() -> list[tuple[str, Implementation]]:
    rows: list[tuple[str, Implementation]] = []
    for name, read in _PARTS.items():
        run = _part(read)
        rows.append((f"timestamp::{name}() -> int", run))
        rows.append((f"timestamp::{name}(string) -> int", run))
        if name in _UNITS:
            rows.append((f"duration::{name}() -> int", _unit(_UNITS[name])))
    return rows


TIMES = Library(*_time_rows())
