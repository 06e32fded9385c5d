"""Everything that pages are made of, in memory; a source fills it."""

from collections.abc import Iterable, Mapping, Sequence

from lictor.addons.web.exceptions import ExceptionTexts
from lictor.addons.web.history import TotalsHistory
from lictor.addons.web.policies import PolicyTexts, StoredText, find_kind, show_policy
from lictor.addons.web.records import (
    ReportedResult,
    ShownException,
    ShownPolicy,
    TotalsPoint,
    Viewer,
)
from lictor.addons.web.results import ResultIndex
from lictor.core.families.kind_facts import Role
from lictor.core.model.result import Failure
from lictor.core.raw import Json, JsonObject

_POLICY_ROLES = (Role.POLICY, Role.DELETION)


class PageData:
    """The data of all pages, which clusters and files fill. Belongs to one event loop."""

    def __init__(self, clusters: Iterable[str], history: TotalsHistory | None = None) -> None:
        self.results = ResultIndex()
        self._clusters = tuple(clusters)
        self._policies = PolicyTexts()
        self._exceptions = ExceptionTexts()
        self._namespaces: dict[str, dict[str, None]] = {}
        self._history = history or TotalsHistory()

    # --- what sources put in

    def put_document(self, cluster: str, document: JsonObject) -> bool:
        """A policy, an exception or a namespace is there; False for anything else."""
        if is_namespace(document):
            self._put_namespace(cluster, document["metadata"])
        elif policy := find_kind(document, *_POLICY_ROLES):
            self._policies.put(cluster, policy, document)
        elif exception := find_kind(document, Role.EXCEPTION):
            self._exceptions.put(cluster, exception, document)
        else:
            return False
        return True

    def drop_document(self, cluster: str, document: JsonObject) -> None:
        """It is gone."""
        if is_namespace(document):
            name = str(document["metadata"]["name"])
            self._namespaces.get(cluster, {}).pop(name, None)
            self.results.drop_namespace(cluster, name)
        elif policy := find_kind(document, *_POLICY_ROLES):
            self._policies.drop(cluster, policy, document)
        elif exception := find_kind(document, Role.EXCEPTION):
            self._exceptions.drop(cluster, exception, document)

    def _put_namespace(self, cluster: str, metadata: JsonObject) -> None:
        name, labels = str(metadata.get("name") or ""), metadata.get("labels")
        self._namespaces.setdefault(cluster, {})[name] = None
        known: Mapping[str, Json] = labels if isinstance(labels, dict) else {}
        self.results.put_namespace(cluster, name, {str(k): str(v) for k, v in known.items()})

    def note_totals(self) -> None:
        """Remember how many results there are now."""
        self._history.note(self.results.count_by_namespace())

    # --- queries of pages

    def list_clusters(self) -> Sequence[str]:
        return self._clusters

    def is_ready(self) -> bool:
        """Has everything been read for the first time?"""
        return True

    def is_cluster_ready(self, cluster: str) -> bool:
        """Has everything of this cluster been read for the first time?"""
        return cluster in self._clusters and self.is_ready()

    def list_problems(self) -> Sequence[str]:
        """What cannot be read at the moment, and why; what pages show may lack it."""
        missing = self.results.left_out
        if not missing:
            return ()
        total = missing + len(self.results)
        return (f"{missing:,} of {total:,} results are not shown: the limit is exceeded.",)

    def find_policy(self, cluster: str, name: str, viewer: Viewer) -> ShownPolicy | None:
        """A policy by the name that results have for it.

        A policy of a namespace is for those who see that namespace; one of the cluster rules all
        namespaces, and is for every viewer of one of them.
        """
        found = self._find_text(cluster, name, viewer)
        return show_policy(*found) if found is not None else None

    def find_policy_state(self, cluster: str, name: str, viewer: Viewer) -> StoredText | None:
        """A policy with its mode and readiness, for the same viewers."""
        found = self._find_text(cluster, name, viewer)
        return found[1] if found is not None else None

    def list_policies(self, viewer: Viewer) -> Sequence[tuple[str, str]]:
        """Cluster and name of all policies that the viewer may see, with results or without."""
        return [
            (cluster, name)
            for cluster, name in self._policies.list_all()
            if (found := self._policies.find(cluster, name))
            and _may_see_policy(viewer, cluster, found.namespace)
        ]

    def _list_homes(self, cluster: str) -> Iterable[str]:
        """Where the policies of a cluster's results are looked for, in this order."""
        return (cluster,)

    def _find_text(self, cluster: str, name: str, viewer: Viewer) -> tuple[str, StoredText] | None:
        for home in self._list_homes(cluster):
            found = self._policies.find(home, name)
            if found is not None and _may_see_policy(viewer, home, found.namespace):
                return home, found
        return None

    def list_exceptions(self, viewer: Viewer) -> Sequence[ShownException]:
        return list(self._exceptions.list_visible(self.results, viewer))

    def list_namespaces(self, cluster: str, viewer: Viewer) -> Sequence[str]:
        """Those that are there, and those that reports speak of."""
        reported = {place for home, place in self.results.list_places() if home == cluster}
        names = reported | set(self._namespaces.get(cluster, ()))
        return sorted(name for name in names if name and viewer.may_see(cluster, name))

    def list_totals(self, viewer: Viewer) -> Sequence[TotalsPoint]:
        """The history of totals of what the viewer sees, oldest first."""
        return self._history.list_points(viewer)

    async def find_failure(self, result: ReportedResult, viewer: Viewer) -> Failure | None:  # noqa: ARG002
        """The violated field of the resource; None if it is unknown, or hidden from the viewer.

        Values of Secrets are never returned. Without a cluster, nothing can be evaluated again.
        """
        return None


def _may_see_policy(viewer: Viewer, cluster: str, namespace: str) -> bool:
    visible = viewer.namespaces.get(cluster)
    if visible is None or (namespace and not visible.includes(namespace)):
        return False
    return visible.all_namespaces or visible.cluster_wide or bool(visible.names)


def is_namespace(document: Json) -> bool:
    """Is it a Namespace?"""
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    return document.get("apiVersion") == "v1" and document.get("kind") == "Namespace"
