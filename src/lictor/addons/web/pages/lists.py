"""The lists: results by filter, namespaces, resources, clusters side by side."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import render_bar
from lictor.addons.web.pages.filters import render_chosen, render_filter_form
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.tables import (
    NameCell,
    read_page_number,
    render_count,
    render_empty,
    render_groups,
    render_heads,
    render_pager,
    render_results,
    sort_groups,
    sum_groups,
)
from lictor.addons.web.pages.words import (
    count_things,
    count_wrong,
    describe_counts,
    format_number,
    render_share,
)
from lictor.addons.web.records import STATUSES, GroupCount, ResultFilter

_ROWS = 50
_COMPACT = 300


# --- results


def render_result_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Results, the worst first, with the form that chooses them."""
    number = read_page_number(context)
    page = context.state.results.select(
        chosen, context.viewer, offset=(number - 1) * _ROWS, limit=_ROWS
    )
    told = count_things(page.total, "result")
    content = join(
        element("h1", "Results"),
        render_filter_form(context, chosen, addresses.RESULTS),
        render_chosen(context, chosen, addresses.RESULTS),
        element(
            "div",
            element("p", element("strong", told), class_="total"),
            _render_ways_out(context, chosen),
            class_="heading",
        ),
        render_results(context, page.rows, f"{told}, page {number}")
        if page.rows
        else render_empty("Nothing fits what is chosen."),
        render_pager(
            page.total,
            number,
            _ROWS,
            lambda other: context.link(addresses.RESULTS, chosen, page=str(other)),
        ),
    )
    return Section("Results", content)


def _render_ways_out(context: PageContext, chosen: ResultFilter) -> Html:
    links = (
        ("Print", addresses.PRINT),
        ("CSV", addresses.EXPORT_CSV),
        ("JSON", addresses.EXPORT_JSON),
    )
    return element(
        "ul",
        [element("li", element("a", name, href=context.link(to, chosen))) for name, to in links],
        class_="actions",
    )


# --- resources, and other groups


def render_resource_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Every resource that has results, the worst first or in the order of a column."""
    by = ("cluster", "namespace", "kind", "name")
    words = ("Resources", "Resource", addresses.RESOURCES)
    name: NameCell = lambda group: _link_resource_group(context, group)  # noqa: E731
    groups = context.state.results.count(chosen, context.viewer, by)
    return render_group_list(context, chosen, words, groups, name)


def render_group_list(
    context: PageContext,
    chosen: ResultFilter,
    words: tuple[str, str, str],
    found: Sequence[GroupCount],
    name: NameCell,
) -> Section:
    """Groups of results with a search, the worst first or in the order of a column."""
    title, head, path = words
    order = context.request.read("sort")
    groups = sort_groups(found, order)
    number = read_page_number(context)
    shown = groups[(number - 1) * _ROWS : number * _ROWS]
    wrong = sum(1 for group in groups if count_wrong(group.counts))
    noun = title.lower()

    def link(order: str) -> str:
        return context.link(path, chosen, sort=order)

    content = join(
        element("h1", title),
        render_quick_search(context, chosen, path, "message, policy, rule or resource"),
        render_chosen(context, chosen, path),
        _tell(f"{format_number(len(groups))} {noun}, {format_number(wrong)} with something wrong"),
        render_groups(f"{title}, page {number}", head, shown, name, link)
        if shown
        else render_empty(f"There are no {noun} here."),
        _page_groups(context, chosen, path, len(groups), number),
    )
    return Section(title, content)


def _page_groups(
    context: PageContext, chosen: ResultFilter, path: str, total: int, number: int
) -> Html | None:
    order = context.request.read("sort")
    return render_pager(
        total, number, _ROWS, lambda other: context.link(path, chosen, page=str(other), sort=order)
    )


def _tell(text: str) -> Html:
    return element("p", text, class_="total")


def render_quick_search(context: PageContext, chosen: ResultFilter, path: str, hint: str) -> Html:
    """One field; whatever else is chosen stays so."""
    kept = [(key, value) for key, value in addresses.list_parameters(chosen) if key != "q"]
    return element(
        "form",
        element(
            "label",
            element("span", "Search"),
            element("input", type="search", name="q", value=chosen.text, placeholder=hint),
            class_="field search",
        ),
        [element("input", type="hidden", name=key, value=value) for key, value in kept],
        element("button", "Search", type="submit"),
        method="get",
        action=context.link(path),
        class_="filters quick",
        role="search",
    )


def _link_resource_group(context: PageContext, group: GroupCount) -> Html:
    cluster, namespace, kind, name = group.key
    chosen = ResultFilter(clusters=(cluster,), namespaces=(namespace,), kinds=(kind,), name=name)
    place = element("span", f"{namespace}/", class_="quiet") if namespace else None
    return join(
        element("span", cluster, class_="cluster") if context.is_plural else None,
        element("span", kind, class_="kind"),
        element(
            "a",
            place,
            name or "no resource",
            href=context.link(addresses.RESOURCE, chosen),
            class_="name",
        ),
    )


# --- namespaces


def render_namespace_list(context: PageContext, chosen: ResultFilter) -> Section:
    """All namespaces as a compact list: made for clusters with thousands of them."""
    groups = _list_namespace_counts(context, chosen)
    by_name = context.request.read("sort") == "name"
    if by_name:
        groups.sort(key=lambda group: group.key)
    number = read_page_number(context)
    shown = groups[(number - 1) * _COMPACT : number * _COMPACT]
    content = join(
        element("h1", "Namespaces"),
        _render_namespace_search(context, by_name=by_name),
        render_chosen(context, chosen, addresses.NAMESPACES),
        _tell(
            f"{count_things(len(groups), 'namespace')}, the number is of failures, errors and "
            "warnings"
        ),
        _render_compact(context, shown, by_name=by_name)
        if shown
        else render_empty("There are no namespaces here."),
        render_pager(
            len(groups),
            number,
            _COMPACT,
            lambda other: context.link(
                addresses.NAMESPACES,
                chosen,
                page=str(other),
                sort="name" if by_name else "",
                find=context.request.read("find"),
            ),
        ),
    )
    return Section("Namespaces", content)


def _list_namespace_counts(context: PageContext, chosen: ResultFilter) -> list[GroupCount]:
    """The namespaces of all clusters; those without a result too, where nothing is chosen."""
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


def _render_namespace_search(context: PageContext, *, by_name: bool) -> Html:
    box = element(
        "input",
        type="search",
        name="find",
        value=context.request.read("find"),
        placeholder="part of a name",
    )
    orders = (("", "worst first"), ("name", "by name"))
    options = [
        element("option", text, value=value, selected=(value == "name") == by_name)
        for value, text in orders
    ]
    return element(
        "form",
        element("label", element("span", "Find"), box, class_="field search"),
        element(
            "label",
            element("span", "Order"),
            element("select", options, name="sort"),
            class_="field",
        ),
        element("button", "Show", type="submit"),
        method="get",
        action=context.link(addresses.NAMESPACES),
        class_="filters quick",
        role="search",
    )


def _render_compact(context: PageContext, groups: Sequence[GroupCount], *, by_name: bool) -> Html:
    if not context.is_plural:
        return _render_names(context, groups)
    ordered = groups if by_name else sorted(groups, key=lambda group: group.key[0])
    return join(
        [
            join(element("h2", cluster), _render_names(context, list(some)))
            for cluster, some in groupby(ordered, key=lambda group: group.key[0])
        ]
    )


def _render_names(context: PageContext, groups: Sequence[GroupCount]) -> Html:
    return element("ul", [_render_name(context, group) for group in groups], class_="compact")


def _render_name(context: PageContext, group: GroupCount) -> Html:
    cluster, namespace = group.key
    chosen = ResultFilter(clusters=(cluster,), namespaces=(namespace,))
    wrong = count_wrong(group.counts)
    return element(
        "li",
        element(
            "a",
            element("span", namespace or "cluster-wide", class_="name"),
            element(
                "span", format_number(wrong), class_="count wrong" if wrong else "count nought"
            ),
            href=context.link(addresses.NAMESPACE, chosen),
            title=describe_counts(group.counts),
        ),
    )


# --- clusters


def render_cluster_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Clusters side by side: their totals, and each policy in all of them."""
    results, viewer = context.state.results, context.viewer
    groups = {group.key[0]: group.counts for group in results.count(chosen, viewer, ("cluster",))}
    cards = [_render_cluster(context, name, groups.get(name, {})) for name in context.clusters]
    content = join(
        element("h1", "Clusters"),
        render_chosen(context, chosen, addresses.CLUSTERS),
        element("ul", cards, class_="cards"),
        element("h2", "Policies in each cluster"),
        _render_matrix(context, results.count(chosen, viewer, ("policy", "cluster"))),
    )
    return Section("Clusters", content)


