"""Counts as drawings: bars of shares, and the history of totals as a plot; SVG without a script."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from lictor.addons.web.markup import Html, element
from lictor.addons.web.pages.words import WRONG, describe_counts, format_moment, format_number
from lictor.addons.web.records import STATUSES, TotalsPoint

_WIDTH = 1000
# In percent of the height: where the highest number and nought stand.
_SKY, _GROUND = 10, 88
_MOST_POINTS = 300
_TICKS = 4
# Pixels at the left for the numbers; page.css has the same.
_MARGIN = 72
_DAY = 86400


def render_bar(counts: Mapping[str, int], *, label: bool = True) -> Html:
    """The share of each status, in one line."""
    total = sum(counts.get(status, 0) for status in STATUSES)
    parts, position = [], 0.0
    for status in STATUSES:
        number = counts.get(status, 0)
        if number:
            # What is there must be seen, however little it is of the whole.
            width = max(100 * number / total, 0.6)
            parts.append(_rect(position, width, status))
            position += width
    text = describe_counts(counts)
    said: dict[str, str] = {"role": "img", "aria_label": text} if label else {"aria_hidden": "true"}
    return element(
        "svg",
        parts,
        class_="bar",
        viewBox=f"0 0 {max(position, 100):.2f} 1",
        preserveAspectRatio="none",
        **said,
    )


def _rect(x: float, width: float, status: str) -> Html:
    return element("rect", x=f"{x:.2f}", y=0, width=f"{width:.2f}", height=1, class_=status)


def render_plot(points: Sequence[TotalsPoint], now: int, *, name: str) -> Html:
    """What was wrong at which time: failures, errors and warnings on each other, as areas.

    The areas are stretched to the place there is; texts and lines are not.
    """
    shown = thin_out([*points, TotalsPoint(max(now, points[-1].timestamp), points[-1].counts)])
    first, last = shown[0].timestamp, shown[-1].timestamp
    top = choose_top(max(_wrong(point, WRONG) for point in shown))
    scale = _Scale(first, max(last, first + 60), top)
    areas = [
        element("path", d=_draw_area(shown, scale, number), class_=f"area {WRONG[number]}")
        for number in reversed(range(len(WRONG)))
    ]
    message = f"{describe_counts(points[-1].counts)} now"
    before = f"{describe_counts(points[0].counts)} at {format_moment(first)}"
    return element(
        "svg",
        element(
            "svg", areas, viewBox=f"0 0 {_WIDTH} 100", preserveAspectRatio="none", class_="areas"
        ),
        [_render_tick(top * step // _TICKS, scale) for step in range(_TICKS + 1)],
        _render_times(scale),
        class_="plot",
        role="img",
        aria_label=f"{name}: {message}, {before}",
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


def _render_tick(number: int, scale: _Scale) -> Html:
    y = f"{scale.y(number):.1f}%"
    line = element("line", x1=_MARGIN, x2="100%", y1=y, y2=y, class_="grid")
    text = element("text", format_number(number), x=_MARGIN - 6, y=y, dy=4, class_="tick end")
    return element("g", line, text)


def _render_times(scale: _Scale) -> list[Html]:
    form = "%H:%M" if scale.last - scale.first <= _DAY else "%d %b"
    half = (scale.first + scale.last) // 2
    words = (
        (f"{datetime.fromtimestamp(scale.first, UTC):{form}}", _MARGIN, "start"),
        (f"{datetime.fromtimestamp(half, UTC):{form}}", "50%", "middle"),
        ("now", "100%", "end"),
    )
    return [
        element("text", text, x=x, y="100%", dy=-4, class_=f"tick {anchor}")
        for text, x, anchor in words
    ]


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
