"""The geometry of bars and plots; templates draw them as SVG."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from lictor.addons.web.pages.words import WRONG, describe_counts, format_moment
from lictor.addons.web.records import STATUSES, TotalsPoint

_WIDTH = 1000
# In percent of the height: the positions of the highest number and of zero.
_SKY, _GROUND = 10, 88
_MOST_POINTS = 300
_TICKS = 4
# Pixels at the left for the numbers; page.css and plot.html have the same.
_MARGIN = 72
_DAY = 86400
_LABEL = "Failures, errors and warnings over time"


def list_shares(counts: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """Status, position and width of each part of a bar of width 100."""
    total = sum(counts.get(status, 0) for status in STATUSES)
    parts, position = [], 0.0
    for status in STATUSES:
        if number := counts.get(status, 0):
            # A small share must stay visible.
            width = max(100 * number / total, 0.6)
            parts.append((status, position, width))
            position += width
    return parts


class Plot(msgspec.Struct, frozen=True):
    """Failures, errors and warnings over time, as stacked areas with two axes."""

    label: str
    # Status and path, the last drawn first.
    areas: tuple[tuple[str, str], ...]
    # Number, and its height in percent.
    ticks: tuple[tuple[int, float], ...]
    # Text, position and anchor.
    times: tuple[tuple[str, str, str], ...]


def build_plot(points: Sequence[TotalsPoint], now: int) -> Plot:
    """The plot of at least one point, up to now."""
    shown = thin_out([*points, TotalsPoint(max(now, points[-1].timestamp), points[-1].counts)])
    first, last = shown[0].timestamp, shown[-1].timestamp
    top = choose_top(max(_wrong(point, WRONG) for point in shown))
    scale = _Scale(first, max(last, first + 60), top)
    numbers = [top * step // _TICKS for step in range(_TICKS + 1)]
    before = f"{describe_counts(points[0].counts)} at {format_moment(first)}"
    return Plot(
        label=f"{_LABEL}: {describe_counts(points[-1].counts)} now, {before}",
        areas=tuple(
            (WRONG[index], _draw_area(shown, scale, index)) for index in reversed(range(len(WRONG)))
        ),
        ticks=tuple((number, scale.y(number)) for number in numbers),
        times=_list_times(scale),
    )


class _Scale:
    """Where a time and a number stand in the drawing: a number in percent of the height."""

    def __init__(self, first: int, last: int, top: int) -> None:
        self.first, self.last, self.top = first, last, top

    def x(self, timestamp: int) -> float:
        return (timestamp - self.first) / (self.last - self.first) * _WIDTH

    def y(self, number: int) -> float:
        return _GROUND - number / self.top * (_GROUND - _SKY)


def _wrong(point: TotalsPoint, statuses: Sequence[str]) -> int:
    return sum(point.counts.get(status, 0) for status in statuses)


def _draw_area(points: Sequence[TotalsPoint], scale: _Scale, number: int) -> str:
    """From the ground up to the sum of the statuses so far, in steps: a total holds until it
    changes."""
    steps = [f"M{scale.x(points[0].timestamp):.1f} {_GROUND}"]
    for index, point in enumerate(points):
        x, y = scale.x(point.timestamp), scale.y(_wrong(point, WRONG[: number + 1]))
        steps.append(f"{'V' if index == 0 else f'H{x:.1f}V'}{y:.2f}")
    steps.append(f"V{_GROUND}Z")
    return "".join(steps)


def _list_times(scale: _Scale) -> tuple[tuple[str, str, str], ...]:
    form = "%H:%M" if scale.last - scale.first <= _DAY else "%d %b"
    half = (scale.first + scale.last) // 2
    return (
        (f"{datetime.fromtimestamp(scale.first, UTC):{form}}", str(_MARGIN), "start"),
        (f"{datetime.fromtimestamp(half, UTC):{form}}", "50%", "middle"),
        ("now", "100%", "end"),
    )


def choose_top(highest: int) -> int:
    """A round number at or above the highest one, that the ticks divide."""
    step = 1
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if step * factor * _TICKS >= highest:
                return step * factor * _TICKS
        step *= 10


def thin_out(points: Sequence[TotalsPoint]) -> list[TotalsPoint]:
    """At most 300 points, first and last among them; of those between, the worst of each group."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    inner, size = points[1:-1], -(-(len(points) - 2) // (_MOST_POINTS - 2))
    groups = [inner[start : start + size] for start in range(0, len(inner), size)]
    worst = [max(group, key=lambda point: _wrong(point, WRONG)) for group in groups]
    return [points[0], *worst, points[-1]]
