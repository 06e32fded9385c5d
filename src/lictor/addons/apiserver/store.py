"""All objects of the cluster, each once, and what happened to them lately.

Objects that were not written recently are stored as compressed bytes: a Pod is five times as large
in memory as in JSON, and all Pods are much alike. Kinds with few objects are not compressed.
"""

import zlib
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec
import orjson

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.objects import key_of
from lictor.addons.apiserver.status_errors import already_exists, conflict, expired, not_found
from lictor.core.raw import Json, JsonObject

Key = TypeVar("Key")
# So many objects of a kind are kept ready to read.
UNCOMPRESSED = 256
# For texts of a few thousand bytes a small window is as good as a large one, and far quicker.
_WINDOW = -12
_LEVEL = 1
_COMPRESSION_MEMORY = 4


class Compressor:
    """Packs JSON values that are like one another: the first becomes the model of all."""

    def __init__(self) -> None:
        self._model = b""

    def pack(self, value: Json) -> bytes:
        """The compressed value; only this compressor can read it."""
        text = orjson.dumps(value)
        if not self._model:
            # The buffer of orjson is larger than its content.
            self._model = memoryview(text)[: 1 << -_WINDOW].tobytes()
        packing = zlib.compressobj(
            _LEVEL, zlib.DEFLATED, _WINDOW, _COMPRESSION_MEMORY, zdict=self._model
        )
        return packing.compress(text) + packing.flush()

    def unpack(self, packed: bytes) -> Json:
        """What was packed."""
        unpacking = zlib.decompressobj(_WINDOW, self._model)
        return orjson.loads(unpacking.decompress(packed))


class CompressedObjects(MutableMapping[Key, JsonObject], Generic[Key]):
    """Objects by key. They must not be changed in place, as each may be a copy."""

    def __init__(self, uncompressed: int = UNCOMPRESSED) -> None:
        self._objects: dict[Key, JsonObject | bytes] = {}
        self._uncompressed: OrderedDict[Key, None] = OrderedDict()
        self._most = uncompressed
        self._packer = Compressor()

    def __getitem__(self, key: Key) -> JsonObject:
        found = self._objects[key]
        document: JsonObject = self._packer.unpack(found) if isinstance(found, bytes) else found
        return document

    def __setitem__(self, key: Key, document: JsonObject) -> None:
        self._objects[key] = document
        self._uncompressed[key] = None
        self._uncompressed.move_to_end(key)
        if len(self._uncompressed) > self._most:
            oldest, _ = self._uncompressed.popitem(last=False)
            self._objects[oldest] = self._packer.pack(self._objects[oldest])

    def __delitem__(self, key: Key) -> None:
        del self._objects[key]
        self._uncompressed.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


# Namespace (empty for none) and name.
ObjectKey: TypeAlias = tuple[str, str]
# Group and plural: the same for all versions.
GroupResource: TypeAlias = tuple[str, str]
ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
# So many changes of a kind are remembered; between one and two times as many, to forget cheaply.
_MEMORY = 1024
# The number of uncompressed changes; older ones are rarely read.
_UNCOMPRESSED_CHANGES = 128
# Kinds that are two views of the same objects.
_SHARED: dict[GroupResource, GroupResource] = {("events.k8s.io", "events"): ("", "events")}


class StoreChange(msgspec.Struct, frozen=True):
    """Something happened to an object; a deleted one is shown as it last was."""

    resource: GroupResource
    type: str
    key: ObjectKey
    document: JsonObject
    old: JsonObject | None
    revision: int


ChangeListener: TypeAlias = Callable[[StoreChange], None]


class Journal(Protocol):
    """Where changes are written down, if anywhere."""

    def check(self) -> None:
        """Raise RefusedRequestError where no change can be written down now."""

    def write(self, change: StoreChange) -> None:
        """Take a change, to be committed soon."""

    async def settle(self) -> None:
        """Return when all changes so far are committed."""


