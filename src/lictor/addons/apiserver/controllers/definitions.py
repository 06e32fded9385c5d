"""CustomResourceDefinitions: their kinds come with them, and go with all their objects."""

from lictor.addons.apiserver.context import SYSTEM
from lictor.addons.apiserver.json_fields import read_list, read_object
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.kinds.custom_kind import read_storage_version
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import is_ending, read_clock
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.resources.custom_resource_definition import CLEANUP
from lictor.addons.apiserver.store import DELETED, Store, StoreChange
from lictor.core.raw import JsonObject
from lictor.kubernetes.work_queue import WorkQueue

_GROUP, _PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
_KEEPER: ApiUser = SYSTEM


class DefinitionController:
    """Keeps the catalogue and the status of definitions, and removes objects of deleted ones."""

    def __init__(self, api: LoopbackClient, store: Store, catalogue: KindCatalogue) -> None:
        self._api = api
        self._store = store
        self._catalogue = catalogue
        self._kind = kind = catalogue.require(_GROUP, _PLURAL)
        self._queue: WorkQueue[str] = WorkQueue("definitions", self._reconcile, workers=1)
        for document in store.list(kind):
            catalogue.define(document)
        store.subscribe(_GROUP, _PLURAL, self._on_change)
        # The last object of a kind that goes lets its definition go.
        store.subscribe_all(self._on_deletion)

    async def run(self) -> None:
        """Look after definitions until cancelled."""
        for document in self._store.list(self._kind):
            self._queue.add(document["metadata"]["name"])
        await self._queue.run()

    def _on_change(self, change: StoreChange) -> None:
        name = change.key[1]
        if change.type == DELETED:
            self._catalogue.forget(name)
            return
        is_new = change.old is None or change.old.get("spec") != change.document.get("spec")
        # At once: the client that created a definition may use it in its next request.
        if is_new and not find_conflict(change.document, self._store.list(self._kind)):
            self._catalogue.define(change.document)
        self._queue.add(name)

    def _on_deletion(self, change: StoreChange) -> None:
        if change.type != DELETED:
            return
        group, plural = change.resource
        found = self._store.get(self._kind, "", f"{plural}.{group}") if group else None
        if found is not None and is_ending(found):
            self._queue.add(f"{plural}.{group}")

    async def _reconcile(self, name: str) -> bool:
        document = self._store.get(self._kind, "", name)
        if document is None:
            return True
        if is_ending(document):
            return await self._clear(document)
        others = self._store.list(self._kind)
        status = compute_status(document, others, read_clock())
        if status != document.get("status"):
            version = document["metadata"]["resourceVersion"]
            self._store.put(self._kind, {**document, "status": status}, expected=version)
            await self._store.settle()
        return True

    async def _clear(self, document: JsonObject) -> bool:
        """Remove the objects, then let the definition go; True where nothing is left to do."""
        finalizers = read_list(document["metadata"], "finalizers")
        if CLEANUP not in finalizers:
            return True
        names = document["spec"]["names"]
        kind = self._catalogue.preferred(document["spec"]["group"], names["plural"])
        if kind is not None and not self._remove_all(kind):
            # The finalizers of the last ones wake us up.
            return True
        left = [each for each in finalizers if each != CLEANUP]
        metadata = {**document["metadata"], "finalizers": left}
        await self._api.update(_KEEPER, self._kind, {**document, "metadata": metadata})
        return True

    def _remove_all(self, kind: ServedKind) -> bool:
        """Remove all objects without admission, as an API server does; whether none is left."""
        now = read_clock()
        for item in self._store.list(kind):
            metadata = item["metadata"]
            if not metadata.get("finalizers"):
                self._store.remove(kind, metadata.get("namespace") or "", metadata["name"])
            elif not is_ending(item):
                marked = {**metadata, "deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
                version = metadata["resourceVersion"]
                self._store.put(kind, {**item, "metadata": marked}, expected=version)
        return not self._store.list(kind)


# --- the status of a definition


def compute_status(document: JsonObject, others: list[JsonObject], now: str) -> JsonObject:
    """The status of a definition among the others; times change only with what they are about."""
    status = read_object(document, "status")
    names = document["spec"]["names"]
    fault = find_conflict(document, others)
    if fault:
        accepted = ("False", fault[0], fault[1])
        established = ("False", "NotAccepted", "not all names are accepted")
    else:
        accepted = ("True", "NoConflicts", "no conflicts found")
        detail = "the initial names have been accepted"
        established = ("True", "InitialNamesAccepted", detail)
    known = read_list(status, "conditions")
    if any(_is_true(each, "Established") for each in known):
        # Once established, always established.
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    return {
        **status,
        "acceptedNames": read_object(status, "acceptedNames") if fault else names,
        "conditions": _set_conditions(
            known, {"NamesAccepted": accepted, "Established": established}, now
        ),
        "storedVersions": _list_stored(document, status),
    }


def _is_true(condition: JsonObject, kind: str) -> bool:
    return condition.get("type") == kind and condition.get("status") == "True"


def _set_conditions(
    known: list[JsonObject], wanted: dict[str, tuple[str, str, str]], now: str
) -> list[JsonObject]:
    kept = [each for each in known if each.get("type") not in wanted]
    for kind, (value, reason, message) in wanted.items():
        before = next((each for each in known if each.get("type") == kind), {})
        since = before.get("lastTransitionTime") if before.get("status") == value else now
        kept.append(
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since or now,
            }
        )
    return kept


def _list_stored(document: JsonObject, status: JsonObject) -> list[str]:
    stored = [*read_list(status, "storedVersions")]
    current = read_storage_version(document)
    return stored if current in stored else [*stored, current]


def find_conflict(document: JsonObject, others: list[JsonObject]) -> tuple[str, str] | None:
    """Reason and message, where another definition of the group has one of the names already."""
    taken = {
        name
        for other in others
        if other["metadata"]["name"] != document["metadata"]["name"]
        and other["spec"]["group"] == document["spec"]["group"]
        for _, name in _list_names(read_object(read_object(other, "status"), "acceptedNames"))
    }
    for field, name in _list_names(document["spec"]["names"]):
        if name in taken:
            return f"{field[0].upper()}{field[1:]}Conflict", f'"{name}" is already in use'
    return None


def _list_names(names: JsonObject) -> list[tuple[str, str]]:
    """Fields and names, in the order in which conflicts are reported."""
    short = [("shortNames", name) for name in names.get("shortNames") or ()]
    first, last = ("plural", "singular"), ("kind", "listKind")
    return [
        *((field, names[field]) for field in first if names.get(field)),
        *short,
        *((field, names[field]) for field in last if names.get(field)),
    ]
