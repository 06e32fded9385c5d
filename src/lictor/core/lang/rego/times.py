"""Time builtins, in nanoseconds since 1970."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from lictor.core.errors import FunctionError
from lictor.core.lang.duration import parse_duration
from lictor.core.lang.gotime import MONTHS, WEEKDAYS, GoTime, days_from_civil, days_in, parse_time
from lictor.core.lang.gotime_layout import Chunk, LayoutPart, split_layout
from lictor.core.lang.rego.operands import BuiltinRun, Functions, take_number, take_text, take_whole
from lictor.core.lang.rego.values import RegoFloat, RegoValue

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_INT64 = 1 << 63
_SECOND = 1_000_000_000
_LAYOUTS = {
    "ANSIC": "Mon Jan _2 15:04:05 2006",
    "UnixDate": "Mon Jan _2 15:04:05 MST 2006",
    "RubyDate": "Mon Jan 02 15:04:05 -0700 2006",
    "RFC822": "02 Jan 06 15:04 MST",
    "RFC822Z": "02 Jan 06 15:04 -0700",
    "RFC850": "Monday, 02-Jan-06 15:04:05 MST",
    "RFC1123": "Mon, 02 Jan 2006 15:04:05 MST",
    "RFC1123Z": "Mon, 02 Jan 2006 15:04:05 -0700",
    "RFC3339": "2006-01-02T15:04:05Z07:00",
    "RFC3339Nano": "2006-01-02T15:04:05.999999999Z07:00",
}
_ZONE = re.compile(r"[A-Za-z0-9_+\-/]{1,64}")
_HOURS = {"d": 24, "w": 168, "y": 8760}
_PART = re.compile(r"(?<![0-9.])([0-9.]+)(ns|us|µs|μs|ms|s|m|h|d|w|y)")


class _Moment:
    """A point in time in a time zone."""

    __slots__ = ("_zone", "layout", "name", "time")

    def __init__(self, nanoseconds: int, zone: "ZoneInfo | None", layout: str) -> None:
        self._zone = zone
        self.layout = layout
        self.name, offset = _look_up(nanoseconds, zone)
        self.time = GoTime(nanoseconds, offset)

    def at(self, nanoseconds: int) -> "_Moment":
        return _Moment(nanoseconds, self._zone, self.layout)

    def resolve(self, local: int) -> int:
        """The point in time with this local time; if ambiguous, as Go chooses."""
        guess = local - _look_up(local, self._zone)[1] * _SECOND
        second = local - _look_up(guess, self._zone)[1] * _SECOND
        return guess if guess == second else second


def _look_up(nanoseconds: int, zone: "ZoneInfo | None") -> tuple[str, int]:
    if zone is None:
        return "UTC", 0
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=nanoseconds // _SECOND)
        local = moment.astimezone(zone)
    except (OverflowError, ValueError) as error:
        raise FunctionError("the time is out of range") from error
    offset = local.utcoffset() or timedelta()
    return local.tzname() or "", int(offset.total_seconds())


@lru_cache(maxsize=64)
def _load_zone(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    # Names are file paths: only names of zones are allowed.
    if not _ZONE.fullmatch(name) or ".." in name or name.startswith("/"):
        raise FunctionError(f"unknown time zone {name}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise FunctionError(f"unknown time zone {name}") from error


def _read_moment(value: RegoValue) -> _Moment:
    """A number, or an array of a number, a zone, and a layout."""
    parts = value if isinstance(value, list) else [value]
    if not parts:
        raise FunctionError("expected number (ns) or [number (ns), string (tz)]")
    name = take_text(parts[1]) if len(parts) > 1 else ""
    layout = take_text(parts[2]) if len(parts) > 2 else ""
    zone = None if name in ("", "UTC", "Local") else _load_zone(name)
    return _Moment(_read_nanoseconds(parts[0]), zone, layout)


def _read_nanoseconds(value: RegoValue) -> int:
    number = take_number(value)
    if isinstance(number, RegoFloat) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or not -_INT64 <= number < _INT64:
        raise FunctionError("timestamp too big")
    return number


def _check_range(nanoseconds: int) -> int:
    if not -_INT64 <= nanoseconds < _INT64:
        raise FunctionError("time outside of valid range")
    return nanoseconds


def _now(run: BuiltinRun, _arguments: list[RegoValue]) -> int:
    return run.now


def _parse(_run: BuiltinRun, arguments: list[RegoValue]) -> int:
    layout, text = take_text(arguments[0]), take_text(arguments[1])
    return _read(_LAYOUTS.get(layout, layout), text)


def _parse_rfc3339(_run: BuiltinRun, arguments: list[RegoValue]) -> int:
    return _read(_LAYOUTS["RFC3339"], take_text(arguments[0]))


def _read(layout: str, text: str) -> int:
    try:
        return _check_range(parse_time(layout, text).nanoseconds)
    except ValueError as error:
        raise FunctionError(str(error)) from error


def _parse_duration(_run: BuiltinRun, arguments: list[RegoValue]) -> int:
    text = take_text(arguments[0])
    if any(unit in text for unit in _HOURS):
        text = _rewrite_days(text)
    try:
        return parse_duration(text)
    except ValueError as error:
        raise FunctionError(str(error)) from error


def _rewrite_days(text: str) -> str:
    sign = text[:1] if text[:1] in ("-", "+") else ""
    parts = _PART.findall(text[len(sign) :])
    if not parts or sign + "".join([digits + unit for digits, unit in parts]) != text:
        raise FunctionError(f"time: invalid duration {text[:64]!r}")
    written: list[str] = []
    for digits, unit in parts:
        try:
            hours = float(digits) * _HOURS[unit] if unit in _HOURS else None
        except ValueError as error:
            raise FunctionError(f"time: invalid duration {text[:64]!r}") from error
        written.append(f"{digits}{unit}" if hours is None else f"{RegoFloat(repr(hours)):f}h")
    return sign + "".join(written)


def _date(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    return list(_read_moment(arguments[0]).time.civil()[:3])


def _clock(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    return list(_read_moment(arguments[0]).time.civil()[3:])


def _weekday(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    return WEEKDAYS[_read_moment(arguments[0]).time.weekday()]


def _add_date(_run: BuiltinRun, arguments: list[RegoValue]) -> int:
    moment = _read_moment(arguments[0])
    years, months, days = (take_whole(each) for each in arguments[1:])
    if max(abs(years), abs(months), abs(days)) > 1_000_000_000:
        raise FunctionError("time outside of valid range")
    year, month, day, hour, minute, second = moment.time.civil()
    year, month = year + years + (month - 1 + months) // 12, (month - 1 + months) % 12 + 1
    at_midnight = (days_from_civil(year, month, 1) + day - 1 + days) * 86_400
    local = (at_midnight + hour * 3600 + minute * 60 + second) * _SECOND
    return _check_range(moment.resolve(local + moment.time.nanoseconds % _SECOND))


def _difference(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    """Years, months, days, hours, minutes and seconds between two points in time."""
    first = _read_moment(arguments[0])
    second = first.at(_read_moment(arguments[1]).time.nanoseconds)
    if first.time.nanoseconds > second.time.nanoseconds:
        first, second = second, first
    before, after = first.time.civil(), second.time.civil()
    parts = [late - early for early, late in zip(before, after, strict=True)]
    sizes = (0, 12, days_in(before[1], before[0]), 24, 60, 60)
    for place in range(5, 0, -1):
        if parts[place] < 0:
            parts[place] += sizes[place]
            parts[place - 1] -= 1
    return list(parts)


def _format(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    moment = _read_moment(arguments[0])
    layout = moment.layout or "RFC3339Nano"
    chunks = split_layout(_LAYOUTS.get(layout, layout))
    return "".join([chunk.prefix + _WRITERS[chunk.part](moment, chunk) for chunk in chunks])


def _digits(number: int, chunk: Chunk) -> str:
    width = max(chunk.width, 2) if chunk.padded else chunk.width
    return str(number).rjust(width, " " if chunk.padded else "0")


def _write_year(moment: _Moment, chunk: Chunk) -> str:
    year = moment.time.civil()[0]
    return f"{year % 100:02d}" if chunk.width == 2 else f"{year:04d}"


def _write_day_of_year(moment: _Moment, chunk: Chunk) -> str:
    year, month, day = moment.time.civil()[:3]
    number = days_from_civil(year, month, day) - days_from_civil(year, 1, 1) + 1
    return str(number).rjust(3, " " if chunk.padded else "0")


def _write_fraction(moment: _Moment, chunk: Chunk) -> str:
    digits = f"{moment.time.nanoseconds % _SECOND:09d}"[: chunk.width]
    if chunk.padded:
        digits = digits.rstrip("0")
    return f".{digits}" if digits else ""


def _write_half(moment: _Moment, chunk: Chunk) -> str:
    half = "PM" if moment.time.civil()[3] >= 12 else "AM"
    return half.lower() if chunk.padded else half


def _write_offset(moment: _Moment, chunk: Chunk) -> str:
    offset = moment.time.offset
    if chunk.padded and offset == 0:
        return "Z"
    size = abs(offset)
    fields = [f"{size // 3600:02d}", f"{size // 60 % 60:02d}", f"{size % 60:02d}"]
    sign = "-" if offset < 0 else "+"
    return sign + (":" if chunk.colons else "").join(fields[: chunk.width])


def _write_zone(moment: _Moment, _chunk: Chunk) -> str:
    return moment.name


_WRITERS: dict[LayoutPart, Callable[[_Moment, Chunk], str]] = {
    LayoutPart.YEAR: _write_year,
    LayoutPart.MONTH: lambda moment, chunk: _digits(moment.time.civil()[1], chunk),
    LayoutPart.MONTH_NAME: lambda moment, chunk: MONTHS[moment.time.civil()[1] - 1][
        : chunk.width or None
    ],
    LayoutPart.WEEKDAY: lambda moment, chunk: WEEKDAYS[moment.time.weekday()][
        : chunk.width or None
    ],
    LayoutPart.DAY: lambda moment, chunk: _digits(moment.time.civil()[2], chunk),
    LayoutPart.DAY_OF_YEAR: _write_day_of_year,
    LayoutPart.HOUR: lambda moment, _chunk: f"{moment.time.civil()[3]:02d}",
    LayoutPart.HOUR12: lambda moment, chunk: _digits(moment.time.civil()[3] % 12 or 12, chunk),
    LayoutPart.MINUTE: lambda moment, chunk: _digits(moment.time.civil()[4], chunk),
    LayoutPart.SECOND: lambda moment, chunk: _digits(moment.time.civil()[5], chunk),
    LayoutPart.FRACTION: _write_fraction,
    LayoutPart.HALF: _write_half,
    LayoutPart.OFFSET: _write_offset,
    LayoutPart.ZONE_NAME: _write_zone,
    LayoutPart.END: lambda _moment, _chunk: "",
}

TIME_BUILTINS: Functions = {
    "time.now_ns": _now,
    "time.parse_ns": _parse,
    "time.parse_rfc3339_ns": _parse_rfc3339,
    "time.parse_duration_ns": _parse_duration,
    "time.format": _format,
    "time.date": _date,
    "time.clock": _clock,
    "time.weekday": _weekday,
    "time.add_date": _add_date,
    "time.diff": _difference,
}