class ResourceStorage:
    """The objects of one kind, in the order of their keys, and their latest changes."""

    def __init__(self, resource: GroupResource, horizon: int) -> None:
        self.resource = resource
        self.objects: MutableMapping[ObjectKey, JsonObject] = CompressedObjects()
        self.keys: list[ObjectKey] = []
        self.listeners: list[ChangeListener] = []
        # Changes up to this revision are forgotten.
        self.horizon = horizon
        self._log = _Log()
        # How many changes were dropped in front of the log: positions never change their meaning.
        self._dropped = 0

    def load(self, key: ObjectKey, document: JsonObject) -> None:
        """Put an object there that was there before we started."""
        self.objects[key] = document
        insort(self.keys, key)

    def record(self, change: StoreChange) -> None:
        """Apply a change, log it and notify the listeners."""
        if change.type == DELETED:
            del self.objects[change.key]
            del self.keys[bisect_left(self.keys, change.key)]
        else:
            if change.type == ADDED:
                insort(self.keys, change.key)
            self.objects[change.key] = change.document
        self._log.append(change)
        if len(self._log) > 2 * _MEMORY:
            self.horizon = self._log.forget(_MEMORY)
            self._dropped += _MEMORY
        for listener in self.listeners:
            listener(change)

    @property
    def end(self) -> int:
        """The position behind the latest change."""
        return self._dropped + len(self._log)

    def position_after(self, revision: int) -> int:
        """The position of the first change after a revision; Expired where it is forgotten."""
        if revision < self.horizon:
            raise expired(f"too old resource version: {revision} ({self.horizon})")
        return self._dropped + self._log.find_after(revision)

    def changes_from(self, position: int) -> list[StoreChange] | None:
        """All changes from a position on; None where some of them are forgotten."""
        start = position - self._dropped
        return self._log.read(start) if start >= 0 else None

    def select(self, namespace: str = "") -> Iterator[JsonObject]:
        """All objects, or those of a namespace, in order."""
        yield from map(self.objects.__getitem__, self.keys_of(namespace))

    def keys_of(self, namespace: str = "") -> list[ObjectKey]:
        """The keys of all objects, or of those of a namespace, in order."""
        if not namespace:
            return list(self.keys)
        start = bisect_left(self.keys, (namespace, ""))
        return self.keys[start : bisect_left(self.keys, (namespace + "\0", ""))]

    def at(self, revision: int) -> Mapping[ObjectKey, JsonObject]:
        """All objects as they were after a revision, by undoing what came later."""
        changes = self.changes_from(self.position_after(revision))
        if not changes:
            return self.objects
        return _Past(self.objects, {change.key: change.old for change in reversed(changes)})


