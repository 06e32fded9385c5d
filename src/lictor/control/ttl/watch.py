"""Which collections are watched for objects with a time to live, and when is each of these due?"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from lictor.cluster.access import Access, AccessCheck
from lictor.cluster.cache import Cache, Change, ChangeType
from lictor.cluster.client import Client
from lictor.cluster.discovery import Collection
from lictor.cluster.resource import Resource
from lictor.control.cleanup.removal import hide_ttl_watch, show_ttl_watch
from lictor.control.cleanup.run import read_time
from lictor.control.loop import ReconcileLoop
from lictor.lang.ttl import find_deletion_time
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

LABEL = "cleanup.kyverno.io/ttl"
PROPAGATION = "cleanup.kyverno.io/propagation-policy"
_VERBS = ("delete", "list", "watch")
_EVERYTHING = Resource("*", "*", "*", "*", namespaced=False)
_AT_ONCE = 8


class ExpiringObject(msgspec.Struct, frozen=True, order=True):
    """An object with a time to live."""

    resource: Resource
    namespace: str
    name: str


_Entry: TypeAlias = tuple[datetime, int, ExpiringObject]


# Entries of objects that have been moved or dropped stay in the heap for a while; so many may.
_SLACK = 1000


class Agenda:
    """Any number of objects; the next one is found without looking at the others."""

    def __init__(self) -> None:
        self._moments: dict[ExpiringObject, datetime] = {}
        self._heap: list[_Entry] = []
        # Of two objects with the same moment the one that came first.
        self._count = 0

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, expiring: object) -> bool:
        return expiring in self._moments

    def put(self, expiring: ExpiringObject, moment: datetime) -> bool:
        """Note an object, or move it; False where nothing has changed."""
        if self._moments.get(expiring) == moment:
            return False
        self._moments[expiring] = moment
        self._push(moment, expiring)
        if len(self._heap) > 2 * len(self._moments) + _SLACK:
            self._rebuild()
        return True

    def drop(self, expiring: ExpiringObject) -> None:
        """Forget an object."""
        self._moments.pop(expiring, None)

    def drop_all(self, resource: Resource) -> None:
        """Forget all objects of a collection."""
        kept = {key: value for key, value in self._moments.items() if key.resource != resource}
        self._moments = kept
        self._rebuild()

    @property
    def next_moment(self) -> datetime | None:
        """When the next object is due."""
        self._skip()
        return self._heap[0][0] if self._heap else None

    def take(self, now: datetime, limit: int) -> list[ExpiringObject]:
        """Those that are due, the earliest first, so many at most; they are forgotten."""
        taken: list[ExpiringObject] = []
        while len(taken) < limit:
            self._skip()
            if not self._heap or self._heap[0][0] > now:
                break
            expiring = heapq.heappop(self._heap)[2]
            del self._moments[expiring]
            taken.append(expiring)
        return taken

    def _skip(self) -> None:
        while self._heap and self._moments.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def _push(self, moment: datetime, expiring: ExpiringObject) -> None:
        self._count += 1
        heapq.heappush(self._heap, (moment, self._count, expiring))

    def _rebuild(self) -> None:
        self._heap = []
        for expiring, moment in self._moments.items():
            self._push(moment, expiring)


class _Watch(msgspec.Struct, frozen=True):
    cache: Cache
    task: asyncio.Task[None]


class TtlWatches:
    """Caches of all objects that have the label, in collections where we may delete them."""

    def __init__(
        self,
        connect: Callable[[], Client],
        served: Callable[[], Awaitable[Sequence[Collection]]],
        allows: AccessCheck,
        agenda: Agenda,
    ) -> None:
        self._connect = connect
        # As long as there are watches: a loop ends with its lead, and may begin again.
        self._client: Client | None = None
        self._served = served
        self._allows = allows
        self._agenda = agenda
        self.wake: Callable[[], None] = lambda: None
        self._watches: dict[Resource, _Watch] = {}

    def find(self, expiring: ExpiringObject) -> JsonObject | None:
        """The object as it is now; None where it is gone, or no longer looked after."""
        watch = self._watches.get(expiring.resource)
        return watch.cache.get(expiring.name, expiring.namespace) if watch is not None else None

    async def reconcile(self) -> None:
        """Watch what may be deleted, and nothing else."""
        wanted = await self._choose()
        for resource in [each for each in self._watches if each not in wanted]:
            await self._end(resource)
        for resource in wanted:
            if resource not in self._watches:
                self._begin(resource)
            elif self._watches[resource].task.done():
                await self._end(resource)
                self._begin(resource)

    async def stop(self) -> None:
        """End all watches."""
        for resource in list(self._watches):
            await self._end(resource)
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _choose(self) -> dict[Resource, None]:
        able = [
            each.resource
            for each in await self._served()
            if each.preferred and each.verbs.issuperset(_VERBS)
        ]
        if await self._may_all(_EVERYTHING):
            return dict.fromkeys(able)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(resource: Resource) -> bool:
            async with gate:
                return await self._may_all(resource)

        answers = await asyncio.gather(*map(ask, able))
        return {each: None for each, may in zip(able, answers, strict=True) if may}

    async def _may_all(self, resource: Resource) -> bool:
        for verb in _VERBS:
            if not await self._allows(_ask_about(resource, verb)):
                return False
        return True

    def _begin(self, resource: Resource) -> None:
        self._client = self._client or self._connect()
        cache = Cache(self._client, resource, labels=LABEL, keep=_keep_little)
        cache.listen(lambda change: self._hear(resource, change))
        task = asyncio.create_task(cache.run(), name=f"ttl watch of {resource.plural}")
        self._watches[resource] = _Watch(cache, task)
        show_ttl_watch(resource)

    async def _end(self, resource: Resource) -> None:
        watch = self._watches.pop(resource)
        watch.task.cancel()
        await asyncio.gather(watch.task, return_exceptions=True)
        self._agenda.drop_all(resource)
        hide_ttl_watch(resource)

    def _hear(self, resource: Resource, change: Change) -> None:
        item = change.object
        expiring = ExpiringObject(
            resource, item["metadata"].get("namespace") or "", item["metadata"]["name"]
        )
        due = None if change.type is ChangeType.DELETED else find_due(item)
        if due is None:
            self._agenda.drop(expiring)
        elif self._agenda.put(expiring, due):
            self.wake()


def _ask_about(resource: Resource, verb: str) -> Access:
    return Access("", verb, resource.group, resource.plural, resource.version)


def find_due(item: JsonObject) -> datetime | None:
    """When an object goes; None where it is going already, or where the label says nothing."""
    metadata = item["metadata"]
    text = (metadata.get("labels") or {}).get(LABEL)
    if text is None or metadata.get("deletionTimestamp"):
        return None
    created = read_time(metadata.get("creationTimestamp")) or datetime.now(UTC)
    try:
        return find_deletion_time(text, created)
    except ValueError as error:
        facts = {"object": metadata["name"], "namespace": metadata.get("namespace")}
        log.warning("time to live not understood", extra={**facts, "why": str(error)})
        return None


def _keep_little(item: JsonObject) -> JsonObject:
    """What is needed of an object; there may be very many."""
    metadata = item["metadata"]
    kept = {
        name: metadata[name]
        for name in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
        )
        if name in metadata
    }
    for field, key in (("labels", LABEL), ("annotations", PROPAGATION)):
        values = metadata.get(field) or {}
        if key in values:
            kept[field] = {key: values[key]}
    return {"metadata": kept}


class TtlLoop(ReconcileLoop):
    """The loop that keeps the watches; they end with it."""

    def __init__(self, watches: TtlWatches, interval: float) -> None:
        super().__init__("ttl-controller-manager", watches.reconcile, interval=interval)
        self._watches = watches

    async def run(self) -> None:
        """Reconcile until cancelled, then end the watches."""
        try:
            await super().run()
        finally:
            await self._watches.stop()
