"""Schedules as Kubernetes' cron library reads them: text in, "when next?" out."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from lictor.errors import CompileError
from lictor.lang.duration import NANOSECONDS, parse_duration

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
    """Compile five fields, a word such as `@daily`, or `@every 1h`; `TZ=zone` may stand first."""
    try:
        zone, schedule = _take_zone(text)
        if schedule.startswith(_EVERY):
            return _compile_interval(schedule.removeprefix(_EVERY))
        fields = _WORDS.get(schedule, schedule)
        if len(fields.split()) != 5:
            raise ValueError("expected 5 fields: minute, hour, day, month, weekday")
        CronSim(fields, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError, ZoneInfoNotFoundError) as error:
        raise CompileError(f'"{text}" is not a cron expression: {error}') from error

    def next_run(now: datetime) -> datetime:
        try:
            return next(CronSim(fields, now.astimezone(zone))).astimezone(UTC)
        except StopIteration:
            raise CompileError(f'"{text}" never comes') from None

    return next_run


def _take_zone(text: str) -> tuple[tzinfo, str]:
    text = text.strip()
    if not text.startswith(("TZ=", "CRON_TZ=")):
        return UTC, text
    head, _, schedule = text.partition(" ")
    return ZoneInfo(head.partition("=")[2]), schedule.strip()


def _compile_interval(text: str) -> NextRun:
    seconds = max(1, parse_duration(text) // NANOSECONDS)
    step = timedelta(seconds=seconds)
    return lambda now: (now + step).replace(microsecond=0)
