"""Creates, updates and deletes single generated objects; writes nothing if they are right."""

import logging
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from lictor.controllers.generate.downstream import Downstream, ObjectLocation
from lictor.controllers.generate.labels import (
    CLONE_SOURCE,
    KEEP_ON_POLICY_DELETE,
    RELEASE,
    MetadataChanges,
)
from lictor.controllers.policy_writes import PolicyWrites
from lictor.core.errors import ApiError, ConflictError
from lictor.core.model.result import SourceRef
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource

_KEPT = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
# Kept where others added them, unless the rule sets them.
_OTHERS = ("finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds")


def merge_known(wanted: JsonObject, known: JsonObject, manager: str) -> JsonObject:
    """The object to write; equal to `known` if nothing changes.

    Labels and annotations of other managers stay, such as those of controllers; those that
    `manager` set and that are not wanted any more are removed. All else is as wanted.
    """
    old, new = known["metadata"], wanted["metadata"]
    metadata = {name: old[name] for name in _KEPT if name in old}
    metadata |= {name: old[name] for name in _OTHERS if name in old and name not in new}
    for name in ("labels", "annotations"):
        ours = set(_list_owned(old.get("managedFields"), manager, name))
        kept = {key: text for key, text in (old.get(name) or {}).items() if key not in ours}
        metadata[name] = {**kept, **(new.get(name) or {})}
    merged = {**wanted, "metadata": {**new, **metadata}}
    if "status" in known:
        merged.setdefault("status", known["status"])
    return merged


def _list_owned(fields: Json, manager: str, name: str) -> Iterator[str]:
    """The keys of a map in the metadata that a manager has set."""
    for entry in fields if isinstance(fields, list) else ():
        if not isinstance(entry, dict) or entry.get("manager") != manager:
            continue
        owned = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for key in owned.get(f"f:{name}") or ():
            if key.startswith("f:"):
                yield key.removeprefix("f:")


log = logging.getLogger(__name__)

_TRIES = 4


class GeneratedObject(msgspec.Struct, frozen=True):
    """An object as a rule wants it, and its clone source."""

    location: ObjectLocation
    body: JsonObject
    source: SourceRef | None
    # The namespace of the policy that wants it; empty where it has none.
    own: str
    # Where the source is, as the API server has it.
    origin: Resource | None = None


class WriteOutcome(StrEnum):
    """What was done to an object."""

    CREATED = "created"
    CHANGED = "changed"
    NOTHING = "nothing"


