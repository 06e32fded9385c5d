"""Cron schedules, and the deletion time from the label `cleanup.kyverno.io/ttl`."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from lictor.core.errors import CompileError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.lang.gotime import parse_time

_DATE_TIME = "2006-01-02T150405Z"
_DATE = "2006-01-02"
# If Go rejects a duration, Kubernetes reads amounts with these units from the text; the last name
# of a unit may be longer (`5days`).
_UNITS = (
    (("ns", "nano"), 1),
    (("us", "\u00b5s", "micro"), 1_000),
    (("ms", "milli"), 1_000_000),
    (("s", "sec"), NANOSECONDS),
    (("m", "min"), 60 * NANOSECONDS),
    (("h", "hr", "hour"), 3600 * NANOSECONDS),
    (("d", "day"), 86_400 * NANOSECONDS),
    (("w", "wk", "week"), 604_800 * NANOSECONDS),
)
_AMOUNT = re.compile("([0-9]{1,64})\\s*([A-Za-z\u00b5]+)")
# The value of a label has at most 63 characters.
_MAX_TEXT = 256
NEVER = datetime.max.replace(tzinfo=UTC)


def find_deletion_time(text: str, created: datetime) -> datetime:
    """When an object of this age expires; raises ValueError for an invalid time to live.

    A duration (`10m`, `2d`) counts from the creation; a time (`2030-01-02T150405Z`) or a date
    (`2030-01-02`) is absolute.
    """
    nanoseconds = _read_length(text[:_MAX_TEXT])
    if nanoseconds is not None:
        return _add(created, nanoseconds)
    try:
        moment = parse_time(_DATE_TIME, text)
    except ValueError:
        moment = parse_time(_DATE, text)
    return _add(datetime(1970, 1, 1, tzinfo=UTC), moment.nanoseconds)


def _add(start: datetime, nanoseconds: int) -> datetime:
    try:
        return start + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        # Far in the future, or before the range of the calendar.
        return NEVER if nanoseconds > 0 else start


def _read_length(text: str) -> int | None:
    try:
        return parse_duration(text)
    except ValueError:
        found = [_read_amount(match) for match in _AMOUNT.finditer(text)]
    known = [amount for amount in found if amount is not None]
    return sum(known) if known else None


def _read_amount(match: re.Match[str]) -> int | None:
    word = match[2].lower()
    for names, factor in _UNITS:
        if word in names or word.startswith(names[-1]):
            return int(match[1]) * factor
    return None


NextRun: TypeAlias = Callable[[datetime], datetime]

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "


def compile_schedule(text: str) -> NextRun:
    """Compile five fields, a word such as `@daily`, or `@every 1h`; `TZ=zone` may precede."""
    try:
        zone, schedule = _take_zone(text)
        if schedule.startswith(_EVERY):
            return _compile_interval(schedule.removeprefix(_EVERY))
        # Kubernetes treats `?` as `*` in every field.
        fields = _WORDS.get(schedule, schedule).replace("?", "*")
        if len(fields.split()) != 5:
            raise ValueError("expected 5 fields: minute, hour, day, month, weekday")
        CronSim(fields, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as error:
        raise CompileError(f'"{text}" is not a cron expression: {error}') from error

    def next_run(now: datetime) -> datetime:
        try:
            return next(CronSim(fields, now.astimezone(zone))).astimezone(UTC)
        except StopIteration:
            raise CompileError(f'"{text}" never matches a date') from None

    return next_run


def _take_zone(text: str) -> tuple[tzinfo, str]:
    text = text.strip()
    if not text.startswith(("TZ=", "CRON_TZ=")):
        return UTC, text
    head, _, schedule = text.partition(" ")
    return find_zone(head.partition("=")[2]), schedule.strip()


def find_zone(name: str) -> ZoneInfo:
    """A time zone by name; raises ValueError if it is unknown."""
    try:
        return ZoneInfo(name)
    # A name may be a folder, or longer than file names can be.
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {name[:100]}") from error


def _compile_interval(text: str) -> NextRun:
    seconds = max(1, parse_duration(text) // NANOSECONDS)
    step = timedelta(seconds=seconds)
    return lambda now: (now + step).replace(microsecond=0)