class _Past(Mapping[ObjectKey, JsonObject]):
    """Objects as they were: those of today, but for the few that have changed since."""

    def __init__(
        self, today: Mapping[ObjectKey, JsonObject], undone: Mapping[ObjectKey, JsonObject | None]
    ) -> None:
        self._today = today
        self._undone = undone

    def __getitem__(self, key: ObjectKey) -> JsonObject:
        if key not in self._undone:
            return self._today[key]
        found = self._undone[key]
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[ObjectKey]:
        yield from (key for key in self._today if key not in self._undone)
        yield from (key for key, old in self._undone.items() if old is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Log:
    """Changes in their order; only the latest are kept ready to read."""

    def __init__(self) -> None:
        self._revisions: list[int] = []
        self._changes: list[StoreChange | bytes] = []
        self._packer = Compressor()

    def __len__(self) -> int:
        return len(self._changes)

    def append(self, change: StoreChange) -> None:
        self._revisions.append(change.revision)
        self._changes.append(change)
        index = len(self._changes) - _UNCOMPRESSED_CHANGES - 1
        if index >= 0 and isinstance(older := self._changes[index], StoreChange):
            self._changes[index] = self._packer.pack(msgspec.structs.astuple(older))

    def read(self, start: int) -> list[StoreChange]:
        """All changes from a position on."""
        return [
            each if isinstance(each, StoreChange) else self._unpack(each)
            for each in self._changes[start:]
        ]

    def find_after(self, revision: int) -> int:
        """The position of the first change after a revision."""
        return bisect_right(self._revisions, revision)

    def forget(self, count: int) -> int:
        """Drop the oldest; the revision of the last that is dropped."""
        last = self._revisions[count - 1]
        del self._revisions[:count], self._changes[:count]
        return last

    def _unpack(self, packed: bytes) -> StoreChange:
        resource, type_, key, document, old, revision = self._packer.unpack(packed)
        return StoreChange(tuple(resource), type_, tuple(key), document, old, revision)


class Store:
    """Objects by kind. They are never changed in place: readers may keep them."""

    def __init__(self, revision: int = 0, journal: Journal | None = None) -> None:
        self.revision = revision
        self._start = revision
        self._journal = journal
        self._storages: dict[GroupResource, ResourceStorage] = {}
        self._listeners: list[ChangeListener] = []

    def storage(self, group: str, plural: str) -> ResourceStorage:
        """Where the objects of a kind are kept."""
        resource = _SHARED.get((group, plural), (group, plural))
        storage = self._storages.get(resource)
        if storage is None:
            storage = self._storages[resource] = ResourceStorage(resource, self._start)
        return storage

    def storages(self) -> list[ResourceStorage]:
        """All that were ever used."""
        return list(self._storages.values())

    def get(self, kind: ServedKind, namespace: str, name: str) -> JsonObject | None:
        """One object, in the version in which it is kept."""
        return self.storage(kind.group, kind.plural).objects.get((namespace, name))

    def list(self, kind: ServedKind, namespace: str = "") -> list[JsonObject]:
        """All objects of a kind, or those of a namespace, in the order of their names."""
        return list(self.storage(kind.group, kind.plural).select(namespace))

    def subscribe(self, group: str, plural: str, callback: ChangeListener) -> Callable[[], None]:
        """Call back after each change of a kind, until what is returned is called."""
        listeners = self.storage(group, plural).listeners
        listeners.append(callback)
        return lambda: listeners.remove(callback)

    def subscribe_all(self, callback: ChangeListener) -> None:
        """Call back after each change of any object."""
        self._listeners.append(callback)

    def put(self, kind: ServedKind, document: JsonObject, *, expected: str | None) -> JsonObject:
        """Keep an object under a new resourceVersion.

        `expected` is the version that is replaced; empty where there may be none, None where any.
        """
        storage = self.storage(kind.group, kind.plural)
        key = key_of(document)
        old = storage.objects.get(key)
        _check_version(kind, key, old, expected)
        change = self._build_change(storage, key, document, old)
        self._record(storage, change)
        return change.document

    def remove(
        self, kind: ServedKind, namespace: str, name: str, *, expected: str | None = None
    ) -> JsonObject:
        """Keep an object no longer; gives it back as it last was."""
        storage = self.storage(kind.group, kind.plural)
        key = (namespace, name)
        old = storage.objects.get(key)
        if old is None:
            raise not_found(kind, name)
        _check_version(kind, key, old, expected)
        change = self._build_change(storage, key, None, old)
        self._record(storage, change)
        return change.document

    def undo(self, changes: Iterable[StoreChange]) -> tuple[StoreChange, ...]:
        """Make objects again what they were before these changes; the changes that this takes.

        Those who watch have seen the changes, so the way back is a change too.
        """
        before: dict[tuple[GroupResource, ObjectKey], JsonObject | None] = {}
        for change in changes:
            before.setdefault((change.resource, change.key), change.old)
        return tuple(
            undone
            for (resource, key), document in before.items()
            if (undone := self._restore(self.storage(*resource), key, document)) is not None
        )

    def _restore(
        self, storage: ResourceStorage, key: ObjectKey, document: JsonObject | None
    ) -> StoreChange | None:
        current = storage.objects.get(key)
        if document is None and current is None:
            return None
        change = self._build_change(storage, key, document, current)
        self._publish(storage, change)
        return change

    def _build_change(
        self,
        storage: ResourceStorage,
        key: ObjectKey,
        document: JsonObject | None,
        old: JsonObject | None,
    ) -> StoreChange:
        """A change to a document, or to none; a deleted one is shown as it last was."""
        type_ = DELETED if document is None else ADDED if old is None else MODIFIED
        shown: JsonObject = document or old or {}
        revision = self.revision + 1
        stored = {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(revision)}}
        return StoreChange(storage.resource, type_, key, stored, old, revision)

    def _record(self, storage: ResourceStorage, change: StoreChange) -> None:
        if self._journal is not None:
            self._journal.check()
            self._journal.write(change)
        self._publish(storage, change)

    def _publish(self, storage: ResourceStorage, change: StoreChange) -> None:
        self.revision = change.revision
        storage.record(change)
        for listener in self._listeners:
            listener(change)

    async def settle(self) -> None:
        """Return when nothing that has happened so far can be lost."""
        if self._journal is not None:
            await self._journal.settle()


def _check_version(
    kind: ServedKind, key: ObjectKey, old: JsonObject | None, expected: str | None
) -> None:
    if expected is None:
        return
    if expected == "":
        if old is not None:
            raise already_exists(kind, key[1])
    elif old is None:
        raise not_found(kind, key[1])
    elif old["metadata"]["resourceVersion"] != expected:
        raise conflict(kind, key[1])
