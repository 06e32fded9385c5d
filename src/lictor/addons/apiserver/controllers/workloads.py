"""The controllers of workloads, and what a controller can do: read, write and tell as its own user.

Pods are made and counted, as on a cluster whose nodes have not come yet: they stay pending.
"""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from lictor.addons.apiserver.kind import Catalogue, ServedKind
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import find_controller, read_clock
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.resources.registry import Reconcile
from lictor.addons.apiserver.service_account_tokens import ACCOUNT_PREFIX, account_groups
from lictor.addons.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject
from lictor.kubernetes.work_queue import WorkQueue

if TYPE_CHECKING:
    from lictor.addons.apiserver.loopback_client import LoopbackClient


Workload: TypeAlias = tuple[GroupResource, ObjectKey]
_FIRST_PAUSE = 0.4
_LONGEST_PAUSE = 60.0
# A webhook that does not answer holds up one of them, not all.
_WORKERS = 4


class WorkloadControllers:
    """All controllers that built-in kinds declare; one worker per object."""

    def __init__(self, api: LoopbackClient, store: Store, catalogue: Catalogue) -> None:
        self._owned = OwnedObjects()
        self._store = store
        self._controllers: dict[GroupResource, tuple[ControllerClient, Reconcile]] = {}
        self._resources: dict[tuple[str, str], GroupResource] = {}
        for kind in catalogue:
            if kind.traits.controller is not None:
                resource = (kind.group, kind.plural)
                name, reconcile = kind.traits.controller.name, kind.traits.controller.reconcile
                client = ControllerClient(api, store, catalogue, self._owned, name)
                self._controllers[resource] = client, reconcile
                self._resources[kind.group, kind.kind] = resource
        self._queue: WorkQueue[Workload] = WorkQueue(
            "workloads",
            self._reconcile,
            workers=_WORKERS,
            pauses=(_FIRST_PAUSE, _LONGEST_PAUSE),
            # What failed has written that it did: that alone is no reason to try again at once.
            waits_after_failure=True,
        )

    async def run(self) -> None:
        """Look after workloads until cancelled."""
        watched = (*self._controllers, PODS, REVISIONS)
        ends = [self._store.subscribe(*resource, self._hear) for resource in watched]
        for resource in watched:
            for key, document in list(self._store.storage(*resource).objects.items()):
                self._note(resource, key, document, gone=False)
        try:
            await self._queue.run()
        finally:
            for end in ends:
                end()

    def _hear(self, change: StoreChange) -> None:
        self._note(change.resource, change.key, change.document, gone=change.type == DELETED)

    def _note(
        self, resource: GroupResource, key: ObjectKey, document: JsonObject, *, gone: bool
    ) -> None:
        self._owned.note(resource, document, gone=gone)
        if resource in self._controllers:
            self._queue.add((resource, key))
        reference = find_controller(document)
        if reference is None:
            return
        group = str(reference.get("apiVersion") or "").rpartition("/")[0]
        owners = self._resources.get((group, str(reference.get("kind"))))
        if owners is not None:
            self._queue.add((owners, (key[0], str(reference.get("name")))))

    async def _reconcile(self, workload: Workload) -> bool | float:
        """Look at one object; in how many seconds to look again."""
        resource, key = workload
        document = self._store.storage(*resource).objects.get(key)
        if document is None:
            return True
        client, reconcile = self._controllers[resource]
        try:
            pause = await reconcile(client, document)
        except (ObjectRefusedError, RefusedRequestError) as error:
            # Policies change: what was refused may be taken later.
            log.debug("workload waits", extra={"workload": key, "why": str(error)[:200]})
            return False
        return True if pause is None else pause


log = logging.getLogger(__name__)
PODS: GroupResource = ("", "pods")
EVENTS: GroupResource = ("", "events")
CLAIMS: GroupResource = ("", "persistentvolumeclaims")
DEPLOYMENTS: GroupResource = ("apps", "deployments")
REPLICA_SETS: GroupResource = ("apps", "replicasets")
STATEFUL_SETS: GroupResource = ("apps", "statefulsets")
DAEMON_SETS: GroupResource = ("apps", "daemonsets")
REVISIONS: GroupResource = ("apps", "controllerrevisions")
JOBS: GroupResource = ("batch", "jobs")
CRON_JOBS: GroupResource = ("batch", "cronjobs")
_HOME = "kube-system"
_LONGEST_MESSAGE = 1024
_MOST_TOLD = 1000


class OwnedObjects:
    """Which objects does an owner control? Kept in step with the store."""

    def __init__(self) -> None:
        # Owner's uid and the resource of its children -> their namespaces and names.
        self._children: dict[tuple[str, GroupResource], set[tuple[str, str]]] = {}

    def note(self, resource: GroupResource, document: JsonObject, *, gone: bool) -> None:
        """An object came, changed or went."""
        reference = find_controller(document)
        if reference is None:
            return
        metadata = document["metadata"]
        key = (str(reference.get("uid")), resource)
        name = (str(metadata.get("namespace") or ""), str(metadata["name"]))
        if not gone:
            self._children.setdefault(key, set()).add(name)
            return
        known = self._children.get(key, set())
        known.discard(name)
        if not known:
            self._children.pop(key, None)

    def list(self, uid: str, resource: GroupResource) -> list[tuple[str, str]]:
        """Namespaces and names, in order."""
        return sorted(self._children.get((uid, resource), ()))


