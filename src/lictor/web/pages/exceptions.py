"""Exceptions: what they hide, from which policies, and when they end."""

from lictor.web.markup import Child, Html, element, join
from lictor.web.pages import addresses
from lictor.web.pages.page import PageContext, Section
from lictor.web.pages.policy_text import render_text
from lictor.web.pages.tables import render_empty, render_heads
from lictor.web.pages.words import count_things, format_number, render_time
from lictor.web.records import ResultFilter, ShownException

_SOON = 7 * 86400
_MOST_ROWS = 500


def render_exception_list(context: PageContext) -> Section:
    """All exceptions, those that hide most first."""
    found = [
        each
        for each in context.state.list_exceptions(context.viewer)
        if each.cluster in context.clusters
    ]
    ordered = sorted(
        found, key=lambda each: (-each.hidden, each.cluster, each.namespace, each.name)
    )
    hidden = sum(each.hidden for each in ordered)
    told = f"{count_things(len(ordered), 'exception')}, {count_things(hidden, 'result')} hidden"
    content = join(
        element("h1", "Exceptions"),
        element("p", told, class_="total"),
        element("p", f"The first {_MOST_ROWS} are shown.") if len(ordered) > _MOST_ROWS else None,
        _render_table(context, ordered[:_MOST_ROWS])
        if ordered
        else render_empty("There are no exceptions."),
    )
    return Section("Exceptions", content)


def _render_table(context: PageContext, found: list[ShownException]) -> Html:
    return element(
        "table",
        element("caption", "Exceptions", class_="unseen"),
        render_heads(("Exception", "From", "Ends"), ("Hides",)),
        element("tbody", [_render_row(context, each) for each in found]),
        class_="exceptions",
    )


def _render_row(context: PageContext, shown: ShownException) -> Html:
    place = element("span", f"{shown.namespace}/", class_="quiet") if shown.namespace else None
    where = element("span", shown.cluster, class_="cluster") if context.is_plural else None
    text = element("details", element("summary", "Its text"), render_text(shown.text))
    return element(
        "tr",
        element("th", where, place, shown.name, text, scope="row"),
        element("td", _render_policies(context, shown), data_label="From"),
        element("td", _render_end(shown, context.request.now), data_label="Ends"),
        element("td", _render_hidden(context, shown), class_="number", data_label="Hides"),
    )


def _render_policies(context: PageContext, shown: ShownException) -> Html:
    items = [
        element(
            "li",
            element("a", policy, href=context.link(addresses.POLICY, _choose(shown, policy))),
            element("span", f" {', '.join(rules)}", class_="quiet") if rules else None,
        )
        for policy, rules in shown.policies
    ]
    return element("ul", items, class_="bare")


def _choose(shown: ShownException, policy: str) -> ResultFilter:
    return ResultFilter(clusters=(shown.cluster,), policies=(policy,))


def _render_end(shown: ShownException, now: int) -> Child:
    if not shown.ends_at:
        return element("span", "never", class_="change worse")
    class_ = "ended" if shown.ends_at <= now else "soon" if shown.ends_at < now + _SOON else ""
    word = "ended " if shown.ends_at <= now else ""
    return element("span", word, render_time(shown.ends_at, now), class_=class_ or None)


def _render_hidden(context: PageContext, shown: ShownException) -> Child:
    if not shown.hidden:
        return element("span", "0", class_="nought", title="It hides nothing now")
    # Policies may be named by patterns, for which there is no filter.
    names = tuple(policy for policy, _ in shown.policies)
    chosen = ResultFilter(clusters=(shown.cluster,), policies=names, statuses=("skip",))
    return element("a", format_number(shown.hidden), href=context.link(addresses.RESULTS, chosen))
