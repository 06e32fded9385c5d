"""Functions on times in RFC 3339, on other layouts, and on durations."""

import re

from lictor.core.lang.duration import NANOSECONDS, format_duration, parse_duration
from lictor.core.lang.gotime import GoTime, from_datetime, parse_rfc3339, parse_time
from lictor.core.lang.jmespath.functions.spec import FunctionSpec, JmesPathHost, define

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_INT64 = 1 << 63


def _is_integer(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -_INT64 <= int(text) < _INT64


def _read(layout: str, text: str) -> GoTime:
    return parse_time(layout, text) if layout else parse_rfc3339(text)


def _since(host: JmesPathHost, layout: str, start: str, end: str) -> str:
    begun = _read(layout, start)
    ended = _read(layout, end) if end else from_datetime(host.now())
    return format_duration(ended.since(begun))


def _now(host: JmesPathHost, *_: object) -> str:
    return str(from_datetime(host.now()))


def _now_utc(host: JmesPathHost, *_: object) -> str:
    return str(from_datetime(host.now()).utc())


def _parse(layout: str, text: str) -> str:
    if not _is_integer(layout):
        return str(parse_time(layout, text))
    if not _is_integer(text):
        raise ValueError(f"{text[:64]!r} is not a number of seconds")
    return str(GoTime(int(text) * NANOSECONDS))


def _to_cron(text: str) -> str:
    moment = parse_rfc3339(text)
    _, month, day, hour, minute, _ = moment.civil()
    return f"{minute} {hour} {day} {month} {moment.weekday()}"


def _before(first: str, second: str) -> bool:
    return parse_rfc3339(first).nanoseconds < parse_rfc3339(second).nanoseconds


def _between(text: str, start: str, end: str) -> bool:
    # All three are parsed first: a chained comparison would skip an invalid end.
    moment, begun, ended = (parse_rfc3339(each).nanoseconds for each in (text, start, end))
    return begun < moment < ended


TIME: tuple[FunctionSpec, ...] = (
    define(
        "time_add(string, string) string",
        lambda text, span: str(parse_rfc3339(text).add(parse_duration(span))),
        "adds a duration to a time",
    ),
    define(
        "time_after(string, string) bool",
        lambda first, second: _before(second, first),
        "returns whether the first time is after the second",
    ),
    define(
        "time_before(string, string) bool",
        _before,
        "returns whether the first time is before the second",
    ),
    define(
        "time_between(string, string, string) bool",
        _between,
        "returns whether the first time is after the second and before the third",
    ),
    define(
        "time_diff(string, string) string",
        lambda first, second: format_duration(parse_rfc3339(second).since(parse_rfc3339(first))),
        "returns the duration from the first time to the second",
    ),
    define("time_now() string", _now, "returns the current time", pure=False),
    define("time_now_utc() string", _now_utc, "returns the current time in UTC", pure=False),
    define(
        "time_parse(string, string) string",
        _parse,
        "parses a time by a layout such as `2006-01-02`, or seconds since 1970 by digits",
    ),
    define(
        "time_since(string, string, string) string",
        _since,
        "returns the duration from the second argument to the third, or to now, both in a layout",
        pure=False,
    ),
    define(
        "time_to_cron(string) string",
        _to_cron,
        "converts a time to a schedule that matches it each year",
    ),
    define(
        "time_truncate(string, string) string",
        lambda text, span: str(parse_rfc3339(text).truncate(parse_duration(span))),
        "rounds a time down to a multiple of a duration",
    ),
    define(
        "time_utc(string) string",
        lambda text: str(parse_rfc3339(text).utc()),
        "converts a time to UTC",
    ),
)