class ObjectRefusedError(Exception):
    """An object that a controller needs was refused: by a policy, as a rule."""


class ControllerClient:
    """What one controller reads and writes, as the user that it is on any cluster."""

    def __init__(
        self,
        api: "LoopbackClient",
        store: Store,
        catalogue: Catalogue,
        owned: OwnedObjects,
        controller: str,
    ) -> None:
        self._api = api
        self._store = store
        self._catalogue = catalogue
        self._owned = owned
        self._controller = controller
        self._user = ApiUser(f"{ACCOUNT_PREFIX}{_HOME}:{controller}", account_groups(_HOME))
        # What was told lately, to say it again in fewer words.
        self._told: OrderedDict[tuple[str, str, str], JsonObject] = OrderedDict()

    def find(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        """One object."""
        return self._store.storage(*resource).objects.get((namespace, name))

    def list_children(self, owner: JsonObject, resource: GroupResource) -> list[JsonObject]:
        """What an owner controls, in the order of names."""
        keys = self._owned.list(owner["metadata"]["uid"], resource)
        found = (self.find(resource, *key) for key in keys)
        return [each for each in found if each is not None]

    async def create(self, resource: GroupResource, document: JsonObject) -> JsonObject:
        """Make an object; raises ObjectRefusedError."""
        try:
            return await self._api.create(self._user, self._kind(resource), document)
        except RefusedRequestError as error:
            raise ObjectRefusedError(error.message) from error

    async def update(self, resource: GroupResource, document: JsonObject) -> JsonObject:
        """Replace an object."""
        return await self._api.update(self._user, self._kind(resource), document)

    async def delete(self, resource: GroupResource, document: JsonObject) -> None:
        """Delete an object, and what belongs to it; it may be gone already."""
        metadata = document["metadata"]
        options = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": metadata["uid"]},
        }
        with self._unless_gone(resource, document):
            await self._api.delete(
                self._user,
                self._kind(resource),
                metadata["name"],
                namespace=metadata["namespace"],
                options=options,
            )

    async def write_status(
        self,
        resource: GroupResource,
        document: JsonObject,
        status: JsonObject,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Say how an object is, where that is news; with annotations that belong to the status."""
        metadata = document["metadata"]
        given = metadata.get("annotations") or {}
        annotations = {**given, **(annotations or {})}
        if document.get("status") == status and annotations == given:
            return
        if annotations:
            metadata = {**metadata, "annotations": annotations}
        changed = {**document, "metadata": metadata, "status": status}
        with self._unless_gone(resource, document):
            await self._api.update(self._user, self._kind(resource), changed, subresource="status")

    async def tell(
        self, about: JsonObject, reason: str, message: str, *, warns: bool = False
    ) -> None:
        """An Event about an object; one that was told before is counted up."""
        message = message[:_LONGEST_MESSAGE]
        key = (about["metadata"]["uid"], reason, message)
        before = self._told.get(key)
        try:
            if before is None:
                event = build_event(about, reason, message, self._controller, warns=warns)
                self._remember(key, await self._api.create(self._user, self._kind(EVENTS), event))
            else:
                again = {**before, "count": before["count"] + 1, "lastTimestamp": read_clock()}
                self._remember(key, await self._api.update(self._user, self._kind(EVENTS), again))
        except RefusedRequestError as error:
            # The namespace may be going; an Event is never worth more than what it tells of.
            self._told.pop(key, None)
            log.debug("event not written", extra={"why": error.message[:200]})

    @contextmanager
    def _unless_gone(self, resource: GroupResource, document: JsonObject) -> Iterator[None]:
        """What is gone, or another object of the same name by now, needs nothing."""
        metadata = document["metadata"]
        try:
            yield
        except RefusedRequestError:
            found = self.find(resource, metadata["namespace"], metadata["name"])
            if found is not None and found["metadata"]["uid"] == metadata["uid"]:
                raise

    def _remember(self, key: tuple[str, str, str], event: JsonObject) -> None:
        self._told[key] = event
        self._told.move_to_end(key)
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)

    def _kind(self, resource: GroupResource) -> ServedKind:
        kind = self._catalogue.preferred(*resource)
        if kind is None:
            raise KeyError(resource)
        return kind


def build_event(
    about: JsonObject, reason: str, message: str, source: str, *, warns: bool
) -> JsonObject:
    """An Event as controllers write them."""
    metadata = about["metadata"]
    now = read_clock()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{secrets.token_hex(8)}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": "Warning" if warns else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "reportingComponent": source,
        "reportingInstance": "",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "eventTime": None,
    }
