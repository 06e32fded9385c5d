"""The pages beside the lists: boards, history, print-out, signing in."""

from collections.abc import Sequence
from http import HTTPStatus
from itertools import groupby

from msgspec.structs import replace

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import render_bar, render_plot
from lictor.addons.web.pages.filters import render_chosen
from lictor.addons.web.pages.layout import build_plain_page
from lictor.addons.web.pages.page import PageContext, PageRequest, Section, WebPage
from lictor.addons.web.pages.tables import (
    render_count,
    render_empty,
    render_heads,
    shorten,
    sum_groups,
)
from lictor.addons.web.pages.words import (
    count_things,
    describe_counts,
    format_moment,
    format_number,
    render_severity,
    render_share,
    render_status,
)
from lictor.addons.web.records import STATUSES, Board, ReportedResult, ResultFilter, TotalsPoint
from lictor.addons.web.sign_in import SignInProblem

_MOST_PRINTED = 5000
_BATCH = 1000
_MOST_POINTS = 30
_PRINTED = ("fail", "error")


# --- boards


def render_boards(context: PageContext) -> Section:
    """All boards with their totals, each a link to the overview of its filter."""
    cards = [_render_board(context, board) for board in context.request.boards]
    content = join(
        element("h1", "Boards"),
        element("p", "Saved filters: each is an overview of its own.", class_="lead"),
        element("ul", cards, class_="cards") if cards else render_empty("There are no boards yet."),
    )
    return Section("Boards", content)


def _render_board(context: PageContext, board: Board) -> Html:
    groups = context.state.results.count(board.filter, context.viewer, ("severity",))
    totals = sum_groups(groups)
    href = context.link(addresses.OVERVIEW, board.filter)
    return element(
        "li",
        element("h2", element("a", board.title or board.name, href=href)),
        element("p", board.description) if board.description else None,
        render_bar(totals),
        element("p", describe_counts(totals), class_="quiet"),
        class_="card",
    )


# --- history


def render_history(context: PageContext) -> Section:
    """The totals over time, as a plot and as numbers."""
    points = list(context.state.list_totals(context.viewer))
    if len(points) < 2:
        plot = render_empty("There is no history yet: it begins with the first change.")
    else:
        plot = element(
            "section",
            render_plot(points, context.request.now, name="What is wrong, over time"),
            _render_legend(),
            class_="panel",
        )
    content = join(
        element("h1", "History"),
        element("p", "How many results there were, of everything you may see.", class_="lead"),
        plot,
        element("h2", "The last changes") if points else None,
        _render_points(points) if points else None,
    )
    return Section("History", content)


def _render_legend() -> Html:
    words = (("fail", "Fail"), ("error", "Error"), ("warn", "Warn"))
    items = [element("li", element("span", "", class_=f"dot {key}"), text) for key, text in words]
    return element("ul", items, class_="legend")


def _render_points(points: Sequence[TotalsPoint]) -> Html:
    """The newest first; only those at which something changed."""
    changed = [
        point
        for index, point in enumerate(points)
        if index == 0 or dict(point.counts) != dict(points[index - 1].counts)
    ]
    rows = [
        element(
            "tr",
            element("th", format_moment(point.timestamp), scope="row"),
            [render_count(status, point.counts.get(status, 0)) for status in STATUSES],
        )
        for point in reversed(changed[-_MOST_POINTS:])
    ]
    caption = element("caption", "Totals by time", class_="unseen")
    heads = render_heads(("Time",), [status.capitalize() for status in STATUSES])
    return element("table", caption, heads, element("tbody", rows), class_="points")


# --- for printing


def render_printed(context: PageContext, chosen: ResultFilter) -> Section:
    """Only failures, by namespace and resource, with nothing around them."""
    wanted = chosen if chosen.statuses else replace(chosen, statuses=_PRINTED)
    totals = sum_groups(
        context.state.results.count(replace(wanted, statuses=()), context.viewer, ("severity",))
    )
    rows, total = _select_printed(context, wanted)
    left = total - len(rows)
    content = join(
        element("h1", "Policy report"),
        element(
            "p",
            f"{format_moment(context.request.now)} · {render_share(totals)} of results pass · "
            f"{describe_counts(totals)}",
            class_="lead",
        ),
        _render_print_bar(context, chosen),
        render_chosen(context, chosen, addresses.PRINT),
        _render_printed_groups(context, rows)
        if rows
        else render_empty("There is nothing to report."),
        element("p", f"{count_things(left, 'more result')} left out: choose less at a time.")
        if left > 0
        else None,
    )
    return Section("Policy report", content, is_bare=True)


