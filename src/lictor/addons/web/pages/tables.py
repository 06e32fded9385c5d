"""Results and groups of results as tables, in pages that follow each other."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from lictor.addons.web.markup import Child, Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import render_bar
from lictor.addons.web.pages.page import PageContext
from lictor.addons.web.pages.words import (
    count_wrong,
    format_number,
    render_resource,
    render_severity,
    render_status,
    render_time,
)
from lictor.addons.web.records import STATUSES, GroupCount, ReportedResult, ResultFilter

_LONGEST_MESSAGE = 240
_COUNT_HEADS = ("fail", "error", "warn", "pass")


# --- links to what a result speaks of


def link_result(context: PageContext, row: ReportedResult, at: int = 0) -> str:
    """The page of one result. It is named by what it says of what, as its place in a report
    changes with every scan."""
    chosen = replace(_of_resource(row), policies=(row.policy,), rules=(row.rule,))
    if row.source:
        chosen = replace(chosen, sources=(row.source,))
    return context.link(addresses.RESULT, chosen, at=str(at) if at else "")


def link_resource(context: PageContext, row: ReportedResult) -> str:
    """The page of the resource that a result is about."""
    return context.link(addresses.RESOURCE, _of_resource(row))


def link_policy(context: PageContext, row: ReportedResult) -> str:
    """The page of the policy that a result is of."""
    chosen = ResultFilter(clusters=(row.cluster,), policies=(row.policy,))
    return context.link(addresses.POLICY, chosen)


def _of_resource(row: ReportedResult) -> ResultFilter:
    return ResultFilter(
        clusters=(row.cluster,), namespaces=(row.namespace,), kinds=(row.kind,), name=row.name
    )


# --- results


def render_results(context: PageContext, rows: Sequence[ReportedResult], caption: str) -> Html:
    """A line for each result."""
    heads = ("Result", "Policy and rule", "Resource", "Message", "Age")
    return element(
        "table",
        element("caption", caption, class_="unseen"),
        render_heads(heads),
        element("tbody", [_render_row(context, row) for row in rows]),
        class_="results",
    )


def render_heads(heads: Iterable[Child], numbers: Iterable[Child] = ()) -> Html:
    """The head of a table; columns of numbers stand to the right."""
    cells = [element("th", head, scope="col") for head in heads]
    cells += [element("th", head, scope="col", class_="number") for head in numbers]
    return element("thead", element("tr", cells))


def _render_row(context: PageContext, row: ReportedResult) -> Html:
    resource = render_resource(row, link_resource(context, row), cluster=context.is_plural)
    name = row.policy or "no policy"
    policy = element("a", name, href=link_result(context, row), class_="name")
    return element(
        "tr",
        _cell("Result", join(render_status(row.status), render_severity(row.severity))),
        _cell("Policy", policy, _quiet(row.rule)),
        _cell("Resource", resource),
        _cell("Message", shorten(row.message), class_="message"),
        _cell("Age", render_time(row.timestamp, context.request.now), class_="age"),
    )


def _cell(label: str, *content: Child, class_: str = "") -> Html:
    # On a narrow screen the label stands before the content, as the head is not there.
    return element("td", *content, data_label=label, class_=class_ or None)


def _quiet(text: str) -> Html | None:
    return element("span", text, class_="quiet rule") if text else None


def shorten(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Text as it fits into a line of a table."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


# --- groups of results

# What the first cell of a group shows.
NameCell = Callable[[GroupCount], Child]


# The address of a list in another order: `name`, a status, or nothing for the worst first.
LinkOrder = Callable[[str], str]


def sort_groups(groups: Sequence[GroupCount], order: str) -> list[GroupCount]:
    """The groups by name or by the number of a status; any other order leaves them as they are."""
    if order == "name":
        return sorted(groups, key=lambda group: group.key)
    if order in _COUNT_HEADS:
        return sorted(groups, key=lambda group: -group.counts.get(order, 0))
    return list(groups)


def render_groups(
    caption: str,
    head: str,
    groups: Sequence[GroupCount],
    name: NameCell,
    link: LinkOrder | None = None,
) -> Html:
    """A line for each group: its name, its shares as a bar, its numbers; `link` sorts columns."""
    orders = {"name": head, "": "Share", **{each: each.capitalize() for each in _COUNT_HEADS}}
    first, share, *numbers = (
        element("a", text, href=link(order)) if link else text for order, text in orders.items()
    )
    return element(
        "table",
        element("caption", caption, class_="unseen"),
        render_heads((first, share), numbers),
        element("tbody", [_render_group(group, name(group)) for group in groups]),
        class_="groups",
    )


def _render_group(group: GroupCount, name: Child) -> Html:
    cells = [render_count(status, group.counts.get(status, 0)) for status in _COUNT_HEADS]
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", render_bar(group.counts, label=False), class_="share"),
        cells,
    )


def render_count(status: str, number: int) -> Html:
    """A number in a column; nought is pale."""
    class_ = f"number {status if number else 'nought'}"
    label = status.capitalize()
    return element("td", format_number(number), class_=class_, data_label=label)


def keep_wrong(groups: Sequence[GroupCount], most: int) -> list[GroupCount]:
    """The first groups of those with something wrong; they come sorted."""
    return [group for group in groups if count_wrong(group.counts)][:most]


def sum_groups(groups: Iterable[GroupCount]) -> dict[str, int]:
    """All groups together, by status."""
    totals = dict.fromkeys(STATUSES, 0)
    for group in groups:
        for status, number in group.counts.items():
            totals[status] = totals.get(status, 0) + number
    return totals


# --- pages


def read_page_number(context: PageContext) -> int:
    """The page that the address asks for, from 1."""
    return int(context.request.read(addresses.PAGE) or 1)


def render_pager(total: int, number: int, size: int, link: Callable[[int], str]) -> Html | None:
    """Links to the pages before and after; nothing where all is on one."""
    last = max(-(-total // size), 1)
    if last == 1 and number == 1:
        return None
    # Whoever is beyond the end, as results have gone since, finds the way back.
    before, after = min(number - 1, last), number + 1
    return element(
        "nav",
        _render_step("Previous", before, "prev", link) if before >= 1 else None,
        element("span", f"Page {format_number(number)} of {format_number(last)}"),
        _render_step("Next", after, "next", link) if after <= last else None,
        class_="pager",
        aria_label="Pages",
    )


def _render_step(text: str, number: int, relation: str, link: Callable[[int], str]) -> Html:
    return element("a", text, href=link(number), rel=relation, class_="button")


def render_empty(text: str, *more: Child) -> Html:
    """What stands where a table would, if there is nothing to show."""
    return element("p", text, *more, class_="empty")
