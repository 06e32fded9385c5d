"""The lists: results by filter, policies, namespaces, resources, clusters side by side."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.filters import build_filter_form, describe_filter
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.tables import Pager, read_page_number, sort_groups
from lictor.addons.web.pages.words import count_wrong
from lictor.addons.web.records import SEVERITIES, GroupCount, ResultFilter

_ROWS = 50
_COMPACT = 300
# The head of the first column, and the address.
_GROUP_LISTS = {
    "Resources": ("Resource", addresses.RESOURCES),
    "Policies": ("Policy", addresses.POLICIES),
}


def render_result_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Results, failures first, with the form that filters them."""
    number = read_page_number(context)
    page = context.state.results.select(
        chosen, context.viewer, offset=(number - 1) * _ROWS, limit=_ROWS
    )
    path = addresses.RESULTS
    values = {
        **describe_filter(chosen, path),
        "form": build_filter_form(context, chosen),
        "severities": SEVERITIES,
        "page": page,
        "pager": Pager(page.total, number, _ROWS, path, chosen),
    }
    return Section("Results", "results.html", values)


# --- resources and policies


def render_resource_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Every resource that has results, failures first or in the order of a column."""
    by = ("cluster", "namespace", "kind", "name")
    groups = context.state.results.count(chosen, context.viewer, by)
    return _render_groups(context, chosen, "Resources", groups)


def render_policy_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Every policy, failures first or in the order of a column; those without results last."""
    by = ("cluster", "policy") if context.is_plural else ("policy",)
    groups = list(context.state.results.count(chosen, context.viewer, by))
    groups += list(_list_silent(context, chosen, by, groups))
    section = _render_groups(context, chosen, "Policies", groups)
    states = {
        group.key: context.state.find_policy_state(
            group.key[0] if context.is_plural else "".join(context.clusters),
            group.key[-1],
            context.viewer,
        )
        for group in groups
    }
    return Section(section.title, section.template, {**section.values, "by": by, "states": states})


def _list_silent(
    context: PageContext, chosen: ResultFilter, by: tuple[str, ...], groups: Sequence[GroupCount]
) -> Iterator[GroupCount]:
    """Policies without results, unless a property of results is filtered."""
    if chosen != ResultFilter(clusters=chosen.clusters, text=chosen.text):
        return
    known = {group.key for group in groups}
    for cluster, name in context.state.list_policies(context.viewer):
        key = (cluster, name)[-len(by) :]
        is_chosen = not chosen.clusters or cluster in chosen.clusters
        if is_chosen and key not in known and chosen.text.lower() in name.lower():
            yield GroupCount(key, {})


def _render_groups(
    context: PageContext, chosen: ResultFilter, title: str, found: Sequence[GroupCount]
) -> Section:
    """Groups of results with a search, failures first or in the order of a column."""
    head, path = _GROUP_LISTS[title]
    order = context.request.read("sort")
    groups = sort_groups(found, order)
    number = read_page_number(context)
    values = {
        **describe_filter(chosen, path),
        "head": head,
        "kept": [pair for pair in addresses.list_parameters(chosen) if pair[0] != "q"],
        "total": len(groups),
        "wrong": sum(1 for group in groups if count_wrong(group.counts)),
        "groups": groups[(number - 1) * _ROWS : number * _ROWS],
        "pager": Pager(len(groups), number, _ROWS, path, chosen, {"sort": order}),
        "filter_resource": _filter_resource,
    }
    return Section(title, "groups.html", values)


def _filter_resource(group: GroupCount) -> ResultFilter:
    cluster, namespace, kind, name = group.key
    return ResultFilter(clusters=(cluster,), namespaces=(namespace,), kinds=(kind,), name=name)


# --- namespaces


def render_namespace_list(context: PageContext, chosen: ResultFilter) -> Section:
    """All namespaces as a compact list, for clusters with thousands of them."""
    path, find = addresses.NAMESPACES, context.request.read("find")
    groups = _list_namespace_counts(context, chosen)
    by_name = context.request.read("sort") == "name"
    if by_name:
        groups.sort(key=lambda group: group.key)
    number = read_page_number(context)
    shown = groups[(number - 1) * _COMPACT : number * _COMPACT]
    if context.is_plural and not by_name:
        shown = sorted(shown, key=lambda group: group.key[0])
    more = {"sort": "name" if by_name else "", "find": find}
    values = {
        **describe_filter(chosen, path),
        "find": find,
        "by_name": by_name,
        "total": len(groups),
        "clusters": [
            (cluster, list(some)) for cluster, some in groupby(shown, key=lambda each: each.key[0])
        ],
        "filter_namespace": lambda group: ResultFilter(
            clusters=group.key[:1], namespaces=group.key[1:]
        ),
        "pager": Pager(len(groups), number, _COMPACT, path, chosen, more),
    }
    return Section("Namespaces", "namespaces.html", values)


def _list_namespace_counts(context: PageContext, chosen: ResultFilter) -> list[GroupCount]:
    """The namespaces of all clusters; without a filter, those without results too."""
    wanted = context.request.read("find").lower()
    groups = list(context.state.results.count(chosen, context.viewer, ("cluster", "namespace")))
    if chosen == ResultFilter():
        known = {group.key for group in groups}
        groups += [
            GroupCount((cluster, name), {})
            for cluster in context.clusters
            for name in sorted(context.state.list_namespaces(cluster, context.viewer))
            if (cluster, name) not in known
        ]
    return [group for group in groups if wanted in (group.key[1] or "cluster-wide").lower()]


# --- clusters


def render_cluster_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Clusters side by side: their totals, and each policy in all of them."""
    results, viewer = context.state.results, context.viewer
    counts = {group.key[0]: group.counts for group in results.count(chosen, viewer, ("cluster",))}
    rows: dict[str, dict[str, int]] = {}
    for group in results.count(chosen, viewer, ("policy", "cluster")):
        rows.setdefault(group.key[0], {})[group.key[1]] = count_wrong(group.counts)
    values = {
        **describe_filter(chosen, addresses.CLUSTERS),
        "counts": counts,
        # Policies with the most failures, errors and warnings first.
        "rows": sorted(rows.items(), key=lambda row: (-sum(row[1].values()), row[0]))[:_ROWS],
        "filter_cluster": lambda name: ResultFilter(clusters=(name,)),
        "filter_policy": lambda cluster, policy: ResultFilter(
            clusters=(cluster,), policies=(policy,)
        ),
    }
    return Section("Clusters", "clusters.html", values)
