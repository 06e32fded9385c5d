"""The controllers of workloads: whatever changes, its owner is looked at again.

Pods are made and counted, as on a cluster whose nodes have not come yet: they stay pending.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lictor.apiserver.controllers.controller_client import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    STATEFUL_SETS,
    ControllerClient,
    ObjectRefusedError,
    OwnedObjects,
)
from lictor.apiserver.kind import Catalogue
from lictor.apiserver.loopback_client import LoopbackClient
from lictor.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.apiserver.workloads.cron import reconcile_cron_job
from lictor.apiserver.workloads.daemons import reconcile_daemon_set
from lictor.apiserver.workloads.deployments import reconcile_deployment
from lictor.apiserver.workloads.jobs import reconcile_job
from lictor.apiserver.workloads.pods import find_controller
from lictor.apiserver.workloads.replicas import reconcile_replica_set
from lictor.apiserver.workloads.stateful import reconcile_stateful_set
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

# What a controller does with one object; in how many seconds it wants to see it again.
Reconcile: TypeAlias = Callable[[ControllerClient, JsonObject], Awaitable[float | None]]
Task: TypeAlias = tuple[GroupResource, ObjectKey]

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 60.0
# A webhook that does not answer holds up one of them, not all.
_WORKERS = 4
_CONTROLLERS: dict[GroupResource, tuple[str, str, Reconcile]] = {
    DEPLOYMENTS: ("Deployment", "deployment-controller", reconcile_deployment),
    REPLICA_SETS: ("ReplicaSet", "replicaset-controller", reconcile_replica_set),
    STATEFUL_SETS: ("StatefulSet", "statefulset-controller", reconcile_stateful_set),
    DAEMON_SETS: ("DaemonSet", "daemon-set-controller", reconcile_daemon_set),
    JOBS: ("Job", "job-controller", reconcile_job),
    CRON_JOBS: ("CronJob", "cronjob-controller", reconcile_cron_job),
}
_OWNER_KINDS = {(resource[0], kind): resource for resource, (kind, _, _) in _CONTROLLERS.items()}
_WATCHED = (*_CONTROLLERS, PODS, REVISIONS)


class WorkloadControllers:
    """All of them; each object is looked at by one hand at a time."""

    def __init__(self, api: LoopbackClient, store: Store, catalogue: Catalogue) -> None:
        owned = self._owned = OwnedObjects()
        self._store = store
        self._clients = {
            resource: ControllerClient(api, store, catalogue, owned, name)
            for resource, (_, name, _) in _CONTROLLERS.items()
        }
        self._waiting: asyncio.Queue[Task] = asyncio.Queue()
        # Those that wait, those in someone's hands, and those that changed meanwhile.
        self._queued: set[Task] = set()
        self._busy: set[Task] = set()
        self._again: set[Task] = set()
        self._failures: dict[Task, int] = {}
        self._timers: dict[Task, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Look after workloads until cancelled."""
        ends = [self._store.subscribe(*resource, self._hear) for resource in _WATCHED]
        for resource in _WATCHED:
            for key, document in list(self._store.storage(*resource).objects.items()):
                self._note(resource, key, document, gone=False)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_WORKERS):
                    group.create_task(self._work())
        finally:
            for end in ends:
                end()
            for timer in self._timers.values():
                timer.cancel()

    def _hear(self, change: StoreChange) -> None:
        self._note(change.resource, change.key, change.document, gone=change.type == DELETED)

    def _note(
        self, resource: GroupResource, key: ObjectKey, document: JsonObject, *, gone: bool
    ) -> None:
        self._owned.note(resource, document, gone=gone)
        if resource in _CONTROLLERS:
            self._add((resource, key))
        reference = find_controller(document)
        if reference is None:
            return
        group = str(reference.get("apiVersion") or "").rpartition("/")[0]
        owners = _OWNER_KINDS.get((group, str(reference.get("kind"))))
        if owners is not None:
            self._add((owners, (key[0], str(reference.get("name")))))

    def _add(self, task: Task) -> None:
        if timer := self._timers.pop(task, None):
            timer.cancel()
        if task in self._busy:
            self._again.add(task)
        elif task not in self._queued:
            self._queued.add(task)
            self._waiting.put_nowait(task)

    async def _work(self) -> None:
        while True:
            task = await self._waiting.get()
            self._queued.discard(task)
            self._busy.add(task)
            try:
                pause = await self._reconcile(task)
            finally:
                self._busy.discard(task)
            changed = task in self._again
            self._again.discard(task)
            # What failed has written that it did: that alone is no reason to try again at once.
            if changed and task not in self._failures:
                self._add(task)
            elif pause is not None:
                loop = asyncio.get_running_loop()
                self._timers[task] = loop.call_later(pause, self._add, task)

    async def _reconcile(self, task: Task) -> float | None:
        """Look at one object; in how many seconds to look again."""
        resource, key = task
        document = self._store.storage(*resource).objects.get(key)
        if document is None:
            self._failures.pop(task, None)
            return None
        try:
            pause = await _CONTROLLERS[resource][2](self._clients[resource], document)
        except (ObjectRefusedError, RefusedRequestError) as error:
            # Policies change: what was refused may be taken later.
            log.debug("workload waits", extra={"workload": key, "why": str(error)[:200]})
            return self._back_off(task)
        except Exception:
            log.exception("workload failed", extra={"workload": "/".join((resource[1], *key))})
            return self._back_off(task)
        self._failures.pop(task, None)
        return pause

    def _back_off(self, task: Task) -> float:
        failures = self._failures[task] = self._failures.get(task, 0) + 1
        return float(min(_FIRST_PAUSE * 2 ** min(failures, 12), _LONGEST_PAUSE))
