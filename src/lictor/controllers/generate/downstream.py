"""The generated objects and the sources of clones, watched and indexed by rule and trigger."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

import msgspec

from lictor.controllers.generate.labels import (
    CLONE_SOURCE,
    MADE,
    MANAGED,
    GenerationUnit,
    belongs_to,
    read_source,
    read_unit,
)
from lictor.core.errors import LookupFailedError
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.work_queue import cancel_all

log = logging.getLogger(__name__)

_K = TypeVar("_K")
UnitKey: TypeAlias = tuple[str, str, str, str]

# How long to wait for the first list of a kind.
_PATIENCE = 20.0
_LOOK_AGAIN = 0.02
_POLL = 3.0
# How long a kind is watched after it was last needed.
_LINGER = 30.0
_AT_ONCE = 4


class ObjectLocation(msgspec.Struct, frozen=True):
    """Where an object is."""

    resource: Resource
    namespace: str
    name: str


Listener: TypeAlias = Callable[[ObjectLocation, Change], None]


class _Watch(msgspec.Struct):
    cache: Cache
    task: asyncio.Task[None]
    # How often everything had been read when a new list was last requested.
    reads: int = -1
    # When someone last wanted it watched.
    used: float = 0.0

    @property
    def is_refused(self) -> bool:
        """Whether the last list or watch failed: the cache may be out of date."""
        return bool(self.cache.trouble)

    @property
    def is_listed_only(self) -> bool:
        """The controller may list, but not watch: each request caused a new list."""
        return self.is_refused and self.cache.reads > self.reads

    def hurry(self) -> None:
        self.reads = self.cache.reads
        self.cache.hurry()


class Downstream:
    """Caches of generated objects and of clone sources, by kind, as they are needed."""

    def __init__(self, client: Client, *, linger: float = _LINGER) -> None:
        self._client = client
        self.linger = linger
        self._made: dict[Resource, _Watch] = {}
        self._sources: dict[Resource, _Watch] = {}
        self._units: dict[UnitKey, dict[ObjectLocation, JsonObject]] = {}
        self._copies: dict[str, dict[ObjectLocation, JsonObject]] = {}
        self._triggers: dict[str, set[UnitKey]] = {}
        self._listeners: list[tuple[Listener, Listener]] = []

    def listen(self, on_generated: Listener, on_source: Listener) -> None:
        """Call these after each change of a generated object, and of a source."""
        self._listeners.append((on_generated, on_source))

    async def follow(self, resource: Resource, *, sources: bool = False) -> None:
        """Watch a kind from now on; returns after the first complete list.

        Raises LookupFailedError if it cannot be read.
        """
        watch = self._begin(resource, sources=sources)
        watch.used = time.monotonic()
        cache = watch.cache
        reads, faults = 0, cache.faults
        if watch.is_refused:
            # The cache's pauses would be too long once the missing role exists.
            reads = cache.reads
            watch.hurry()
        deadline = time.monotonic() + _PATIENCE
        # Where we may only list, the list is as new as this call.
        while cache.reads <= reads:
            if cache.faults > faults or time.monotonic() > deadline:
                why = cache.trouble or "the API server does not answer"
                raise LookupFailedError(f"cannot watch {resource.plural}: {why}")
            await asyncio.sleep(_LOOK_AGAIN)

    def _begin(self, resource: Resource, *, sources: bool) -> _Watch:
        watches = self._sources if sources else self._made
        watch = watches.get(resource)
        if watch is None:
            labels = CLONE_SOURCE if sources else MANAGED
            # managedFields are kept: they decide which fields are restored.
            cache = Cache(self._client, resource, labels=labels, keep=lambda item: item)
            cache.listen(self._hear_source(resource) if sources else self._hear(resource))
            watch = watches[resource] = _Watch(cache, asyncio.create_task(cache.run()))
        return watch

    async def release(self, made: set[Resource], sources: set[Resource]) -> None:
        """Stop watching all kinds but these: caches of deleted policies may contain Secrets."""
        recent = time.monotonic() - self.linger
        ended = []
        for watches, wanted in ((self._made, made), (self._sources, sources)):
            for resource, watch in list(watches.items()):
                if resource not in wanted and watch.used < recent:
                    ended.append(watches.pop(resource).task)
        await cancel_all(*ended)
        for location, item in list(self.all()):
            if location.resource not in self._made:
                self.forget(location, item)

    @property
    def watched(self) -> frozenset[Resource]:
        """The kinds that are watched now."""
        return frozenset((*self._made, *self._sources))

    async def poll(self) -> None:
        """Poll what may be listed, but not watched; until cancelled."""
        while True:
            await asyncio.sleep(_POLL)
            for watch in (*self._made.values(), *self._sources.values()):
                if watch.is_listed_only:
                    watch.hurry()

    async def discover(self, kinds: Iterable[Resource]) -> None:
        """Watch every kind of which generated objects exist."""
        gate = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(
            *(self._look_for(kind, gate) for kind in kinds if kind not in self._made)
        )

    async def _look_for(self, resource: Resource, gate: asyncio.Semaphore) -> None:
        try:
            async with gate:
                page = await self._client.request(
                    "GET", resource.path(), params={"labelSelector": MADE, "limit": 1}
                )
            if page.get("items") or (page.get("metadata") or {}).get("continue"):
                await self.follow(resource)
        except LookupFailedError as error:
            # Objects that we may not read were not generated by us.
            log.debug("kind not read", extra={"kind": resource.kind, "why": str(error)[:200]})

    async def stop(self) -> None:
        """Forget everything; the next `follow` begins anew."""
        watches = (*self._made.values(), *self._sources.values())
        await cancel_all(*(watch.task for watch in watches))
        for index in (self._made, self._sources, self._units, self._copies, self._triggers):
            index.clear()

    def of(self, unit: GenerationUnit) -> dict[ObjectLocation, JsonObject]:
        """The objects that were generated for a unit."""
        made = self._units.get(unit.key, {})
        return {location: item for location, item in made.items() if belongs_to(item, unit)}

    def find(self, location: ObjectLocation) -> JsonObject | None:
        """A generated object as the cache has it."""
        watch = self._made.get(location.resource)
        return watch.cache.get(location.name, location.namespace) if watch is not None else None

    def copies_of(self, uid: str) -> dict[ObjectLocation, JsonObject]:
        """The copies of one source."""
        return dict(self._copies.get(uid, {}))

    def has_source(self, resource: Resource, namespace: str, name: str, uid: str) -> bool:
        """Whether the source exists and is labelled as one."""
        watch = self._sources.get(resource)
        found = watch.cache.get(name, namespace) if watch is not None else None
        return found is not None and str(found["metadata"].get("uid")) == uid

    def units_of(self, trigger_uid: str) -> list[GenerationUnit]:
        """The units of one trigger."""
        keys = self._triggers.get(trigger_uid, set())
        items = (item for key in keys for item in self._units.get(key, {}).values())
        # All labels count, not those of the first object only: one of them may be forged.
        return list(dict.fromkeys(unit for item in items if (unit := read_unit(item)) is not None))

    def all(self) -> Iterator[tuple[ObjectLocation, JsonObject]]:
        """All generated objects."""
        for made in self._units.values():
            yield from made.items()

    def _hear(self, resource: Resource) -> Callable[[Change], None]:
        def hear(change: Change) -> None:
            location = locate_object(resource, change.object)
            if change.before is not None:
                self.forget(location, change.before)
            if change.type is ChangeType.DELETED:
                self.forget(location, change.object)
            else:
                self.remember(location, change.object)
            for on_generated, _ in self._listeners:
                on_generated(location, change)

        return hear

    def _hear_source(self, resource: Resource) -> Callable[[Change], None]:
        def hear(change: Change) -> None:
            for _, on_source in self._listeners:
                on_source(locate_object(resource, change.object), change)

        return hear

    def remember(self, location: ObjectLocation, item: JsonObject) -> None:
        """Index a generated object before the watch reports it."""
        unit = read_unit(item)
        if unit is None:
            return
        self._units.setdefault(unit.key, {})[location] = item
        self._triggers.setdefault(unit.trigger.uid, set()).add(unit.key)
        source = read_source(item)
        if source is not None:
            self._copies.setdefault(source.uid, {})[location] = item

    def forget(self, location: ObjectLocation, item: JsonObject) -> None:
        """Remove a generated object from the index."""
        unit = read_unit(item)
        if unit is None:
            return
        _drop(self._units, unit.key, location)
        if unit.key not in self._units:
            keys = self._triggers.get(unit.trigger.uid, set())
            keys.discard(unit.key)
            if not keys:
                self._triggers.pop(unit.trigger.uid, None)
        source = read_source(item)
        if source is not None:
            _drop(self._copies, source.uid, location)


def _drop(
    index: dict[_K, dict[ObjectLocation, JsonObject]], key: _K, location: ObjectLocation
) -> None:
    locations = index.get(key)
    if locations is not None:
        locations.pop(location, None)
        if not locations:
            del index[key]


def locate_object(resource: Resource, item: JsonObject) -> ObjectLocation:
    """The location of an object."""
    metadata = item["metadata"]
    return ObjectLocation(resource, str(metadata.get("namespace") or ""), str(metadata["name"]))
