"""What the page shows: one result of a report, who looks at it, and what is known around it."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

STATUSES = ("fail", "error", "warn", "pass", "skip")
SEVERITIES = ("critical", "high", "medium", "low", "info", "")


class ReportedResult(msgspec.Struct, frozen=True):
    """One entry of a report of any tool; its texts are not trusted."""

    cluster: str
    # Where it stands: the report (`policyreports.wgpolicyk8s.io/NAMESPACE/NAME`, without the
    # namespace where it has none), and the number of the result in it, from 0.
    report: str
    position: int
    source: str
    policy: str
    rule: str
    status: str
    severity: str
    category: str
    # Of the resource; `namespace` is empty for what is in none.
    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str
    message: str
    # Seconds since 1970; 0 if the report has no timestamp.
    timestamp: int
    properties: Mapping[str, str] = {}

    @property
    def report_namespace(self) -> str:
        """The namespace of its report; the resource can be in another one."""
        _, *place = self.report.split("/")
        return place[0] if len(place) == 2 else ""


class Viewer(msgspec.Struct, frozen=True):
    """Someone who looks, and the namespaces whose reports they may read, by cluster.

    A cluster that is missing is one of which they may read nothing.
    """

    name: str
    namespaces: Mapping[str, "VisibleNamespaces"]
    # Clusters of which it is not known, or not yet, all that they may see: less is shown.
    unsettled: tuple[str, ...] = ()

    @classmethod
    def of_all(cls, name: str, clusters: Iterable[str]) -> "Viewer":
        """One who sees everything in these clusters."""
        everything = VisibleNamespaces(all_namespaces=True, cluster_wide=True)
        return cls(name, dict.fromkeys(clusters, everything))

    def may_see(self, cluster: str, namespace: str) -> bool:
        visible = self.namespaces.get(cluster)
        return visible is not None and visible.includes(namespace)

    def may_see_result(self, result: ReportedResult) -> bool:
        """A viewer who may read the report may see its results, in any namespace."""
        return self.may_see(result.cluster, result.report_namespace)


class VisibleNamespaces(msgspec.Struct, frozen=True):
    """Namespaces of one cluster; reports without a namespace need a separate right."""

    all_namespaces: bool = False
    cluster_wide: bool = False
    names: frozenset[str] = frozenset()

    def includes(self, namespace: str) -> bool:
        if not namespace:
            return self.cluster_wide
        return self.all_namespaces or namespace in self.names


class ResultFilter(msgspec.Struct, frozen=True):
    """Which results; an empty part selects all. Parts are combined by AND, their values by OR."""

    clusters: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    # A label selector on the namespace, as kubectl takes it.
    namespace_labels: str = ""
    policies: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    # Of the resource.
    name: str = ""
    # `key=value` of the report's properties, audit annotations among them.
    properties: tuple[str, ...] = ()
    # In message, policy, rule or resource, ignoring case.
    text: str = ""
    # Only those of the last so many seconds, by their timestamps; 0: of any time.
    within: int = 0


class Board(msgspec.Struct, frozen=True):
    """A filter that was saved under a name, so that a team sees its own."""

    name: str
    filter: ResultFilter
    title: str = ""
    description: str = ""


class ResultPage(msgspec.Struct, frozen=True):
    """Some of the results that a filter chose; `total` is the number of all of them."""

    rows: tuple[ReportedResult, ...]
    total: int
    offset: int


class GroupCount(msgspec.Struct, frozen=True):
    """Results with the same values of the counted fields, by status."""

    key: tuple[str, ...]
    counts: Mapping[str, int]


class ResultChange(msgspec.Struct, frozen=True):
    """The results that a change added to one report, and those that it removed."""

    cluster: str
    added: tuple[ReportedResult, ...]
    removed: tuple[ReportedResult, ...]
    # Seconds since 1970: when it was heard of.
    timestamp: int = 0
    # Belongs to the first reading of everything: nothing happened in the cluster.
    is_first_read: bool = False


class TotalsPoint(msgspec.Struct, frozen=True):
    """How many results there were at a time, by status."""

    timestamp: int
    counts: Mapping[str, int]


class ShownPolicy(msgspec.Struct, frozen=True):
    """A policy as it is in the cluster or in a file: its text, and where its rules stand in it."""

    cluster: str
    kind: str
    namespace: str
    name: str
    family: str
    text: str
    # The first and last line of each rule, from 1.
    rule_lines: Mapping[str, tuple[int, int]]
    annotations: Mapping[str, str]


class ShownException(msgspec.Struct, frozen=True):
    """An exception: what it hides, and when it ends (seconds since 1970; 0: never)."""

    cluster: str
    kind: str
    namespace: str
    name: str
    text: str
    # (policy, rule patterns).
    policies: tuple[tuple[str, tuple[str, ...]], ...]
    ends_at: int
    hidden: int


class ExportFormat(StrEnum):
    """How results leave the page."""

    CSV = "csv"
    JSON = "json"
