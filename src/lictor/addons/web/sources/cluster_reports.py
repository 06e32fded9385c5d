"""Reports, policies, exceptions and namespaces of clusters, followed as they change.

Nothing but the compact index is kept: of an object that was read, only its name is remembered.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lictor.addons.web.failures import FailureFinder, FindConfig
from lictor.addons.web.history import TotalsHistory
from lictor.addons.web.records import ReportedResult, Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import ApiError
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.model.result import Failure
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import (
    CLUSTER_OPEN_REPORT,
    CLUSTER_POLICY_REPORT,
    NAMESPACE,
    OPEN_REPORT,
    POLICY_REPORT,
    Resource,
    find_resource,
)

log = logging.getLogger(__name__)

_REPORTS = (POLICY_REPORT, CLUSTER_POLICY_REPORT, OPEN_REPORT, CLUSTER_OPEN_REPORT)
# Reports of some tools have a megabyte each, and a page of them is in memory at once.
_PAGE = 50
# How long a request is not repeated that was denied, or whose kind is not served.
_LONG_PAUSE = 15.0
_RETRY_PAUSE = 4.0
_NOTE_PAUSE = 60.0
# Where reports may not be read everywhere: in how many namespaces they are looked for.
_MOST_NAMESPACES = 300
_FORBIDDEN = (401, 403)

_Take: TypeAlias = Callable[[JsonObject], None]


class ClusterReports(PageData):
    """What pages show, from live clusters. `run` keeps it in step until cancelled."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        *,
        history: TotalsHistory | None = None,
        find_config: FindConfig | None = None,
    ) -> None:
        """`find_config`: with whose credentials objects are read again; left out, none is."""
        super().__init__(clients, history)
        self._clients = dict(clients)
        self._caches: dict[str, list[Cache]] = {cluster: [] for cluster in clients}
        self._ready = {cluster: asyncio.Event() for cluster in clients}
        self._find_config = find_config
        self._failures = FailureFinder()

    async def run(self) -> None:
        """Follow everything. Ends only when cancelled."""
        async with asyncio.TaskGroup() as group:
            for cluster in self._clients:
                group.create_task(self._run_cluster(cluster))
            group.create_task(self._note_totals())

    async def wait(self) -> None:
        """Until everything has been read for the first time, as far as it may be read."""
        for event in self._ready.values():
            await event.wait()

    def is_ready(self) -> bool:
        """Has everything been read for the first time?"""
        return all(event.is_set() for event in self._ready.values())

    def is_cluster_ready(self, cluster: str) -> bool:
        """Has everything of this cluster been read for the first time?"""
        return cluster in self._ready and self._ready[cluster].is_set()

    def list_problems(self) -> Sequence[str]:
        """What cannot be read at the moment, and why; what pages show may lack it."""
        troubles = [
            f"{cluster}: {_name(cache)}: {cache.trouble}"[:500]
            for cluster, caches in self._caches.items()
            for cache in caches
            if cache.trouble and not cache.is_absent
        ]
        return [*super().list_problems(), *troubles]

    async def find_failure(self, result: ReportedResult, viewer: Viewer) -> Failure | None:
        """Read the resource again with the viewer's credentials, and evaluate the rule on it."""
        policy = self.find_policy(result.cluster, result.policy, viewer)
        if self._find_config is None or result.cluster not in self._clients or policy is None:
            return None
        return await self._failures.find_in_cluster(result, policy, viewer, self._find_config)

    # --- following

    async def _run_cluster(self, cluster: str) -> None:
        client = self._clients[cluster]
        places = await self._find_places(client)
        caches = self._caches[cluster]
        caches += [self._follow_reports(cluster, each) for each in _cover(client, places)]
        caches += [self._follow_documents(cluster, each) for each in _watch_others(client)]
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run())
            group.create_task(self._end_first_read(cluster))

    async def _end_first_read(self, cluster: str) -> None:
        for cache in self._caches[cluster]:
            await cache.wait_settled()
        self.results.end_first_read(cluster)
        self._ready[cluster].set()

    async def _note_totals(self) -> None:
        # Totals of half of the reports would look as if the others had been repaired.
        await self.wait()
        while True:
            self.note_totals()
            await asyncio.sleep(_NOTE_PAUSE)

    async def _find_places(self, client: Client) -> Sequence[str]:
        """The namespaces where reports are looked for; nothing where all may be read at once."""
        while True:
            try:
                return await _choose_places(client)
            except ApiError as error:
                log.warning("cluster not read", extra={"why": str(error)[:200]})
                await asyncio.sleep(_RETRY_PAUSE)

    def _follow_reports(self, cluster: str, cache: Cache) -> Cache:
        results = self.results
        _attach(
            cache,
            lambda report: results.put_report(cluster, report),
            lambda report: results.drop_report(cluster, report),
        )
        return cache

    def _follow_documents(self, cluster: str, cache: Cache) -> Cache:
        def put(document: JsonObject) -> None:
            self.put_document(cluster, document)

        _attach(cache, put, lambda document: self.drop_document(cluster, document))
        cache.absent_pause = _LONG_PAUSE
        return cache


