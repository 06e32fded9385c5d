"""One policy, one namespace, one resource: what reports say of it."""

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.details import find_policy_of, render_gone
from lictor.addons.web.pages.lists import render_totals_line
from lictor.addons.web.pages.overview import link_group
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.policy_text import read_title, render_documentation, render_text
from lictor.addons.web.pages.tables import (
    read_page_number,
    render_empty,
    render_groups,
    render_pager,
    render_results,
)
from lictor.addons.web.pages.words import count_things
from lictor.addons.web.records import (
    GroupCount,
    ReportedResult,
    ResultFilter,
    ResultPage,
    ShownPolicy,
)

_ROWS = 25
_MOST_GROUPS = 10


def render_policy(context: PageContext, chosen: ResultFilter) -> Section:
    """One policy: what it asks, where it is broken, its text."""
    page = _select(context, chosen)
    if not page.total or not chosen.policies:
        return _render_silent(context, chosen)
    row = context.state.results.select(chosen, context.viewer, limit=1).rows[0]
    policy = find_policy_of(context, row)
    content = join(
        _render_trail(context, "Policies", addresses.POLICIES),
        element("h1", read_title(policy, row.policy)),
        _render_subtitle(context, row.policy, row),
        render_documentation(policy) if policy is not None else None,
        render_totals_line(_count(context, chosen, "rule")),
        _render_columns(context, chosen, rule="Rules", namespace="Namespaces"),
        _render_result_part(context, chosen, page, addresses.POLICY),
        _render_policy_text(policy) if policy is not None else None,
    )
    return Section(row.policy, content)


def _render_policy_text(policy: ShownPolicy) -> Html:
    return element("section", element("h2", "Its text"), render_text(policy.text), class_="panel")


def _render_silent(context: PageContext, chosen: ResultFilter) -> Section:
    """A policy without results."""
    name = chosen.policies[0] if chosen.policies else ""
    places = chosen.clusters or context.clusters
    found = (context.state.find_policy(each, name, context.viewer) for each in places)
    policy = next(filter(None, found), None)
    if policy is None:
        return render_gone("There are no results of such a policy", context)
    content = join(
        _render_trail(context, "Policies", addresses.POLICIES),
        element("h1", read_title(policy, name)),
        element("p", element("code", name), class_="subject"),
        render_documentation(policy),
        render_empty("Reports say nothing here."),
        _render_policy_text(policy),
    )
    return Section(name, content)


def render_namespace(context: PageContext, chosen: ResultFilter) -> Section:
    """One namespace, or everything that is in none."""
    if not chosen.namespaces:
        return render_gone("There is no such namespace", context)
    page = _select(context, chosen)
    name = chosen.namespaces[0] or "Cluster-wide"
    content = join(
        _render_trail(context, "Namespaces", addresses.NAMESPACES),
        element("h1", name),
        _render_subtitle(context, "", page.rows[0]) if page.rows else None,
        render_totals_line(_count(context, chosen, "policy")),
        _render_columns(context, chosen, policy="Policies", kind="Kinds"),
        _render_result_part(context, chosen, page, addresses.NAMESPACE),
    )
    return Section(name, content)


def render_resource_page(context: PageContext, chosen: ResultFilter) -> Section:
    """One resource: every result about it."""
    page = _select(context, chosen)
    if not page.total or not (chosen.kinds or chosen.name):
        return render_gone("There are no results about such a resource", context)
    row = context.state.results.select(chosen, context.viewer, limit=1).rows[0]
    place = ResultFilter(clusters=(row.cluster,), namespaces=(row.namespace,))
    namespace = element(
        "a", row.namespace or "cluster-wide", href=context.link(addresses.NAMESPACE, place)
    )
    content = join(
        _render_trail(context, "Resources", addresses.RESOURCES),
        element("h1", f"{row.kind} {row.name}"),
        element(
            "p",
            "in ",
            namespace,
            element("span", row.cluster, class_="cluster") if context.is_plural else None,
            element("span", f" {row.api_version}", class_="quiet"),
            class_="subject",
        ),
        render_totals_line(_count(context, chosen, "policy")),
        _render_result_part(context, chosen, page, addresses.RESOURCE),
    )
    return Section(f"{row.kind} {row.name}", content)


def _render_trail(context: PageContext, name: str, path: str) -> Html:
    items = element("li", element("a", name, href=context.link(path)))
    return element("nav", element("ol", items), class_="trail", aria_label="Where this is")


def _render_subtitle(context: PageContext, name: str, row: ReportedResult) -> Html | None:
    where = element("span", row.cluster, class_="cluster") if context.is_plural else None
    if not name and where is None:
        return None
    return element("p", element("code", name) if name else None, where, class_="subject")


def _count(context: PageContext, chosen: ResultFilter, field: str) -> list[GroupCount]:
    return context.state.results.count(chosen, context.viewer, (field,))


def _select(context: PageContext, chosen: ResultFilter) -> ResultPage:
    offset = (read_page_number(context) - 1) * _ROWS
    return context.state.results.select(chosen, context.viewer, offset=offset, limit=_ROWS)


def _render_columns(context: PageContext, chosen: ResultFilter, **titles: str) -> Html:
    """Totals side by side, each by a field."""
    parts = [_render_part(context, chosen, field, title) for field, title in titles.items()]
    return element("div", parts, class_="columns")


def _render_part(context: PageContext, chosen: ResultFilter, field: str, title: str) -> Html:
    groups = _count(context, chosen, field)
    table = render_groups(
        f"Results by {field}",
        field.capitalize(),
        groups[:_MOST_GROUPS],
        lambda group: link_group(context, chosen, (field,), group, to_results=True),
    )
    left = len(groups) - _MOST_GROUPS
    more = element("p", f"and {left:,} more", class_="quiet") if left > 0 else None
    return element("section", element("h2", title), table, more, class_="panel")


def _render_result_part(
    context: PageContext, chosen: ResultFilter, page: ResultPage, path: str
) -> Html:
    number = read_page_number(context)
    head = element(
        "div",
        element("h2", count_things(page.total, "result")),
        element("a", "Filter them", href=context.link(addresses.RESULTS, chosen)),
        class_="heading",
    )
    table = (
        render_results(context, page.rows, f"Results, page {number}")
        if page.rows
        else render_empty("Reports say nothing here.")
    )
    pager = render_pager(
        page.total, number, _ROWS, lambda other: context.link(path, chosen, page=str(other))
    )
    return element("section", head, table, pager, class_="panel")
