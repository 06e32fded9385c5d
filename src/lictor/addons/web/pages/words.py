"""The small parts of every page: a status, a severity, a time, a number, the name of a resource."""

from collections.abc import Mapping
from datetime import UTC, datetime

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.records import STATUSES, ReportedResult

_STATUS_WORDS = {
    "fail": "Fail", "error": "Error", "warn": "Warn", "pass": "Pass", "skip": "Skip",
}  # fmt: skip
# What a status counts, in a sentence.
_COUNTED = {
    "fail": "failed", "error": "not decided", "warn": "warned", "pass": "passed", "skip": "skipped",
}  # fmt: skip
WRONG = ("fail", "error", "warn")
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
# The last second that a date can name.
_LAST = 253_402_300_799


def render_status(status: str) -> Html:
    """A status: the word says it, the colour repeats it."""
    known = status if status in _STATUS_WORDS else "skip"
    return element("span", _STATUS_WORDS.get(status, status), class_=f"status {known}")


def render_severity(severity: str) -> Html | None:
    """A severity; nothing where there is none."""
    if not severity:
        return None
    known = severity if severity in ("critical", "high", "medium", "low", "info") else "info"
    return element("span", severity.capitalize(), class_=f"severity {known}")


def format_number(number: int) -> str:
    """With a comma between thousands."""
    return f"{number:,}"


def count_things(number: int, noun: str, plural: str = "") -> str:
    """`1 result`, `2 results`, `1,000 policies`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def render_time(timestamp: int, now: int) -> Html | None:
    """How long ago, with the moment itself for whoever points at it."""
    if not 0 < timestamp <= _LAST:
        return None
    moment = datetime.fromtimestamp(timestamp, UTC)
    return element(
        "time",
        describe_distance(timestamp, now),
        datetime=moment.isoformat(),
        title=format_moment(timestamp),
    )


def format_moment(timestamp: int) -> str:
    """`2025-03-01 14:05 UTC`."""
    if not 0 < timestamp <= _LAST:
        return "at an unknown time"
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M} UTC"


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


def render_resource(row: ReportedResult, href: str, *, cluster: bool) -> Html:
    """A resource as a link, its kind before it."""
    name = row.name or "no resource"
    place = element("span", f"{row.namespace}/", class_="quiet") if row.namespace else None
    where = element("span", row.cluster, class_="cluster") if cluster else None
    return join(
        where,
        element("span", row.kind, class_="kind"),
        element("a", place, name, href=href, class_="name"),
    )


def describe_counts(counts: Mapping[str, int]) -> str:
    """`3 failed, 1 not decided, 20 passed`, for those who cannot see a bar."""
    told = [
        f"{format_number(counts.get(status, 0))} {_COUNTED[status]}"
        for status in STATUSES
        if counts.get(status, 0)
    ]
    return ", ".join(told) or "no results"


def count_wrong(counts: Mapping[str, int]) -> int:
    """Failures, errors and warnings together."""
    return sum(counts.get(status, 0) for status in WRONG)


def render_share(counts: Mapping[str, int]) -> str:
    """The share of passing results in percent; never 100 if a result fails."""
    judged = count_wrong(counts) + counts.get("pass", 0)
    if not judged:
        return "–"  # noqa: RUF001  (a dash for nothing)
    share = 100 * counts.get("pass", 0) / judged
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %".replace(".0 %", " %")
