"""The first page: totals, what changed, the worst namespaces and policies, all with links on."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from lictor.addons.web.markup import Child, Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import render_bar, render_plot
from lictor.addons.web.pages.filters import render_chosen
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.tables import (
    keep_wrong,
    link_resource,
    render_empty,
    render_groups,
    render_results,
    sum_groups,
)
from lictor.addons.web.pages.words import (
    WRONG,
    count_things,
    describe_distance,
    format_number,
    render_resource,
    render_share,
    render_time,
)
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
    "fail": "break a rule",
    "error": "could not be evaluated",
    "warn": "violate a rule that warns",
    "pass": "meet their rules",
    "skip": "were skipped",
}


def render_overview(context: PageContext, chosen: ResultFilter) -> Section:
    """The whole page, of everything or of what a filter or a board chooses."""
    severities = context.state.results.count(chosen, context.viewer, ("severity",))
    totals = sum_groups(severities)
    # Totals are kept of everything, not of each filter.
    points = context.state.list_totals(context.viewer) if chosen == ResultFilter() else ()
    content = join(
        _render_title(context, chosen),
        render_chosen(context, chosen, addresses.OVERVIEW),
        _render_tiles(context, chosen, totals, points),
        _render_nothing(context) if not any(totals.values()) else None,
        _render_history(context, points),
        element(
            "div",
            _render_worst(context, chosen, "namespace"),
            _render_worst(context, chosen, "policy"),
            class_="columns",
        ),
        _render_changes(context, chosen),
        _render_breakdowns(context, chosen, severities),
    )
    return Section("Overview", content)


def _render_title(context: PageContext, chosen: ResultFilter) -> Html:
    board = next((each for each in context.request.boards if each.filter == chosen), None)
    if board is None:
        return element("h1", "Overview")
    described = element("p", board.description, class_="lead") if board.description else None
    return join(element("h1", board.title or board.name), described)


def _render_nothing(context: PageContext) -> Html:
    if not context.state.is_ready():
        return render_empty("Reports are still being read. This page fills as they come.")
    return render_empty(
        "There are no results here: no reports have been written yet, the filter chooses none, or "
        "you may not read the reports of any namespace."
    )


def _render_tiles(
    context: PageContext,
    chosen: ResultFilter,
    totals: Mapping[str, int],
    points: Sequence[TotalsPoint],
) -> Html:
    """A number for each status, with what changed; then all of them as one bar."""
    before = _find_before(points, context.request.now)
    tiles = [
        element("li", _render_tile(context, chosen, status, totals, before)) for status in STATUSES
    ]
    share = element(
        "p",
        element("strong", render_share(totals)),
        " of results pass",
        class_="share-text",
    )
    return element(
        "section",
        element("ul", tiles, class_="tiles"),
        render_bar(totals),
        share,
        aria_label="Totals",
        class_="totals",
    )


def _render_tile(
    context: PageContext,
    chosen: ResultFilter,
    status: str,
    totals: Mapping[str, int],
    before: TotalsPoint | None,
) -> Html:
    href = context.link(addresses.RESULTS, replace(chosen, statuses=(status,)))
    return element(
        "a",
        element("span", status.capitalize(), class_="tile-name"),
        element("strong", format_number(totals.get(status, 0))),
        element("span", _TILE_NOTES[status], class_="quiet"),
        _render_change(status, totals, before, context.request.now),
        href=href,
        class_=f"tile {status}",
    )


def _find_before(points: Sequence[TotalsPoint], now: int) -> TotalsPoint | None:
    """The totals of a day ago, or the oldest there are."""
    older = [point for point in points if point.timestamp <= now - _DAY]
    return older[-1] if older else points[0] if points else None


def _render_change(
    status: str, totals: Mapping[str, int], before: TotalsPoint | None, now: int
) -> Html | None:
    if before is None:
        return None
    difference = totals.get(status, 0) - before.counts.get(status, 0)
    if not difference:
        return None
    is_worse = difference > 0 and status in WRONG
    is_better = (difference < 0 and status in WRONG) or (difference > 0 and status == "pass")
    mood = "worse" if is_worse else "better" if is_better else ""
    since = describe_distance(before.timestamp, now).removesuffix(" ago")
    since = "the last moment" if since == "just now" else since
    text = f"{'+' if difference > 0 else '−'}{format_number(abs(difference))} in {since}"  # noqa: RUF001
    return element("span", text, class_=f"change {mood}".strip())


def _render_history(context: PageContext, points: Sequence[TotalsPoint]) -> Html | None:
    if len(points) < 2:
        return None
    return element(
        "section",
        _render_heading("History", "All of it", context.link(addresses.HISTORY)),
        render_plot(points, context.request.now, name="What is wrong, over time"),
        class_="panel",
    )


def _render_heading(text: str, more: str, href: str) -> Html:
    return element("div", element("h2", text), element("a", more, href=href), class_="heading")


def _render_worst(context: PageContext, chosen: ResultFilter, field: str) -> Html:
    by = ("cluster", field) if context.is_plural else (field,)
    groups = context.state.results.count(chosen, context.viewer, by)
    title, path = _WORST[field]
    worst = keep_wrong(groups, _MOST)
    href = context.link(path, chosen)
    if worst:
        table: Child = render_groups(
            title, field.capitalize(), worst, lambda group: link_group(context, chosen, by, group)
        )
    else:
        is_ready = context.state.is_ready()
        table = render_empty("Nothing is wrong." if is_ready else "Reports are still being read.")
    more = f"All {format_number(len(groups))}" if groups else "All"
    return element("section", _render_heading(title, more, href), table, class_="panel")


_WORST = {
    "namespace": ("Worst namespaces", addresses.NAMESPACES),
    "policy": ("Worst policies", addresses.POLICIES),
}
_PARTS = {
    "cluster": "clusters", "namespace": "namespaces", "policy": "policies", "kind": "kinds",
    "severity": "severities", "category": "categories", "source": "sources", "rule": "rules",
}  # fmt: skip
_PAGES = {"namespace": addresses.NAMESPACE, "policy": addresses.POLICY}
_EMPTY_NAMES = {
    "namespace": "cluster-wide", "policy": "no policy", "severity": "no severity",
    "category": "no category", "source": "no source", "family": "other tools",
}  # fmt: skip


def link_group(
    context: PageContext,
    chosen: ResultFilter,
    by: Sequence[str],
    group: GroupCount,
    *,
    to_results: bool = False,
) -> Html:
    """The name of a group, as a link to its page or to its results."""
    named = {_PARTS[field]: (value,) for field, value in zip(by, group.key, strict=True)}
    field, value = by[-1], group.key[-1]
    if field in _PAGES and not to_results:
        # The page of a policy or a namespace tells all about it, whatever was chosen before.
        whole = replace(ResultFilter(clusters=chosen.clusters), **named)
        href = context.link(_PAGES[field], whole)
    else:
        href = context.link(addresses.RESULTS, replace(chosen, **named))
    where = element("span", group.key[0], class_="cluster") if len(by) > 1 else None
    text = value or _EMPTY_NAMES.get(field, "none")
    return join(where, element("a", text, href=href, class_="name"))


def _render_changes(context: PageContext, chosen: ResultFilter) -> Html | None:
    """What is newly wrong; and, where nothing is chosen, what is wrong no more."""
    recent = replace(chosen, statuses=("fail", "error"), within=chosen.within or _DAY)
    page = context.state.results.select(recent, context.viewer, limit=_NEWEST)
    gone = [] if chosen != ResultFilter() else _list_gone(context)
    if not page.rows and not gone:
        return None
    href = context.link(addresses.RESULTS, recent)
    message = f"{count_things(page.total, 'result')} of the last day"
    newest = [
        _render_heading("New in the last day", f"All {format_number(page.total)}", href),
        render_results(context, page.rows, message),
    ]
    return element(
        "section",
        newest if page.rows else None,
        [element("h2", "Not wrong any more"), _render_gone(context, gone)] if gone else None,
        class_="panel",
    )


def _list_gone(context: PageContext) -> list[tuple[ReportedResult, int]]:
    """Results that were wrong and are not there any more, the newest first; with the time."""
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


def _render_gone(context: PageContext, gone: Sequence[tuple[ReportedResult, int]]) -> Html:
    items = [
        element(
            "li",
            render_resource(row, link_resource(context, row), cluster=context.is_plural),
            element("span", f" {row.policy} ", class_="quiet"),
            render_time(moment, context.request.now),
        )
        for row, moment in gone
    ]
    return element("ul", items, class_="gone")


def _render_breakdowns(
    context: PageContext, chosen: ResultFilter, severities: Sequence[GroupCount]
) -> Html:
    def count(field: str) -> Sequence[GroupCount]:
        return context.state.results.count(chosen, context.viewer, (field,))

    parts = [
        ("By severity", "severity", severities),
        ("By category", "category", count("category")),
        ("By family", "family", count("family")),
        ("By source", "source", count("source")),
    ]
    shown = [
        element(
            "section",
            element("h2", title),
            _render_breakdown(context, chosen, field, groups),
            class_="panel",
        )
        for title, field, groups in parts
        # One group alone tells nothing that the totals do not.
        if len(groups) > 1
    ]
    return element("div", shown, class_="columns")


def _render_breakdown(
    context: PageContext, chosen: ResultFilter, field: str, groups: Sequence[GroupCount]
) -> Html:
    def name(group: GroupCount) -> Child:
        if field == "family":
            return group.key[0].replace("_", " ") or _EMPTY_NAMES["family"]
        return link_group(context, chosen, (field,), group)

    return render_groups(f"Results by {field}", field.capitalize(), groups[:_MOST], name)