def _render_cluster(context: PageContext, name: str, counts: Mapping[str, int]) -> Html:
    href = context.link(addresses.OVERVIEW, ResultFilter(clusters=(name,)))
    return element(
        "li",
        element("h2", element("a", name, href=href)),
        element("p", element("strong", render_share(counts)), " of results pass"),
        render_bar(counts),
        element("p", describe_counts(counts), class_="quiet"),
        class_="card",
    )


def _render_matrix(context: PageContext, groups: Sequence[GroupCount]) -> Html:
    """What is wrong by policy and cluster; the policies with the most of it first."""
    rows: dict[str, dict[str, int]] = {}
    for group in groups:
        rows.setdefault(group.key[0], {})[group.key[1]] = count_wrong(group.counts)
    ordered = sorted(rows.items(), key=lambda row: (-sum(row[1].values()), row[0]))[:_ROWS]
    if not ordered:
        return render_empty("There are no results yet.")
    body = [
        element(
            "tr",
            element("th", policy or "no policy", scope="row"),
            [_render_matrix_cell(context, policy, name, cells) for name in context.clusters],
        )
        for policy, cells in ordered
    ]
    caption = element("caption", "Failures, errors and warnings", class_="unseen")
    heads = render_heads(("Policy",), context.clusters)
    table = element("table", caption, heads, element("tbody", body), class_="matrix")
    return element("div", table, class_="panel wide")


def _render_matrix_cell(
    context: PageContext, policy: str, cluster: str, cells: Mapping[str, int]
) -> Html:
    if cluster not in cells:
        # It is not there, or says nothing: that is not the same as nothing wrong.
        return element("td", "–", class_="number nought", title="no results")  # noqa: RUF001
    chosen = ResultFilter(clusters=(cluster,), policies=(policy,))
    href = context.link(addresses.POLICY, chosen)
    number = element("a", format_number(cells[cluster]), href=href)
    return element("td", number, class_=f"number {'fail' if cells[cluster] else 'nought'}")


def render_totals_line(groups: Sequence[GroupCount]) -> Html:
    """All of some groups in one line: a bar, and the numbers beside it."""
    totals = sum_groups(groups)
    cells = [render_count(status, totals[status]) for status in STATUSES]
    heads = render_heads((), [status.capitalize() for status in STATUSES])
    table = element(
        "table",
        element("caption", "Totals", class_="unseen"),
        heads,
        element("tbody", element("tr", cells)),
        class_="line",
    )
    return element("div", render_bar(totals), table, class_="totals")
