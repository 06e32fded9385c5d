"""Objects that policies read repeatedly: watched if memory allows it, otherwise listed."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

from lictor.core.lang.field_mask import ALWAYS_LISTED, compile_field_mask
from lictor.core.ports import ObjectQuery
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, Keep, drop_managed_fields
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.work_queue import cancel_all

# The number of concurrent watches; and how long an unused one is kept.
_MOST_WATCHED = 64
_IDLE_SECONDS = 600.0
# The size limit of all watched objects, serialized; a query with more than half of it is not
# watched, and not tried again for a while.
_MOST_BYTES = 128 * 1024 * 1024
_PAUSE_SECONDS = 300.0
_MOST_REMEMBERED = 256


def _compile_keep(query: ObjectQuery) -> Keep:
    """Build the function that reduces an object to the fields of a query."""
    if not query.field_masks:
        return drop_managed_fields
    mask = compile_field_mask(query.field_masks, always=ALWAYS_LISTED)
    return lambda item: drop_managed_fields(mask(item))


@dataclass(slots=True)
class _Watched:
    """One query and its watch cache. Belongs to the event loop's thread."""

    cache: Cache
    task: asyncio.Task[None]
    asked_at: float
    # By uid, as far as it is known.
    sizes: dict[str, int] = field(default_factory=dict)
    size: int = 0
    # The same tuple until something changes.
    told: tuple[JsonObject, ...] | None = None

    def note(self, change: Change) -> None:
        self.told = None
        metadata = change.object["metadata"]
        key = f"{metadata.get('namespace') or ''}/{metadata['name']}"
        size = 0 if change.type == "DELETED" else len(orjson.dumps(change.object))
        self.size += size - self.sizes.pop(key, 0)
        if size:
            self.sizes[key] = size


class FollowedObjects:
    """Answers object queries. Runs on the client's event loop."""

    def __init__(
        self,
        client: Client,
        *,
        most_bytes: int = _MOST_BYTES,
        most_watched: int = _MOST_WATCHED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._most_bytes = most_bytes
        self._most_watched = most_watched
        self._clock = clock
        self._watched: dict[ObjectQuery, _Watched] = {}
        # When a query that is not watched was last used.
        self._heard: OrderedDict[ObjectQuery, float] = OrderedDict()
        # Queries whose results are too large, and until when they are not watched.
        self._refused: OrderedDict[ObjectQuery, float] = OrderedDict()

    async def select(self, query: ObjectQuery, resource: Resource) -> Sequence[JsonObject]:
        """The objects; those that are not watched (yet, or at the moment) are listed."""
        watched = self._find(query, resource)
        # A cache that misses changes must not be used.
        if watched is not None and watched.cache.is_synced and not watched.cache.trouble:
            if watched.told is None:
                watched.told = tuple(watched.cache.list())
            return watched.told
        keep = _compile_keep(query)
        found: list[JsonObject] = []
        async for page in self._client.list_pages(
            resource, query.namespace, labels=query.label_selector, fields=query.field_selector
        ):
            found += [keep(item) for item in page.get("items") or ()]
        return tuple(sorted(found, key=_sort_key))

    async def close(self) -> None:
        """Stop watching."""
        tasks = [each.task for each in self._watched.values()]
        self._watched.clear()
        await cancel_all(*tasks)

    def count_bytes(self) -> int:
        """The serialized size of the watched objects."""
        return sum(each.size for each in self._watched.values())

    def _find(self, query: ObjectQuery, resource: Resource) -> _Watched | None:
        now = self._clock()
        self._drop_idle(now)
        found = self._watched.get(query)
        if found is not None:
            found.asked_at = now
            return found
        if self._refused.get(query, 0.0) > now or not self._is_heard_again(query, now):
            return None
        if len(self._watched) >= self._most_watched:
            self._drop(min(self._watched, key=lambda each: self._watched[each].asked_at))
        return self._watch(query, resource, now)

    def _is_heard_again(self, query: ObjectQuery, now: float) -> bool:
        """A query that is used once is not worth a watch."""
        before = self._heard.pop(query, None)
        _remember(self._heard, query, now)
        return before is not None and now - before < _IDLE_SECONDS

    def _watch(self, query: ObjectQuery, resource: Resource, now: float) -> _Watched:
        cache = Cache(
            self._client,
            resource,
            namespace=query.namespace,
            labels=query.label_selector,
            fields=query.field_selector,
            keep=_compile_keep(query),
        )
        watched = _Watched(cache, asyncio.create_task(cache.run()), now)
        self._watched[query] = watched
        cache.listen(lambda change: self._note(query, watched, change))
        return watched

    def _note(self, query: ObjectQuery, watched: _Watched, change: Change) -> None:
        watched.note(change)
        if watched.size > self._most_bytes // 2 or self.count_bytes() > self._most_bytes:
            self._drop(query)
            _remember(self._refused, query, self._clock() + _PAUSE_SECONDS)

    def _drop(self, query: ObjectQuery) -> None:
        watched = self._watched.pop(query, None)
        if watched is not None:
            watched.task.cancel()

    def _drop_idle(self, now: float) -> None:
        for query in [q for q, w in self._watched.items() if now - w.asked_at > _IDLE_SECONDS]:
            self._drop(query)


def _remember(times: OrderedDict[ObjectQuery, float], query: ObjectQuery, time: float) -> None:
    times[query] = time
    if len(times) > _MOST_REMEMBERED:
        times.popitem(last=False)


def _sort_key(item: JsonObject) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
