"""The first page: totals, changes, and the namespaces and policies with most failures."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import build_plot
from lictor.addons.web.pages.filters import describe_filter
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.tables import keep_wrong, sum_groups
from lictor.addons.web.pages.words import WRONG, describe_distance, format_number
from lictor.addons.web.records import (
    STATUSES,
    GroupCount,
    ReportedResult,
    ResultFilter,
    TotalsPoint,
)

_MOST = 8
_NEWEST = 6
_DAY = 86400
_TILE_NOTES = {
    "fail": "violate a rule",
    "error": "could not be evaluated",
    "warn": "violate a rule that warns",
    "pass": "meet the rule",
    "skip": "were skipped",
}
_WORST = {
    "namespace": ("Namespaces with most failures", addresses.NAMESPACES),
    "policy": ("Policies with most failures", addresses.POLICIES),
}


class Tile(msgspec.Struct, frozen=True):
    """The number of results of one status, and its change."""

    status: str
    number: int
    note: str
    href: str
    change: str = ""
    change_class: str = ""


def render_overview(context: PageContext, chosen: ResultFilter) -> Section:
    """The whole page, of all results or of those of a filter or a board."""
    is_whole = chosen == ResultFilter()
    severities = context.state.results.count(chosen, context.viewer, ("severity",))
    totals = sum_groups(severities)
    # Totals are recorded for all results, not for each filter.
    points = context.state.list_totals(context.viewer) if is_whole else ()
    now = context.request.now
    recent = replace(chosen, statuses=("fail", "error"), within=chosen.within or _DAY)
    values: Mapping[str, object] = {
        **describe_filter(chosen, addresses.OVERVIEW),
        "board": next((each for each in context.request.boards if each.filter == chosen), None),
        "totals": totals,
        "tiles": _list_tiles(context, chosen, totals, points),
        "plot": build_plot(points, now) if len(points) > 1 else None,
        "worst": [_count_worst(context, chosen, field) for field in _WORST],
        "recent": recent,
        "newest": context.state.results.select(recent, context.viewer, limit=_NEWEST),
        "gone": _list_gone(context) if is_whole else [],
        "breakdowns": _count_breakdowns(context, chosen, severities),
    }
    return Section("Overview", "overview.html", values)


def _list_tiles(
    context: PageContext,
    chosen: ResultFilter,
    totals: Mapping[str, int],
    points: Sequence[TotalsPoint],
) -> list[Tile]:
    before = _find_before(points, context.request.now)
    return [
        Tile(
            status,
            totals.get(status, 0),
            _TILE_NOTES[status],
            context.link(addresses.RESULTS, replace(chosen, statuses=(status,))),
            *_describe_change(status, totals, before, context.request.now),
        )
        for status in STATUSES
    ]


def _find_before(points: Sequence[TotalsPoint], now: int) -> TotalsPoint | None:
    """The totals of a day ago, or the oldest there are."""
    older = [point for point in points if point.timestamp <= now - _DAY]
    return older[-1] if older else points[0] if points else None


def _describe_change(
    status: str, totals: Mapping[str, int], before: TotalsPoint | None, now: int
) -> tuple[str, str]:
    """The change as text, and whether it is an improvement, as a class of the style."""
    difference = totals.get(status, 0) - before.counts.get(status, 0) if before else 0
    if before is None or not difference:
        return "", ""
    is_worse = difference > 0 and status in WRONG
    is_better = (difference < 0 and status in WRONG) or (difference > 0 and status == "pass")
    since = describe_distance(before.timestamp, now).removesuffix(" ago")
    since = "the last moment" if since == "just now" else since
    text = f"{'+' if difference > 0 else '−'}{format_number(abs(difference))} in {since}"  # noqa: RUF001
    return text, "worse" if is_worse else "better" if is_better else ""


def _count_worst(context: PageContext, chosen: ResultFilter, field: str) -> Mapping[str, object]:
    by = ("cluster", field) if context.is_plural else (field,)
    groups = context.state.results.count(chosen, context.viewer, by)
    title, path = _WORST[field]
    return {
        "title": title,
        "field": field,
        "by": by,
        "total": len(groups),
        "groups": keep_wrong(groups, _MOST),
        "href": context.link(path, chosen),
    }


def _list_gone(context: PageContext) -> list[tuple[ReportedResult, int]]:
    """Failures, errors and warnings that disappeared, with the time; the newest first."""
    still: set[tuple[str, ...]] = set()
    gone: list[tuple[ReportedResult, int]] = []
    for change in context.state.results.list_changes(context.viewer):
        still |= {_identify(row) for row in change.added if row.status in WRONG}
        gone += [
            (row, change.timestamp)
            for row in change.removed
            if row.status in WRONG and _identify(row) not in still
        ]
        if len(gone) >= _NEWEST:
            break
    return gone[:_NEWEST]


def _identify(row: ReportedResult) -> tuple[str, ...]:
    """What stays the same when a result is reported again."""
    return row.cluster, row.policy, row.rule, row.namespace, row.kind, row.name


def _count_breakdowns(
    context: PageContext, chosen: ResultFilter, severities: Sequence[GroupCount]
) -> list[tuple[str, Sequence[GroupCount]]]:
    """The groups of each field; a field with one group adds nothing to the totals."""
    fields = ("category", "family", "source")
    count = context.state.results.count
    counted = [(field, count(chosen, context.viewer, (field,))) for field in fields]
    parts = [("severity", severities), *counted]
    return [(field, groups[:_MOST]) for field, groups in parts if len(groups) > 1]