class GeneratedObjectWriter:
    """Writes generated objects, and remembers the versions it wrote."""

    def __init__(self, client: Client, writes: PolicyWrites, downstream: Downstream) -> None:
        self._client = client
        self._writes = writes
        self._downstream = downstream
        # The versions that we wrote: watch events with these need no action.
        self._left: dict[ObjectLocation, str] = {}
        # What we deleted, until the watch reports it.
        self._deleted: set[ObjectLocation] = set()

    def is_as_left(self, location: ObjectLocation, version: str) -> bool:
        """Is this the version that we wrote or found to be right?"""
        return bool(version) and self._left.get(location) == version

    def has_left(self, location: ObjectLocation) -> bool:
        """Have we written it, or found it to be right, at all?"""
        return location in self._left

    async def put(
        self, made: GeneratedObject, *, synchronize: bool, server_side: bool
    ) -> WriteOutcome:
        """Create or update an object; without synchronization, only create it."""
        known = self._downstream.find(made.location)
        if known is not None and not synchronize:
            return WriteOutcome.NOTHING
        if known is None:
            known = await self._create(made, server_side=server_side)
            if known is None:
                return WriteOutcome.CREATED
            if not synchronize:
                return WriteOutcome.NOTHING
        return await self._put_right(made, known, server_side=server_side)

    async def _create(self, made: GeneratedObject, *, server_side: bool) -> JsonObject | None:
        """Create it; returns the existing object where there is one."""
        location = made.location
        self._deleted.discard(location)
        for _ in range(_TRIES):
            try:
                if server_side:
                    known = await self._read(location)
                    if known is not None:
                        return known
                    stored = await self._writes.apply(location.resource, made.body, own=made.own)
                else:
                    stored = await self._writes.create(location.resource, made.body, own=made.own)
            except ConflictError:
                known = await self._read(location)
                if known is not None:
                    return known
                continue
            self._note(location, stored)
            return None
        raise ConflictError(f"{location.name} is created and deleted continuously")

    async def _put_right(
        self, made: GeneratedObject, known: JsonObject, *, server_side: bool
    ) -> WriteOutcome:
        location = made.location
        for _ in range(_TRIES):
            try:
                return await self._write(made, known, server_side=server_side)
            except ConflictError:
                found = await self._read(location)
                if found is None:
                    found = await self._create(made, server_side=server_side)
                    if found is None:
                        return WriteOutcome.CREATED
                known = found
        raise ConflictError(f"{location.name} is written by others continuously")

    async def _write(
        self, made: GeneratedObject, known: JsonObject, *, server_side: bool
    ) -> WriteOutcome:
        location = made.location
        if server_side:
            stored = await self._writes.apply(location.resource, made.body, own=made.own)
        else:
            merged = merge_known(made.body, known, self._writes.field_manager)
            if merged == known:
                self._note(location, known)
                return WriteOutcome.NOTHING
            merged["metadata"].pop("managedFields", None)
            stored = await self._writes.replace(location.resource, merged, own=made.own)
        self._note(location, stored)
        is_same = _version(stored) == _version(known)
        return WriteOutcome.NOTHING if is_same else WriteOutcome.CHANGED

    def note_gone(self, location: ObjectLocation) -> bool:
        """The object is gone; did we delete it?"""
        self._left.pop(location, None)
        is_ours = location in self._deleted
        self._deleted.discard(location)
        return is_ours

    def _note(self, location: ObjectLocation, stored: JsonObject) -> None:
        self._left[location] = _version(stored)
        self._downstream.remember(location, stored)

    async def delete(self, location: ObjectLocation, known: JsonObject, *, own: str) -> None:
        """Delete an object, but not another one that has taken its name."""
        uid = _uid(known)
        self._deleted.add(location)
        try:
            was_there = await self._writes.delete(
                location.resource,
                location.name,
                location.namespace,
                own=own,
                preconditions={"uid": uid} if uid else None,
            )
            if not was_there:
                self._deleted.discard(location)
                self._downstream.forget(location, known)
        except ConflictError:
            self._deleted.discard(location)
        except ApiError:
            self._deleted.discard(location)
            raise

    async def release(self, location: ObjectLocation, known: JsonObject, *, own: str) -> None:
        """Remove the labels by which an object belongs to a policy."""
        self._left.pop(location, None)
        await self._note_on(location, _uid(known), RELEASE, own=own)

    async def keep(self, location: ObjectLocation, known: JsonObject, *, own: str) -> None:
        """Keep an object when its policy is deleted."""
        await self._note_on(location, _uid(known), KEEP_ON_POLICY_DELETE, own=own)

    async def mark_source(self, made: GeneratedObject) -> None:
        """Label the source of a clone, so that its changes are watched."""
        source, origin = made.source, made.origin
        if source is None or origin is None:
            return
        await self._downstream.follow(origin, sources=True)
        if self._downstream.has_source(origin, source.namespace, source.name, source.uid):
            return
        try:
            location = ObjectLocation(origin, source.namespace, source.name)
            notes = MetadataChanges(labels={CLONE_SOURCE: ""})
            await self._note_on(location, source.uid, notes, own=made.own)
        except ApiError as error:
            # Without the label, changes are found by the resync only.
            log.info("source not marked", extra={"source": source.name, "why": str(error)[:200]})

    async def _read(self, location: ObjectLocation) -> JsonObject | None:
        return await self._client.find(location.resource, location.name, location.namespace)

    async def _note_on(
        self, location: ObjectLocation, uid: str, notes: MetadataChanges, *, own: str
    ) -> None:
        """Change labels and annotations. By PUT: roles often lack the verb patch."""
        for _ in range(_TRIES):
            known = await self._read(location)
            if known is None or _uid(known) != uid:
                return
            changed = notes.put_on(known)
            if changed == known:
                return
            try:
                await self._writes.replace(location.resource, changed, own=own)
            except ConflictError:
                continue
            return


def _uid(item: JsonObject) -> str:
    return str(item["metadata"].get("uid") or "")


def _version(item: JsonObject) -> str:
    return str(item["metadata"].get("resourceVersion") or "")
