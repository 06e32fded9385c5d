"""The label `cleanup.kyverno.io/ttl`: its text in, the moment at which an object goes out."""

import re
from datetime import UTC, datetime, timedelta

from lictor.lang.duration import NANOSECONDS, parse_duration
from lictor.lang.gotime import parse_time

_DATE_TIME = "2006-01-02T150405Z"
_DATE = "2006-01-02"
# Where Go would refuse a duration, Kubernetes reads amounts with these units out of the text; the
# last name of a unit may go on (`5days`).
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
    """When an object of this age goes; ValueError where the text is no time to live.

    A length of time (`10m`, `2d`) counts from the creation; a time (`2030-01-02T150405Z`) or a
    date (`2030-01-02`) stands for itself.
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
        # Far in the future; or so long ago that the calendar does not know it.
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