def _cover(client: Client, places: Sequence[str]) -> Iterable[Cache]:
    """Caches of all reports; where there are places, only of those there."""
    for resource in _REPORTS:
        if places and resource.namespaced:
            for namespace in places:
                yield Cache(client, resource, namespace=namespace)
        else:
            yield Cache(client, resource)


def _watch_others(client: Client) -> Iterable[Cache]:
    roles = registry().with_role(Role.POLICY, Role.DELETION, Role.EXCEPTION)
    for resource in (NAMESPACE, *map(find_resource, roles)):
        yield Cache(client, resource)


async def _choose_places(client: Client) -> Sequence[str]:
    """Where someone may not read the reports of all namespaces, those that they may know of."""
    if await _may_list(client, POLICY_REPORT) or await _may_list(client, OPEN_REPORT):
        return ()
    own = client.config.namespace
    try:
        listed = [item["metadata"]["name"] for item in await client.list(NAMESPACE)]
    except ApiError as error:
        if error.status not in _FORBIDDEN:
            raise
        listed = []
    known = tuple(dict.fromkeys((own, *listed)))[:_MOST_NAMESPACES]
    readable = [each for each in known if await _may_list(client, POLICY_REPORT, each)]
    # Not even those: report that they cannot be read.
    return readable or (own,)


async def _may_list(client: Client, resource: Resource, namespace: str = "") -> bool:
    try:
        async for _ in client.list_pages(resource, namespace, page=1):
            break
    except ApiError as error:
        if error.status in _FORBIDDEN:
            return False
        # A kind that is not served may be one day.
        if error.status != 404:
            raise
    return True


def _attach(cache: Cache, put: _Take, drop: _Take) -> None:
    """Let everything that a cache reads go on at once, and keep nothing but names in it."""
    resource = cache.resource

    def keep(item: JsonObject) -> JsonObject:
        try:
            put(item)
        except Exception:
            # One object that cannot be read must not stop the others.
            log.exception("object not shown", extra={"resource": resource.plural})
        metadata = item["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        return {"metadata": {"name": name, "namespace": namespace} if namespace else {"name": name}}

    def note(change: Change) -> None:
        if change.type is ChangeType.DELETED:
            head = {"apiVersion": resource.api_version, "kind": resource.kind}
            drop({**head, "metadata": change.object["metadata"]})

    cache.keep = keep
    cache.page = _PAGE
    cache.refused_pause = _LONG_PAUSE
    cache.listen(note)


def _name(cache: Cache) -> str:
    place = f" in {cache.namespace}" if cache.namespace else ""
    return f"{cache.resource.plural}.{cache.resource.group}".rstrip(".") + place
