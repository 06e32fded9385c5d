"""Deletes objects with the time-to-live label when they expire.

One loop watches the collections in which it may delete objects; the other deletes what is due.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import msgspec

from lictor.controllers.cleanup.policies import ask_for_myself
from lictor.controllers.cleanup.run import read_time
from lictor.controllers.context import ControllerContext
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.policy_writes import PolicyWrites
from lictor.core.errors import ApiError, ConflictError, UnreachableError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.lang.schedule import find_deletion_time
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client, MetadataClient
from lictor.kubernetes.discovery import Collection, ServedKinds
from lictor.kubernetes.metrics import open_counter, open_gauge
from lictor.kubernetes.rbac import Access, AccessCheck
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.work_queue import DueQueue, cancel_all

log = logging.getLogger(__name__)

LABEL = "cleanup.kyverno.io/ttl"
PROPAGATION = "cleanup.kyverno.io/propagation-policy"
_VERBS = ("delete", "list", "watch")
_EVERYTHING = Resource("*", "*", "*", "*", namespaced=False)
_AT_ONCE = 8
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_INTERVAL = 60.0
_FIRST_PAUSE = 2.0
# The object has just changed, and the watch will report it soon.
_CONFLICT_PAUSE = 0.2
_LONGEST_PAUSE = 300.0


class ExpiringObject(msgspec.Struct, frozen=True, order=True):
    """An object with a time to live."""

    resource: Resource
    namespace: str
    name: str


def _show_watch(resource: Resource, value: int) -> None:
    """In the metrics: are objects of this collection watched for the label?"""
    labels = resource.group, resource.version, resource.plural
    open_gauge("kyverno_ttl_controller_info").labels(*labels).set(value)


def _count(what: str, expiring: ExpiringObject) -> None:
    resource = expiring.resource
    labels = resource.group, resource.version, resource.plural, expiring.namespace
    open_counter(f"kyverno_ttl_controller_{what}").labels(*labels).inc()


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
        due: DueQueue[ExpiringObject],
        interval: float,
    ) -> None:
        self._connect = connect
        # Only while there are watches: the loop ends with leadership, and may start again.
        self._client: Client | None = None
        self._served = served
        self._allows = allows
        self._due = due
        self._listeners: list[Callable[[], None]] = []
        self.loop = ReconcileLoop(
            "ttl-controller-manager", self.reconcile, interval=interval, on_stop=self.stop
        )
        self._watches: dict[Resource, _Watch] = {}

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when an object is due at another time than before."""
        self._listeners.append(listener)

    def find(self, expiring: ExpiringObject) -> JsonObject | None:
        """The current object; None if it is gone, or no longer watched."""
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
        _show_watch(resource, 1)

    async def _end(self, resource: Resource) -> None:
        watch = self._watches.pop(resource)
        await cancel_all(watch.task)
        self._due.drop_where(lambda expiring: expiring.resource == resource)
        _show_watch(resource, 0)

    def _hear(self, resource: Resource, change: Change) -> None:
        item = change.object
        expiring = ExpiringObject(
            resource, item["metadata"].get("namespace") or "", item["metadata"]["name"]
        )
        due = None if change.type is ChangeType.DELETED else find_due(item)
        if due is None:
            self._due.drop(expiring)
        elif self._due.put(expiring, due.timestamp()):
            for listener in self._listeners:
                listener()


def _ask_about(resource: Resource, verb: str) -> Access:
    return Access("", verb, resource.group, resource.plural, resource.version)


def find_due(item: JsonObject) -> datetime | None:
    """When an object expires; None where it is being deleted, or the label is invalid."""
    metadata = item["metadata"]
    text = (metadata.get("labels") or {}).get(LABEL)
    if text is None or metadata.get("deletionTimestamp"):
        return None
    created = read_time(metadata.get("creationTimestamp")) or datetime.now(UTC)
    try:
        return find_deletion_time(text, created)
    except ValueError as error:
        facts = {"object": metadata["name"], "namespace": metadata.get("namespace")}
        log.warning("invalid time to live", extra={**facts, "why": str(error)})
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


