"""Kyverno's `time.now()`, `time.toCron(moment)` and `time.truncate(moment, step)`."""

from datetime import UTC, datetime, timedelta

from lictor.lang.cel.declaration import function
from lictor.lang.cel.world import current_world

_MICROSECOND = timedelta(microseconds=1)
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


def _now() -> datetime:
    return current_world.get().now()


def _to_cron(moment: datetime) -> str:
    weekday = moment.isoweekday() % 7
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} {weekday}"


def _truncate(moment: datetime, step: timedelta) -> datetime:
    if step <= timedelta():
        return moment
    # As Go counts: from the beginning of the first year, not from 1970.
    since = (moment - _BEGINNING) // _MICROSECOND
    return (
        moment - (since % (step // _MICROSECOND)) * _MICROSECOND if step >= _MICROSECOND else moment
    )


OVERLOADS = (
    function("time.now", "-> timestamp", _now),
    function("time.toCron", "timestamp -> string", _to_cron),
    function("time.truncate", "timestamp, duration -> timestamp", _truncate),
)
