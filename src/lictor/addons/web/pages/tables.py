"""Rows of tables: links to the pages of results, groups and their order, page numbers."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.page import PageContext
from lictor.addons.web.pages.words import count_wrong
from lictor.addons.web.records import STATUSES, GroupCount, ReportedResult, ResultFilter

_LONGEST_MESSAGE = 240
_SORTED_STATUSES = ("fail", "error", "warn", "pass")
_PARTS = {
    "cluster": "clusters", "namespace": "namespaces", "policy": "policies", "kind": "kinds",
    "severity": "severities", "category": "categories", "source": "sources", "rule": "rules",
}  # fmt: skip
_PAGES = {"namespace": addresses.NAMESPACE, "policy": addresses.POLICY}
_EMPTY_NAMES = {
    "namespace": "cluster-wide", "policy": "no policy", "severity": "no severity",
    "category": "no category", "source": "no source", "family": "other tools",
}  # fmt: skip


def link_result(context: PageContext, row: ReportedResult, at: int = 0) -> str:
    """The page of one result, named by policy, rule and resource.

    Its position in a report changes with every scan.
    """
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


def shorten(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Text as it fits into a line of a table."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


class GroupLink(msgspec.Struct, frozen=True):
    """The name of a group of results, and the page that it leads to; no page if `href` is empty."""

    cluster: str
    text: str
    href: str


def link_group(
    context: PageContext,
    chosen: ResultFilter,
    by: Sequence[str],
    group: GroupCount,
    *,
    to_results: bool = False,
) -> GroupLink:
    """The name of a group, as a link to its page or to its results."""
    field, value = by[-1], group.key[-1]
    text = value or _EMPTY_NAMES.get(field, "none")
    if field not in _PARTS:
        return GroupLink("", text.replace("_", " "), "")
    named = {_PARTS[name]: (part,) for name, part in zip(by, group.key, strict=True)}
    if field in _PAGES and not to_results:
        # The page of a policy or a namespace shows all results of it, with any filter.
        whole = replace(ResultFilter(clusters=chosen.clusters), **named)
        href = context.link(_PAGES[field], whole)
    else:
        href = context.link(addresses.RESULTS, replace(chosen, **named))
    return GroupLink(group.key[0] if len(by) > 1 else "", text, href)


def sort_groups(groups: Sequence[GroupCount], order: str) -> list[GroupCount]:
    """The groups by name or by the number of a status; any other order leaves them as they are."""
    if order == "name":
        return sorted(groups, key=lambda group: group.key)
    if order in _SORTED_STATUSES:
        return sorted(groups, key=lambda group: -group.counts.get(order, 0))
    return list(groups)


def keep_wrong(groups: Sequence[GroupCount], most: int) -> list[GroupCount]:
    """The first of the sorted groups with failures, errors or warnings."""
    return [group for group in groups if count_wrong(group.counts)][:most]


def sum_groups(groups: Iterable[GroupCount]) -> dict[str, int]:
    """All groups together, by status."""
    totals = dict.fromkeys(STATUSES, 0)
    for group in groups:
        for status, number in group.counts.items():
            totals[status] = totals.get(status, 0) + number
    return totals


def read_page_number(context: PageContext) -> int:
    """The page number in the address, from 1."""
    return int(context.request.read(addresses.PAGE) or 1)


class Pager(msgspec.Struct, frozen=True):
    """The position in a list that is shown in pages."""

    total: int
    number: int
    size: int
    path: str
    chosen: ResultFilter
    # Further parameters of the address.
    more: Mapping[str, str] = {}

    @property
    def last(self) -> int:
        return max(-(-self.total // self.size), 1)

    @property
    def before(self) -> int:
        """The previous page; the last one if the list has become shorter."""
        return min(self.number - 1, self.last)
