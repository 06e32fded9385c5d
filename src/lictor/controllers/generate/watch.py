"""Finds the generated objects to reconcile after changes of them, their sources or triggers."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable

import msgspec

from lictor.controllers.generate.downstream import Downstream, ObjectLocation
from lictor.controllers.generate.labels import (
    GenerationUnit,
    goes_with_policy,
    read_source,
    read_unit,
)
from lictor.controllers.generate.queue import GenerationQueue
from lictor.controllers.generate.reconcile import GenerationReconciler
from lictor.controllers.generate.rules import GenerateRule, GenerateRules
from lictor.controllers.update_requests import TriggerReader
from lictor.core.errors import LictorError, LookupFailedError
from lictor.core.model.result import SourceRef
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client, MetadataClient
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.update_requests import UpdateTrigger
from lictor.kubernetes.work_queue import cancel_all


class GenerationWatch:
    """Queues units after changes of generated objects and sources, and at each resync."""

    def __init__(
        self,
        client: Client,
        downstream: Downstream,
        triggers: TriggerReader,
        policies: GenerateRules,
        generation: GenerationReconciler,
        queue: GenerationQueue,
    ) -> None:
        self._client = client
        self._downstream = downstream
        self._triggers = triggers
        self._policies = policies
        self._generation = generation
        self._queue = queue
        self._tasks: set[asyncio.Task[None]] = set()
        downstream.listen(self._hear_made, self._hear_source)

    async def stop(self) -> None:
        """Cancel running tasks."""
        await cancel_all(*self._tasks)

    async def review(self, rule: GenerateRule) -> None:
        """Queue everything that a changed rule has generated."""
        for location, item in list(self._downstream.all()):
            unit = read_unit(item)
            if unit is None or (unit.policy, unit.namespace, unit.rule) != rule.key:
                continue
            if rule.synchronize:
                self._queue.enqueue(unit)
            elif goes_with_policy(item):
                # It is no longer synchronized, and kept when the policy is deleted.
                await self._generation.objects.keep(location, item, own=unit.namespace)

    async def sweep(self) -> None:
        """Delete what deleted rules generated, and clones of deleted sources."""
        ruleless: dict[tuple[str, str, str, str], GenerationUnit] = {}
        sources: dict[SourceRef, None] = {}
        for _, item in list(self._downstream.all()):
            unit = read_unit(item)
            if unit is None:
                continue
            if self._policies.find(unit) is None:
                if goes_with_policy(item):
                    ruleless[unit.key] = unit
            elif self._policies.find_synchronized(unit) is not None:
                source = read_source(item)
                if source is not None:
                    sources[source] = None
        for unit in ruleless.values():
            await self._generation.drop_ruleless(unit)
        for source in sources:
            await self._check_source(source)

    async def release(self, targets: Iterable[Resource]) -> None:
        """Watch only what current rules generate and clone; `targets` are the kinds they name."""
        made, sources = set(targets), set()
        for location, item in list(self._downstream.all()):
            unit = read_unit(item)
            if unit is None or (self._policies.find(unit) is None and not goes_with_policy(item)):
                continue
            made.add(location.resource)
            source = read_source(item)
            if source is not None:
                namespaced = bool(source.namespace)
                sources.add(
                    self._triggers.locate(source.api_version, source.kind, namespaced=namespaced)
                )
        await self._downstream.release(made, sources)

    async def _check_source(self, source: SourceRef) -> None:
        if not source.name:
            return
        resource = self._triggers.locate(
            source.api_version, source.kind, namespaced=bool(source.namespace)
        )
        try:
            await self._downstream.follow(resource, sources=True)
            if not self._downstream.has_source(resource, source.namespace, source.name, source.uid):
                await self._look_after(
                    ObjectLocation(resource, source.namespace, source.name), source.uid
                )
        except LookupFailedError as error:
            log.info("source not read", extra={"source": source.name, "why": str(error)[:200]})

    def _hear_made(self, location: ObjectLocation, change: Change) -> None:
        version = str(change.object["metadata"].get("resourceVersion") or "")
        if change.type is ChangeType.DELETED:
            if self._generation.objects.note_gone(location):
                return
        elif self._generation.objects.is_as_left(location, version):
            return
        elif change.type is ChangeType.ADDED and not self._generation.objects.has_left(location):
            return  # at the start, everything is checked anyway
        unit = read_unit(change.before or change.object)
        if unit is not None and self._policies.find_synchronized(unit) is not None:
            self._queue.enqueue(unit)

    def _hear_source(self, location: ObjectLocation, change: Change) -> None:
        uid = str(change.object["metadata"].get("uid") or "")
        if change.type is ChangeType.DELETED:
            self._start(self._look_after(location, uid))
        else:
            # Also when it is first seen: it may have changed since it was cloned.
            self._enqueue_copies(self._downstream.copies_of(uid).values())

    def _enqueue_copies(self, copies: Iterable[JsonObject]) -> None:
        for item in copies:
            unit = read_unit(item)
            if unit is not None and self._policies.find_synchronized(unit) is not None:
                self._queue.enqueue(unit)

    async def _look_after(self, location: ObjectLocation, uid: str) -> None:
        """A source was deleted, or only its label was."""
        copies = {
            where: item
            for where, item in self._downstream.copies_of(uid).items()
            if _is_copy(item, location)
        }
        found = await self._client.find(location.resource, location.name, location.namespace)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            self._enqueue_copies(copies.values())
            return
        for where, item in copies.items():
            unit = read_unit(item)
            if unit is not None and self._policies.find_synchronized(unit) is not None:
                await self._generation.objects.delete(where, item, own=unit.namespace)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(_guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_copy(item: JsonObject, location: ObjectLocation) -> bool:
    """Whether this is its source: anyone can write the UID of another source on an object."""
    source = read_source(item)
    if source is None or source.name not in ("", location.name):
        return False
    return (source.kind, source.namespace) == (location.resource.kind, location.namespace)


async def _guard(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except LictorError as error:
        # The next sweep handles it.
        log.warning("copies not updated", extra={"why": str(error)[:200]})


class _Watched(msgspec.Struct, frozen=True):
    cache: Cache
    task: asyncio.Task[None]


class TriggerWatch:
    """Watches the metadata of triggers; the whole object is read when needed."""

    def __init__(
        self,
        client: Client,
        triggers: TriggerReader,
        downstream: Downstream,
        generation: GenerationReconciler,
        policies: GenerateRules,
        queue: GenerationQueue,
    ) -> None:
        self._client = client
        self._policies = policies
        self._queue = queue
        self._triggers = triggers
        self._downstream = downstream
        self._generation = generation
        self._names: MetadataClient | None = None
        self._watched: dict[Resource, _Watched] = {}
        # Triggers for which a rule generates nothing: the state of rule and trigger.
        self._idle: dict[tuple[str, str, str, str], tuple[str, str]] = {}

    async def follow(self, rules: Iterable[GenerateRule], kinds: Iterable[Resource]) -> None:
        """Watch the triggers of rules that synchronize, and no others."""
        kept = [rule for rule in rules if rule.synchronize]
        wanted = {kind for kind in kinds if any(rule.is_kept_by(kind) for rule in kept)}
        for resource in wanted - self._watched.keys():
            self._begin(resource)
        for resource in self._watched.keys() - wanted:
            self._watched.pop(resource).task.cancel()

    def _begin(self, resource: Resource) -> None:
        if self._names is None:
            self._names = MetadataClient(self._client.config)
        cache = Cache(self._names, resource, keep=_keep_identity)
        cache.listen(self.hear)
        self._watched[resource] = _Watched(cache, asyncio.create_task(cache.run()))

    async def stop(self) -> None:
        """Stop all watches."""
        await cancel_all(*(watched.task for watched in self._watched.values()))
        self._watched.clear()
        self._idle.clear()
        if self._names is not None:
            await self._names.close()
            self._names = None

    def hear(self, change: Change) -> None:
        """A trigger changed or went: reconcile what was generated for it."""
        if change.type is not ChangeType.ADDED:
            uid = str(change.object["metadata"].get("uid") or "")
            for unit in self._downstream.units_of(uid):
                if self._policies.find_synchronized(unit) is not None:
                    self._queue.enqueue(unit)

    async def heal(self, rules: Iterable[GenerateRule]) -> bool:
        """Find triggers newer than their rule for which nothing was generated.

        Their request was lost, or the generated objects were deleted without being observed.
        Returns False if some triggers are not known yet.
        """
        is_whole = True
        for rule in rules:
            if not rule.synchronize or rule.needs_request:
                continue
            for resource, watched in list(self._watched.items()):
                if not rule.is_kept_by(resource):
                    continue
                if watched.cache.is_synced:
                    await self._heal_kind(rule, resource, watched.cache)
                else:
                    is_whole = False
        return is_whole

    async def _heal_kind(self, rule: GenerateRule, resource: Resource, cache: Cache) -> None:
        for item in cache.list(rule.policy.namespace or None):
            metadata = item["metadata"]
            if not await self._policies.is_newer(rule, item):
                continue
            key = (*rule.key, str(metadata.get("uid")))
            state = (rule.mark, str(metadata.get("resourceVersion")))
            if self._idle.get(key) == state or self._has_made(rule, key[-1]):
                continue
            is_missed = await self._is_missed(rule, resource, item)
            if is_missed:
                self._queue.enqueue(rule.unit(_refer(resource, metadata)))
            elif is_missed is False:
                self._idle[key] = state

    def _has_made(self, rule: GenerateRule, uid: str) -> bool:
        made = self._downstream.units_of(uid)
        return any((unit.policy, unit.namespace, unit.rule) == rule.key for unit in made)

    async def _is_missed(
        self, rule: GenerateRule, resource: Resource, item: JsonObject
    ) -> bool | None:
        try:
            found = await self._triggers.read(_refer(resource, item["metadata"]))
            return False if found is None else await self._generation.makes(rule, found)
        except LookupFailedError as error:
            log.info("trigger not read", extra={"why": str(error)[:200]})
            return None


def _refer(resource: Resource, metadata: JsonObject) -> UpdateTrigger:
    names = (str(metadata.get(name) or "") for name in ("namespace", "name", "uid"))
    return UpdateTrigger(resource.api_version, resource.kind, *names)


def _keep_identity(item: JsonObject) -> JsonObject:
    """Only the identity of a trigger, and its creation time."""
    metadata = item["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {"metadata": {name: metadata.get(name) for name in names}}


log = logging.getLogger(__name__)
