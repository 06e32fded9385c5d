"""The pages of one policy, one namespace and one resource."""

from collections.abc import Mapping

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.details import find_policy_of, render_gone
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.policy_text import read_title
from lictor.addons.web.pages.tables import Pager, read_page_number
from lictor.addons.web.records import GroupCount, ReportedResult, ResultFilter

_ROWS = 25
_MOST_GROUPS = 10


def render_policy(context: PageContext, chosen: ResultFilter) -> Section:
    """One policy: its documentation, its results, its text."""
    values, row = _select(context, chosen, addresses.POLICY)
    if row is None or not chosen.policies:
        return _render_silent(context, chosen)
    policy = find_policy_of(context, row)
    columns = _count_columns(context, chosen, rule="Rules", namespace="Namespaces")
    shown = {
        "name": row.policy,
        "policy": policy,
        "title": read_title(policy, row.policy),
        "columns": columns,
        "totals": _count(context, chosen, "rule"),
    }
    return Section(row.policy, "policy.html", {**values, **shown})


def _render_silent(context: PageContext, chosen: ResultFilter) -> Section:
    """A policy without results."""
    name = chosen.policies[0] if chosen.policies else ""
    places = chosen.clusters or context.clusters
    found = (context.state.find_policy(each, name, context.viewer) for each in places)
    policy = next(filter(None, found), None)
    if policy is None:
        return render_gone("Policy not found")
    shown = {"name": name, "policy": policy, "title": read_title(policy, name)}
    return Section(name, "policy.html", {**shown, "row": None})


def render_namespace(context: PageContext, chosen: ResultFilter) -> Section:
    """One namespace, or the resources without a namespace."""
    if not chosen.namespaces:
        return render_gone("Namespace not found")
    values, _ = _select(context, chosen, addresses.NAMESPACE)
    columns = _count_columns(context, chosen, policy="Policies", kind="Kinds")
    totals = _count(context, chosen, "policy")
    name = chosen.namespaces[0] or "Cluster-wide"
    return Section(name, "namespace.html", {**values, "columns": columns, "totals": totals})


def render_resource_page(context: PageContext, chosen: ResultFilter) -> Section:
    """One resource: every result about it."""
    values, row = _select(context, chosen, addresses.RESOURCE)
    if row is None or not (chosen.kinds or chosen.name):
        return render_gone("Resource not found")
    place = ResultFilter(clusters=(row.cluster,), namespaces=(row.namespace,))
    totals = _count(context, chosen, "policy")
    shown = {**values, "namespace_filter": place, "totals": totals}
    return Section(f"{row.kind} {row.name}", "resource.html", shown)


def _select(
    context: PageContext, chosen: ResultFilter, path: str
) -> tuple[Mapping[str, object], ReportedResult | None]:
    """One page of results, and the first of all of them."""
    number = read_page_number(context)
    results, viewer = context.state.results, context.viewer
    page = results.select(chosen, viewer, offset=(number - 1) * _ROWS, limit=_ROWS)
    first = next(iter(results.select(chosen, viewer, limit=1).rows), None)
    pager = Pager(page.total, number, _ROWS, path, chosen)
    return {"chosen": chosen, "page": page, "pager": pager, "row": first}, first


def _count(context: PageContext, chosen: ResultFilter, field: str) -> list[GroupCount]:
    return context.state.results.count(chosen, context.viewer, (field,))


def _count_columns(
    context: PageContext, chosen: ResultFilter, **titles: str
) -> list[tuple[str, str, list[GroupCount], int]]:
    """Field, title, the first groups and the number of the others, of each column."""
    counted = [(field, title, _count(context, chosen, field)) for field, title in titles.items()]
    return [
        (field, title, groups[:_MOST_GROUPS], len(groups) - _MOST_GROUPS)
        for field, title, groups in counted
    ]