def _select_printed(context: PageContext, wanted: ResultFilter) -> tuple[list[ReportedResult], int]:
    rows: list[ReportedResult] = []
    while True:
        page = context.state.results.select(wanted, context.viewer, offset=len(rows), limit=_BATCH)
        rows += page.rows
        if len(page.rows) < _BATCH or len(rows) >= _MOST_PRINTED:
            return rows, page.total


def _render_print_bar(context: PageContext, chosen: ResultFilter) -> Html:
    return element(
        "p",
        element("button", "Print", type="button", id="print", class_="primary", hidden=True),
        element("a", "Back to the results", href=context.link(addresses.RESULTS, chosen)),
        class_="screen-only actions",
    )


def _place_of(row: ReportedResult) -> tuple[str, str]:
    return row.cluster, row.namespace


def _render_printed_groups(context: PageContext, rows: Sequence[ReportedResult]) -> list[Html]:
    ordered = sorted(rows, key=lambda row: (*_place_of(row), row.kind, row.name, row.policy))
    return [
        _render_printed_group(context, place, list(some))
        for place, some in groupby(ordered, key=_place_of)
    ]


def _render_printed_group(
    context: PageContext, place: tuple[str, str], rows: Sequence[ReportedResult]
) -> Html:
    cluster, namespace = place
    name = namespace or "Cluster-wide"
    title = f"{cluster}: {name}" if context.is_plural else name
    body = [
        element(
            "tr",
            element("td", render_status(row.status), render_severity(row.severity)),
            element("td", f"{row.kind} ", element("strong", row.name)),
            element("td", row.policy, element("span", row.rule, class_="quiet rule")),
            element("td", shorten(row.message, 600)),
        )
        for row in rows
    ]
    caption = element("caption", f"{count_things(len(rows), 'result')} in {name}", class_="unseen")
    heads = render_heads(("Result", "Resource", "Policy and rule", "Message"))
    table = element("table", caption, heads, element("tbody", body), class_="printed")
    head = element("h2", title, element("span", f" {format_number(len(rows))}", class_="quiet"))
    return element("section", head, table)


# --- pages for somebody who is not known yet: signing in, and what went wrong


def render_message(request: PageRequest, status: HTTPStatus, message: str) -> WebPage:
    """One sentence, and the way back."""
    content = join(
        element("h1", f"{status.value} {status.phrase}"),
        element("p", message),
        element("p", element("a", "To the overview", href=f"{request.base}/")),
    )
    return build_plain_page(request, Section(status.phrase, content, status))


def render_sign_in(request: PageRequest, problem: SignInProblem, back: str) -> WebPage:
    """The form; `back` is where it leads to."""
    message = (
        element("p", problem.message, role="alert", class_="problem") if problem.message else None
    )
    content = join(element("h1", "Sign in"), message, _render_form(request, back), _render_advice())
    return build_plain_page(request, Section("Sign in", content, problem.status))


def _render_form(request: PageRequest, back: str) -> Html:
    return element(
        "form",
        element("label", "Token", for_="token"),
        element(
            "input",
            # So that it is hidden; no browser shall keep it.
            type="password",
            id="token",
            name="token",
            autocomplete="off",
            spellcheck="false",
            required=True,
            autofocus=True,
        ),
        element("input", type="hidden", name="back", value=back),
        element("button", "Sign in", type="submit"),
        method="post",
        action=f"{request.base}{addresses.SIGN_IN}",
        class_="sign-in",
    )


def _render_advice() -> Html:
    return join(
        element(
            "p",
            "Use a token of the cluster, such as ",
            element("code", "kubectl create token NAME"),
            " prints for a service account. You see the reports that its user may list.",
        ),
        element(
            "p", "If you started this page yourself, open the address that lictor has printed."
        ),
    )
