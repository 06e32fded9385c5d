"""What pages ask of the data behind them; sources (clusters, files) fill it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from lictor.model.result import Failure
from lictor.raw import JsonObject
from lictor.web.records import (
    GroupCount,
    PolicyImpact,
    ReportedResult,
    ResultChange,
    ResultFilter,
    ResultPage,
    ShownException,
    ShownPolicy,
    TotalsPoint,
    Viewer,
)


class Results(Protocol):
    """All results of all reports. Belongs to one event loop. A viewer sees what they may."""

    @property
    def revision(self) -> int:
        """Grows with every change."""
        ...

    def put_report(self, cluster: str, report: JsonObject) -> None:
        """A report of wgpolicyk8s.io or openreports.io is there, new or changed."""
        ...

    def drop_report(self, cluster: str, report: JsonObject) -> None: ...

    def select(
        self, chosen: ResultFilter, viewer: Viewer, *, offset: int = 0, limit: int = 50
    ) -> ResultPage:
        """In a fixed order: the worst first, then by namespace, resource, policy, rule."""
        ...

    def count(self, chosen: ResultFilter, viewer: Viewer, by: Sequence[str]) -> list[GroupCount]:
        """Totals by fields of ReportedResult, or `family`; the most failures first."""
        ...

    def find(
        self, cluster: str, report: str, position: int, viewer: Viewer
    ) -> ReportedResult | None:
        """One result by where it stands; None where it is not, or is not for the viewer."""
        ...

    def list_changes(self, viewer: Viewer, *, limit: int = 50) -> Sequence[ResultChange]:
        """The last changes after everything was read for the first time, the newest first."""
        ...

    def export(self, chosen: ResultFilter, viewer: Viewer) -> Iterator[ReportedResult]:
        """All of them; others may work between two, and what stays meanwhile comes once."""
        ...

    def listen(self, listener: Callable[[ResultChange], None]) -> None:
        """Call with every change from now on; it must not block."""
        ...


class PageState(Protocol):
    """Everything that pages are made of."""

    @property
    def results(self) -> Results: ...

    def list_clusters(self) -> Sequence[str]: ...

    def is_ready(self) -> bool:
        """Has everything been read for the first time?"""
        ...

    def is_cluster_ready(self, cluster: str) -> bool:
        """Has everything of this cluster been read for the first time?"""
        ...

    def list_problems(self) -> Sequence[str]:
        """What cannot be read at the moment, and why; what pages show may lack it."""
        ...

    def can_preview(self) -> bool:
        """Are there objects that a policy could be tried on?"""
        ...

    def find_policy(
        self, cluster: str, name: str, viewer: Viewer, namespace: str = ""
    ) -> ShownPolicy | None:
        """A policy of the cluster by the name that results have for it (`NAMESPACE/NAME`, too)."""
        ...

    def list_exceptions(self, viewer: Viewer) -> Sequence[ShownException]: ...

    def list_namespaces(self, cluster: str, viewer: Viewer) -> Sequence[str]: ...

    def list_totals(self, viewer: Viewer) -> Sequence[TotalsPoint]:
        """The history of totals of what the viewer sees, oldest first."""
        ...

    async def find_failure(self, result: ReportedResult, viewer: Viewer) -> Failure | None:
        """Where the resource breaks the rule now; None where that cannot be told, or not to them.

        What was found in a Secret is never told.
        """
        ...

    async def preview(self, cluster: str, text: str, viewer: Viewer) -> PolicyImpact:
        """What policies (YAML) that are not in force would say of what the viewer may read.

        LictorError where the text holds no policy that can be tried.
        """
        ...
