"""Numbers, times, counts and names of resources as text."""

from collections.abc import Mapping
from datetime import UTC, datetime

from lictor.addons.web.records import STATUSES, ReportedResult

# What a status counts, in a sentence.
_COUNTED = {
    "fail": "failed",
    "error": "not evaluated",
    "warn": "warned",
    "pass": "passed",
    "skip": "skipped",
}
WRONG = ("fail", "error", "warn")
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
# The last second that a date can name.
_LAST = 253_402_300_799


def format_number(number: int) -> str:
    """With a comma between thousands."""
    return f"{number:,}"


def count_things(number: int, noun: str, plural: str = "") -> str:
    """`1 result`, `2 results`, `1,000 policies`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def find_moment(timestamp: int) -> datetime | None:
    """The date and time of a timestamp; None for 0 and for what no date can represent."""
    return datetime.fromtimestamp(timestamp, UTC) if 0 < timestamp <= _LAST else None


def format_moment(timestamp: int) -> str:
    """`2025-03-01 14:05 UTC`."""
    moment = find_moment(timestamp)
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "at an unknown time"


def describe_distance(timestamp: int, now: int) -> str:
    """`3 hours ago`, or `in 2 days`."""
    distance = abs(now - timestamp)
    if distance < 60:
        return "just now"
    size, unit = next(each for each in _UNITS if distance >= each[0])
    length = count_things(distance // size, unit)
    return f"in {length}" if timestamp > now else f"{length} ago"


def name_resource_of(row: ReportedResult) -> str:
    """`Deployment shop/cart`."""
    place = f"{row.namespace}/{row.name}" if row.namespace else row.name
    return f"{row.kind} {place}".strip() or "no resource"


def describe_counts(counts: Mapping[str, int]) -> str:
    """`3 failed, 1 not decided, 20 passed`, as text for screen readers."""
    parts = [
        f"{format_number(counts.get(status, 0))} {_COUNTED[status]}"
        for status in STATUSES
        if counts.get(status, 0)
    ]
    return ", ".join(parts) or "no results"


def count_wrong(counts: Mapping[str, int]) -> int:
    """Failures, errors and warnings together."""
    return sum(counts.get(status, 0) for status in WRONG)


def format_share(counts: Mapping[str, int]) -> str:
    """The share of passing results in percent; never 100 if a result fails."""
    evaluated = count_wrong(counts) + counts.get("pass", 0)
    if not evaluated:
        return "–"  # noqa: RUF001  (a dash for nothing)
    share = 100 * counts.get("pass", 0) / evaluated
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %".replace(".0 %", " %")
