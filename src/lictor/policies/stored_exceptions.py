"""Which exceptions from policies are there, and which policies do they name?

Of thousands of exceptions, most are from policies of one team, and many from none that is there.
They are kept as the text that came, and read as records where there is a policy that they name.
"""

import asyncio
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.errors import ApiError
from lictor.core.families.family import Family
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, drop_managed_fields
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import Resource, find_resource
from lictor.kubernetes.stored_policy import StoredPolicy

# The group (both kinds have one name), the namespace and the name of an exception.
_Place: TypeAlias = tuple[str, str, str]
_KEPT = ("namespace", "name", "uid", "resourceVersion")
_PACKED = "packed"
# If a family cannot list the policies that an exception names, every policy is compared.
_ANY = ""
# Seconds between two looks at how many exceptions exist, and for how long new ones are waited for.
_COUNT_PAUSE = 0.1
_MISSING_SECONDS = 1.0


def list_exception_resources() -> tuple[Resource, ...]:
    """The kinds of exceptions from policies."""
    return tuple(map(find_resource, registry().with_role(Role.EXCEPTION)))


class _Entry(msgspec.Struct, frozen=True):
    """An exception as it is kept, and the policies that it names."""

    item: JsonObject
    names: tuple[str, ...]


class StoredExceptions:
    """The exceptions that the installation heeds, found by the policies that they name."""

    def __init__(self, client: Client, flags: Flags) -> None:
        self._caches = _watch(client, flags)
        # Another number after each change.
        self.revision = 0
        self._seen = -1
        # In the order of kinds, namespaces and names.
        self._entries: dict[_Place, _Entry] = {}
        self._index: Mapping[str, list[tuple[int, _Place]]] = {}
        # Of those that a policy was found for: the item that was read.
        self._records: dict[_Place, tuple[JsonObject, PolicyRecord]] = {}
        # By kind, for callers that list all of them.
        self._listed: dict[Resource, tuple[int, tuple[PolicyRecord, ...]]] = {}
        self._client = client
        self._changed = asyncio.Event()
        self._counting = asyncio.Lock()
        self._counted_at = 0.0
        self._was_behind = False
        for cache in self.caches:
            cache.listen(self._note_change)

    @property
    def caches(self) -> tuple[Cache, ...]:
        return tuple(self._caches.values())

    def find(self, policy: StoredPolicy) -> tuple[PolicyRecord, ...]:
        """Those that can be read and that name a policy."""
        return tuple(record for _, record in self._find(policy))

    def find_documents(self, policy: StoredPolicy) -> tuple[JsonObject, ...]:
        """The same as they came."""
        return tuple(orjson.loads(item[_PACKED]) for item, _ in self._find(policy))

    def list_all(self, families: Container[Family]) -> Iterator[PolicyRecord]:
        """All of some families."""
        for kind in self._caches:
            if registry().get(kind.group, kind.kind).family in families:
                yield from self._list_kind(kind)

    def find_named(self, policy: StoredPolicy) -> tuple[PolicyRecord, ...]:
        """Those that name a policy of this name, of any kind."""
        return tuple(record for _, record in self._find_candidates(policy))

    async def prepare(self) -> None:
        """Read what has changed, beside other work."""
        if self._seen != self.revision:
            revision, items = self.revision, self._list_items()
            entries = await asyncio.to_thread(_read_new, items, self._entries)
            self._take(entries, revision)

    async def catch_up(self) -> bool:
        """Wait for exceptions that exist and that no watch has reported yet; were there any?

        Callers that wait at the same time share the next look at the API server.
        """
        asked_at = time.monotonic()
        async with self._counting:
            if self._counted_at <= asked_at:
                await asyncio.sleep(_COUNT_PAUSE - (time.monotonic() - self._counted_at))
                self._counted_at = time.monotonic()
                behind = await asyncio.gather(*map(self._wait_for_missing, self.caches))
                self._was_behind = any(behind)
            return self._was_behind

    async def _wait_for_missing(self, cache: Cache) -> bool:
        try:
            number = await self._client.count(cache.resource, cache.namespace)
        except ApiError:
            # The verdict stands as it is; the watch reports why exceptions cannot be read.
            return False
        if number <= len(cache):
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(_MISSING_SECONDS):
                while len(cache) < number:
                    self._changed.clear()
                    await self._changed.wait()
        return True

    def _find(self, policy: StoredPolicy) -> Iterator[tuple[JsonObject, PolicyRecord]]:
        for item, record in self._find_candidates(policy):
            if _concerns(record, policy):
                yield item, record

    def _find_candidates(self, policy: StoredPolicy) -> Iterator[tuple[JsonObject, PolicyRecord]]:
        if self._seen != self.revision:
            self._take(_read_new(self._list_items(), self._entries), self.revision)
        names = dict.fromkeys((policy.key, policy.name))
        for _, place in sorted({each for name in names for each in self._index.get(name, ())}):
            item = self._entries[place].item
            for record in self._load(place, item):
                yield item, record

    def _list_kind(self, kind: Resource) -> tuple[PolicyRecord, ...]:
        known = self._listed.get(kind)
        if known is None or known[0] != self.revision:
            made = tuple(each for item in self._caches[kind].list() for each in _read(item))
            known = self._listed[kind] = (self.revision, made)
        return known[1]

    def _load(self, place: _Place, item: JsonObject) -> tuple[PolicyRecord, ...]:
        known = self._records.get(place)
        if known is not None and known[0] is item:
            return (known[1],)
        made = _read(item)
        for record in made:
            self._records[place] = (item, record)
        return made

    def _list_items(self) -> dict[_Place, JsonObject]:
        return {
            (kind.group, item["metadata"].get("namespace") or "", item["metadata"]["name"]): item
            for kind, cache in self._caches.items()
            for item in cache.list()
        }

    def _take(self, entries: dict[_Place, _Entry], revision: int) -> None:
        self._entries, self._seen = entries, revision
        self._index = _index(entries)
        self._records = {
            place: known
            for place, known in self._records.items()
            if place in entries and entries[place].item is known[0]
        }

    def _note_change(self, _: Change) -> None:
        self.revision += 1
        self._changed.set()