class TtlDeletions:
    """Deletes what is due; `find` returns an object as it is now."""

    def __init__(
        self,
        writes: PolicyWrites,
        due: DueQueue[ExpiringObject],
        find: Callable[[ExpiringObject], JsonObject | None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._writes = writes
        self._due = due
        self._find = find
        self._now = now
        self.loop = ReconcileLoop("ttl-controller", self.reconcile, interval=_INTERVAL)
        # How long to wait before the next attempt, for objects that could not be deleted.
        self._pauses: dict[ExpiringObject, float] = {}

    async def reconcile(self) -> None:
        """Delete all that is due, and set the clock for the next."""
        unreachable: UnreachableError | None = None
        while unreachable is None and (due := self._due.take(self._now().timestamp(), _AT_ONCE)):
            answers = await asyncio.gather(*map(self._expire, due))
            unreachable = next((each for each in answers if each is not None), None)
        self._pauses = {key: kept for key, kept in self._pauses.items() if key in self._due}
        self._set_timer()
        if unreachable is not None:
            raise unreachable

    async def _expire(self, expiring: ExpiringObject) -> UnreachableError | None:
        item = self._find(expiring)
        due = find_due(item) if item is not None else None
        if item is None or due is None or due > self._now():
            # Gone, being deleted, or expiring later: the watch has moved it in the queue.
            self._pauses.pop(expiring, None)
            return None
        try:
            await self._delete(expiring, item)
        except ConflictError:
            # Its label may have changed, or another object has its name.
            self._postpone(expiring, _CONFLICT_PAUSE)
        except UnreachableError as error:
            self._due.put(expiring, due.timestamp())
            return error
        except ApiError as error:
            _count("errors", expiring)
            self._log_failure(expiring, error)
            self._postpone(expiring, _FIRST_PAUSE)
        return None

    async def _delete(self, expiring: ExpiringObject, item: JsonObject) -> None:
        metadata = item["metadata"]
        wanted = (metadata.get("annotations") or {}).get(PROPAGATION)
        if await self._writes.delete(
            expiring.resource,
            expiring.name,
            expiring.namespace,
            own="",  # caused by a label of the object, not by a policy
            propagation=wanted if wanted in _PROPAGATIONS else "",
            preconditions={
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
        ):
            _count("deletedobjects", expiring)
            facts = {"resource": expiring.resource.plural, "namespace": expiring.namespace}
            log.info("object expired", extra={**facts, "object": expiring.name})
        self._pauses.pop(expiring, None)

    def _postpone(self, expiring: ExpiringObject, first: float) -> None:
        pause = min(self._pauses.get(expiring, first / 2) * 2, _LONGEST_PAUSE)
        self._pauses[expiring] = pause
        self._due.put(expiring, self._now().timestamp() + pause)

    def _log_failure(self, expiring: ExpiringObject, error: ApiError) -> None:
        if expiring not in self._pauses:
            facts = {"resource": expiring.resource.plural, "namespace": expiring.namespace}
            why = str(error)[:200]
            log.warning("object not deleted", extra={**facts, "object": expiring.name, "why": why})

    def _set_timer(self) -> None:
        due = self._due.next_due
        if due is not None:
            seconds = max(due - self._now().timestamp(), 0.0)
            # The clock may be changed: the loop checks again at its interval at the latest.
            self.loop.wake_later(min(seconds, _INTERVAL) + 0.01)


_LEAST_INTERVAL = 1.0


def build_ttl_loops(context: ControllerContext) -> list[ReconcileLoop]:
    """The loop that watches objects with a time to live, and the one that deletes them."""
    due: DueQueue[ExpiringObject] = DueQueue()
    seconds = parse_duration(context.flags.ttl_reconciliation_interval) / NANOSECONDS
    watches = TtlWatches(
        lambda: MetadataClient(context.client.config),
        ServedKinds(context.client, keep=0.0).read,
        ask_for_myself(context.client),
        due,
        max(seconds, _LEAST_INTERVAL),
    )
    deletions = TtlDeletions(PolicyWrites(context.client, context.names), due, watches.find)
    watches.listen(deletions.loop.wake)
    return [watches.loop, deletions.loop]
