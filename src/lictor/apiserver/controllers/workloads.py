"""The controllers of workloads: whatever changes, its owner is looked at again.

Pods are made and counted, as on a cluster whose nodes have not come yet: they stay pending.
"""

import logging
from typing import TypeAlias

from lictor.apiserver.controllers.controller_client import (
    PODS,
    REVISIONS,
    ControllerClient,
    ObjectRefusedError,
    OwnedObjects,
)
from lictor.apiserver.kind import Catalogue
from lictor.apiserver.loopback_client import LoopbackClient
from lictor.apiserver.objects import find_controller
from lictor.apiserver.resources.registry import Reconcile
from lictor.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.cluster.work_queue import WorkQueue
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

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