def _watch(client: Client, flags: Flags) -> dict[Resource, Cache]:
    if not (flags.enable_policy_exception and flags.exception_namespace):
        return {}
    namespace = flags.exception_namespace.replace("*", "")
    return {
        kind: Cache(client, kind, namespace=namespace, keep=_pack)
        for kind in list_exception_resources()
    }


def _pack(item: JsonObject) -> JsonObject:
    """The exception as text, and what it is known by."""
    metadata = drop_managed_fields(item)["metadata"]
    known = {name: metadata[name] for name in _KEPT if name in metadata}
    if "namespace" in known:
        known["namespace"] = sys.intern(known["namespace"])
    # The bytes of orjson keep the buffer that was allocated for them: several times as large.
    text = bytes(memoryview(orjson.dumps(item)))
    return {"kind": item.get("kind"), "metadata": known, _PACKED: text}


def _read_new(
    items: Mapping[_Place, JsonObject], before: Mapping[_Place, _Entry]
) -> dict[_Place, _Entry]:
    """What each item names; only those that were not there before are read."""
    made: dict[_Place, _Entry] = {}
    for place, item in items.items():
        known = before.get(place)
        is_same = known is not None and known.item is item
        made[place] = known if known and is_same else _Entry(item, _list_names(_read(item)))
    return made


def _read(item: JsonObject) -> tuple[PolicyRecord, ...]:
    """The record; nothing where it cannot be read."""
    metadata = item["metadata"]
    source = f"PolicyException/{metadata.get('namespace')}/{metadata['name']}"
    loaded = load_documents(item[_PACKED], source)
    return tuple(sourced.record for sourced in loaded.with_role(Role.EXCEPTION))


def _list_names(records: Iterable[PolicyRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for record in records for name in _name_policies(record)))


def _name_policies(exception: PolicyRecord) -> Iterator[str]:
    for name, _ in registry().of(exception).family.list_excepted(exception):
        yield name


def _index(entries: Mapping[_Place, _Entry]) -> dict[str, list[tuple[int, _Place]]]:
    found: dict[str, list[tuple[int, _Place]]] = {}
    for order, (place, entry) in enumerate(entries.items()):
        for name in entry.names:
            found.setdefault(name, []).append((order, place))
    return found


def _concerns(exception: PolicyRecord, policy: StoredPolicy) -> bool:
    family = registry().of(exception).family
    return family.names_policy(exception, policy.kind, policy.key)
