"""Deletes the dependents of deleted owners, or removes their owner references.

Propagation policies: in the background (default) dependents go after their owner; in
the foreground before it; orphans stay and forget their owner.
"""

from collections.abc import Iterator
from typing import TypeAlias

from lictor.addons.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import is_ending, version_of
from lictor.addons.apiserver.patches import PatchKind
from lictor.addons.apiserver.service_account_tokens import name_controller
from lictor.addons.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.work_queue import WorkQueue

COLLECTOR = name_controller("generic-garbage-collector")
# An object: its resource and its key.
StoredObject: TypeAlias = tuple[GroupResource, ObjectKey]
_NOT_FOUND = 404


def _owners(document: JsonObject | None) -> list[Json]:
    if document is None:
        return []
    return document["metadata"].get("ownerReferences") or []


def _uid(document: JsonObject) -> str:
    return document["metadata"].get("uid") or ""


class GarbageCollector:
    """Knows who belongs to whom, and looks after those whose owner goes."""

    def __init__(self, api: LoopbackClient, store: Store, catalogue: KindCatalogue) -> None:
        self._api = api
        self._store = store
        self._catalogue = catalogue
        # An owner's uid -> those who name it.
        self._dependents: dict[str, set[StoredObject]] = {}
        self._living: dict[str, StoredObject] = {}
        self._queue: WorkQueue[StoredObject] = WorkQueue("garbage", self._reconcile)
        for storage in store.storages():
            for key, document in storage.objects.items():
                self._note((storage.resource, key), document)
        store.subscribe_all(self._on_change)

    async def run(self) -> None:
        """Look after objects until cancelled."""
        for items in list(self._dependents.values()):
            for item in items:
                self._queue.add(item)
        for item in list(self._living.values()):
            found = self._find(item)
            if found is not None and _has_duty(found[1]):
                self._queue.add(item)
        await self._queue.run()

    # --- who belongs to whom

    def _on_change(self, change: StoreChange) -> None:
        item = (change.resource, change.key)
        if change.type == DELETED:
            self._forget(item, change.document)
            return
        before, after = _owners(change.old), _owners(change.document)
        if before != after and change.old is not None:
            self._drop_references(item, change.old)
        self._note(item, change.document)
        if after or _has_duty(change.document):
            self._queue.add(item)

    def _note(self, item: StoredObject, document: JsonObject) -> None:
        self._living[_uid(document)] = item
        for owner in _owners(document):
            self._dependents.setdefault(str(owner.get("uid")), set()).add(item)

    def _forget(self, item: StoredObject, document: JsonObject) -> None:
        uid = _uid(document)
        self._living.pop(uid, None)
        self._drop_references(item, document)
        for dependent in self._dependents.get(uid, ()):
            self._queue.add(dependent)
        # An owner that waits for its dependents may go on now.
        for owner in _owners(document):
            if waiting := self._living.get(str(owner.get("uid"))):
                self._queue.add(waiting)

    def _drop_references(self, item: StoredObject, document: JsonObject) -> None:
        for owner in _owners(document):
            uid = str(owner.get("uid"))
            items = self._dependents.get(uid)
            if items is not None:
                items.discard(item)
                if not items:
                    del self._dependents[uid]

    def _find(self, item: StoredObject) -> tuple[ServedKind, JsonObject] | None:
        (group, plural), (namespace, name) = item
        kind = self._catalogue.preferred(group, plural)
        document = None if kind is None else self._store.get(kind, namespace, name)
        return None if kind is None or document is None else (kind, document)

    # --- what is to be done

    async def _reconcile(self, item: StoredObject) -> bool:
        found = self._find(item)
        if found is None:
            return True
        kind, document = found
        try:
            if _has_duty(document):
                return await self._end_owner(kind, document)
            if _owners(document) and not is_ending(document):
                await self._check_owners(kind, document)
        except RefusedRequestError as error:
            if error.code != _NOT_FOUND:
                raise
        return True

    async def _check_owners(self, kind: ServedKind, document: JsonObject) -> None:
        """Delete it where none of its owners is left; let it forget those that are gone."""
        solid, gone, waiting = self._sort_owners(document)
        if len(solid) == len(_owners(document)):
            return
        if solid:
            # With an owner that stays it need not go with the others.
            await self._forget_owners(kind, document, gone | waiting)
        elif waiting:
            has_own = _uid(document) in self._dependents
            await self._delete(kind, document, "Foreground" if has_own else "Background")
        else:
            await self._delete(kind, document, _choose_policy(document))

    def _sort_owners(self, document: JsonObject) -> tuple[list[Json], set[str], set[str]]:
        """Owners that stay, uids of those that are gone, and of those that wait for this one."""
        solid, gone, waiting = [], set(), set()
        for reference in _owners(document):
            if not self._is_resolvable(document, reference):
                solid.append(reference)
                continue
            owner = self._find_owner(document, reference)
            if owner is None:
                gone.add(str(reference.get("uid")))
            elif is_ending(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ()):
                waiting.add(str(reference.get("uid")))
            else:
                solid.append(reference)
        return solid, gone, waiting

    def _is_resolvable(self, document: JsonObject, reference: JsonObject) -> bool:
        """Is the kind of the owner known? An owner of an unknown kind counts as existing."""
        version, name = str(reference.get("apiVersion")), str(reference.get("kind"))
        kind = self._catalogue.find_kind(version, name)
        if kind is None:
            return False
        return bool(document["metadata"].get("namespace")) or not kind.namespaced

    def _find_owner(self, document: JsonObject, reference: JsonObject) -> JsonObject | None:
        item = self._living.get(str(reference.get("uid")))
        found = None if item is None else self._find(item)
        if item is None or found is None:
            return None
        kind, owner = found
        # An owner in another namespace is none: it is taken for gone.
        if kind.namespaced and item[1][0] != document["metadata"].get("namespace"):
            return None
        is_same = kind.kind == reference.get("kind") and item[1][1] == reference.get("name")
        return owner if is_same else None

    async def _forget_owners(self, kind: ServedKind, document: JsonObject, uids: set[str]) -> None:
        left = [each for each in _owners(document) if str(each.get("uid")) not in uids]
        await self._patch(kind, document, {"ownerReferences": left or None})

    async def _patch(self, kind: ServedKind, document: JsonObject, change: JsonObject) -> None:
        """Change metadata, unless another client changed the object meanwhile."""
        metadata = document["metadata"]
        patch = {"metadata": {**change, "resourceVersion": version_of(document)}}
        namespace = metadata.get("namespace") or ""
        await self._api.patch(
            COLLECTOR, kind, metadata["name"], PatchKind.MERGE, patch, namespace=namespace
        )

    async def _delete(self, kind: ServedKind, document: JsonObject, policy: str) -> None:
        metadata = document["metadata"]
        await self._api.delete(
            COLLECTOR,
            kind,
            metadata["name"],
            namespace=metadata.get("namespace") or "",
            options=DeleteOptions(propagation_policy=policy, uid=_uid(document)),
        )

    # --- owners that wait

    async def _end_owner(self, kind: ServedKind, document: JsonObject) -> bool:
        """Let orphans go, or dependents first; then let go of the owner. True where it is done."""
        uid = _uid(document)
        finalizers = document["metadata"].get("finalizers") or []
        dependents = list(self._list_dependents(uid))
        if ORPHAN in finalizers:
            for dependent_kind, dependent in dependents:
                await self._forget_owners(dependent_kind, dependent, {uid})
            await self._drop_finalizer(kind, document, ORPHAN)
            return True
        blocking = [each for each in dependents if _blocks(each[1], uid)]
        for dependent_kind, dependent in dependents:
            if not is_ending(dependent):
                await self._check_owners(dependent_kind, dependent)
        if blocking:
            # The deletion of each one queues the owner again.
            return True
        await self._drop_finalizer(kind, document, FOREGROUND)
        return True

    def _list_dependents(self, uid: str) -> Iterator[tuple[ServedKind, JsonObject]]:
        for item in sorted(self._dependents.get(uid, ())):
            found = self._find(item)
            if found is not None:
                yield found

    async def _drop_finalizer(self, kind: ServedKind, document: JsonObject, finalizer: str) -> None:
        finalizers = document["metadata"].get("finalizers") or ()
        left = [each for each in finalizers if each != finalizer]
        await self._patch(kind, document, {"finalizers": left or None})


def _has_duty(document: JsonObject) -> bool:
    """Is it an owner that waits for us?"""
    finalizers = document["metadata"].get("finalizers") or ()
    return is_ending(document) and (ORPHAN in finalizers or FOREGROUND in finalizers)


def _blocks(document: JsonObject, uid: str) -> bool:
    return any(
        str(each.get("uid")) == uid and each.get("blockOwnerDeletion") for each in _owners(document)
    )


def _choose_policy(document: JsonObject) -> str:
    finalizers = document["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"
