"""Triggers of rules that keep things in step: who they are, when they change, whom nobody met."""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from lictor.cluster.cache import Cache, Change, ChangeType
from lictor.cluster.client import Client
from lictor.cluster.metadata_client import MetadataClient
from lictor.cluster.resource import Resource
from lictor.cluster.update_requests import Trigger
from lictor.control.background.trigger import Triggers
from lictor.control.generate.downstream import Downstream
from lictor.control.generate.reconcile import Generation
from lictor.control.generate.rules import GenerateRule, PolicyBook
from lictor.control.generate.watch import GenerationWatch
from lictor.errors import LookupFailedError
from lictor.raw import JsonObject

log = logging.getLogger(__name__)


class _Watched(msgspec.Struct, frozen=True):
    cache: Cache
    task: asyncio.Task[None]


class TriggerWatch:
    """Watches who triggers are and when they change; what they look like is asked when needed."""

    def __init__(
        self,
        client: Client,
        triggers: Triggers,
        downstream: Downstream,
        generation: Generation,
        watch: GenerationWatch,
        policies: PolicyBook,
    ) -> None:
        self._client = client
        self._policies = policies
        self._triggers = triggers
        self._downstream = downstream
        self._generation = generation
        self._watch = watch
        self._names: MetadataClient | None = None
        self._watched: dict[Resource, _Watched] = {}
        # Triggers that a rule had nothing to do for: in which state of both.
        self._idle: dict[tuple[str, str, str, str], tuple[str, str]] = {}
        self.enqueue: Callable[[GenerateRule, Trigger], None] = lambda rule, trigger: None  # noqa: ARG005

    async def follow(self, rules: Iterable[GenerateRule], kinds: Iterable[Resource]) -> None:
        """Watch the triggers of rules that keep things in step, and no others."""
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
        cache.listen(self._hear)
        self._watched[resource] = _Watched(cache, asyncio.create_task(cache.run()))

    async def stop(self) -> None:
        """Watch nothing any more."""
        tasks = [watched.task for watched in self._watched.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watched.clear()
        self._idle.clear()
        if self._names is not None:
            await self._names.close()
            self._names = None

    def _hear(self, change: Change) -> None:
        if change.type is not ChangeType.ADDED:
            self._watch.hear_trigger(str(change.object["metadata"].get("uid") or ""))

    async def heal(self, rules: Iterable[GenerateRule]) -> bool:
        """Find triggers that came after their rule and for which nothing is there.

        The request that told of them was lost, or what was made was deleted while nobody looked.
        False where some triggers are not known yet.
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
                self.enqueue(rule, _refer(resource, metadata))
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


def _refer(resource: Resource, metadata: JsonObject) -> Trigger:
    names = (str(metadata.get(name) or "") for name in ("namespace", "name", "uid"))
    return Trigger(resource.api_version, resource.kind, *names)


def _keep_identity(item: JsonObject) -> JsonObject:
    """Of a trigger only who it is, and since when."""
    metadata = item["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {"metadata": {name: metadata.get(name) for name in names}}
