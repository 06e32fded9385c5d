"""The pages beside the lists: boards, history, print-out, signing in."""

from http import HTTPStatus
from itertools import groupby

from msgspec.structs import replace

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import build_plot
from lictor.addons.web.pages.filters import describe_filter
from lictor.addons.web.pages.layout import build_plain_page
from lictor.addons.web.pages.page import PageContext, PageRequest, Section, WebPage
from lictor.addons.web.pages.tables import sum_groups
from lictor.addons.web.records import ReportedResult, ResultFilter
from lictor.addons.web.sign_in import SignInProblem

_MOST_PRINTED = 5000
_MOST_POINTS = 30
_PRINTED = ("fail", "error")


def render_boards(context: PageContext) -> Section:
    """All boards with their totals, each a link to the overview of its filter."""
    count = context.state.results.count
    boards = [
        (board, sum_groups(count(board.filter, context.viewer, ("severity",))))
        for board in context.request.boards
    ]
    return Section("Boards", "boards.html", {"boards": boards})


def render_history(context: PageContext) -> Section:
    """The totals over time, as a plot and as numbers."""
    points = list(context.state.list_totals(context.viewer))
    changed = [
        point
        for index, point in enumerate(points)
        if index == 0 or dict(point.counts) != dict(points[index - 1].counts)
    ]
    plot = build_plot(points, context.request.now) if len(points) > 1 else None
    values = {"plot": plot, "points": changed[: -_MOST_POINTS - 1 : -1]}
    return Section("History", "history.html", values)


def render_printed(context: PageContext, chosen: ResultFilter) -> Section:
    """Failures and errors by namespace and resource, for printing."""
    wanted = chosen if chosen.statuses else replace(chosen, statuses=_PRINTED)
    counted = context.state.results.count(
        replace(wanted, statuses=()), context.viewer, ("severity",)
    )
    rows, total = context.state.results.select_many(wanted, context.viewer, _MOST_PRINTED)
    ordered = sorted(rows, key=lambda row: (*_place_of(row), row.kind, row.name, row.policy))
    values = {
        **describe_filter(chosen, addresses.PRINT),
        "totals": sum_groups(counted),
        "groups": [(place, list(some)) for place, some in groupby(ordered, key=_place_of)],
        "left": total - len(rows),
    }
    return Section("Policy report", "print.html", values, is_bare=True)


def _place_of(row: ReportedResult) -> tuple[str, str]:
    return row.cluster, row.namespace


def render_message(request: PageRequest, status: HTTPStatus, message: str) -> WebPage:
    """One sentence, and a link to the overview."""
    section = Section(status.phrase, "message.html", {"message": message}, status)
    return build_plain_page(request, section)


def render_sign_in(request: PageRequest, problem: SignInProblem, back: str) -> WebPage:
    """The form to sign in; `back` is the page that follows."""
    values = {"message": problem.message, "back": back}
    return build_plain_page(request, Section("Sign in", "sign-in.html", values, problem.status))
