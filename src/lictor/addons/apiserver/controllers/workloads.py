"""The controllers of workloads: one loop for all kinds, which differ in what they plan.

Pods are created and counted, as on a cluster without nodes: they stay pending.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from lictor.addons.apiserver.controllers.batch_jobs import (
    compute_cron_status,
    compute_job_status,
    find_pause,
    is_job_over,
    list_job_events,
    plan_job_pods,
    plan_jobs,
)
from lictor.addons.apiserver.controllers.replica_sets import (
    compute_deployment_status,
    compute_set_status,
    list_deployment_annotations,
    plan_pods,
    plan_sets,
)
from lictor.addons.apiserver.controllers.stateful_sets import (
    compute_daemon_status,
    compute_stateful_status,
    plan_numbered_pods,
    plan_revision,
)
from lictor.addons.apiserver.controllers.workload_client import (
    JOBS,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    ControllerClient,
    ObjectRefusedError,
    OwnedObjects,
    WriteAction,
)
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import find_controller, is_ending
from lictor.addons.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject
from lictor.kubernetes.work_queue import WorkQueue

log = logging.getLogger(__name__)
Workload: TypeAlias = tuple[GroupResource, ObjectKey]
_FIRST_PAUSE = 0.4
_LONGEST_PAUSE = 60.0
# A webhook that does not answer blocks one of them, not all.
_WORKERS = 4
# A plan is made again after it was carried out; each round gets further, and few are needed.
_MAX_ROUNDS = 5


class WorkloadController(msgspec.Struct, frozen=True):
    """What is particular to one kind of workload."""

    # Its ServiceAccount, and the source of its Events.
    name: str
    # The next writes; empty when the workload matches its spec.
    plan: Callable[[ControllerClient, JsonObject], list[WriteAction]]
    # The status; the text is why an object was refused.
    compute_status: Callable[[ControllerClient, JsonObject, str], JsonObject]
    is_over: Callable[[JsonObject], bool] = is_ending
    list_annotations: Callable[[ControllerClient, JsonObject], dict[str, str]] | None = None
    # Reasons and messages of the Events that a new status causes.
    list_events: Callable[[JsonObject, JsonObject], Iterable[tuple[str, str]]] | None = None
    # Seconds until the object must be looked at again.
    find_pause: Callable[[JsonObject], float | None] | None = None


CONTROLLERS: dict[GroupResource, WorkloadController] = {
    ("apps", "deployments"): WorkloadController(
        "deployment-controller",
        plan_sets,
        compute_deployment_status,
        list_annotations=list_deployment_annotations,
    ),
    REPLICA_SETS: WorkloadController(
        "replicaset-controller", plan_pods, compute_set_status, is_over=lambda _: False
    ),
    ("apps", "statefulsets"): WorkloadController(
        "statefulset-controller", plan_numbered_pods, compute_stateful_status
    ),
    ("apps", "daemonsets"): WorkloadController(
        "daemon-set-controller", plan_revision, compute_daemon_status
    ),
    JOBS: WorkloadController(
        "job-controller",
        plan_job_pods,
        compute_job_status,
        is_over=is_job_over,
        list_events=list_job_events,
    ),
    ("batch", "cronjobs"): WorkloadController(
        "cronjob-controller", plan_jobs, compute_cron_status, find_pause=find_pause
    ),
}


async def reconcile(
    controller: WorkloadController,
    resource: GroupResource,
    client: ControllerClient,
    owner: JsonObject,
) -> float | None:
    """Write what the plan lists, then the status; seconds until the next look, if any."""
    if controller.is_over(owner):
        return None
    failure = ""
    for _ in range(_MAX_ROUNDS):
        actions = controller.plan(client, owner)
        failure = await client.carry_out(owner, actions)
        if failure or not actions:
            break
    status = controller.compute_status(client, owner, failure)
    annotations = controller.list_annotations and controller.list_annotations(client, owner)
    await client.write_status(resource, owner, status, annotations)
    for reason, message in controller.list_events(owner, status) if controller.list_events else ():
        await client.record(owner, reason, message, warns=reason == "BackoffLimitExceeded")
    if failure:
        raise ObjectRefusedError(failure)
    return None if controller.find_pause is None else controller.find_pause(owner)


class WorkloadControllers:
    """Runs all of them; each object is with one worker at a time."""

    def __init__(self, api: LoopbackClient, store: Store, catalogue: KindCatalogue) -> None:
        self._owned = OwnedObjects()
        self._store = store
        self._clients = {
            resource: ControllerClient(api, store, catalogue, self._owned, controller.name)
            for resource, controller in CONTROLLERS.items()
        }
        served = ((resource, catalogue.preferred(*resource)) for resource in CONTROLLERS)
        self._resources = {(kind.group, kind.kind): resource for resource, kind in served if kind}
        self._queue: WorkQueue[Workload] = WorkQueue(
            "workloads",
            self._reconcile,
            workers=_WORKERS,
            pauses=(_FIRST_PAUSE, _LONGEST_PAUSE),
            # The failure was written to the status; that change must not cause an immediate retry.
            waits_after_failure=True,
        )

    async def run(self) -> None:
        """Reconcile workloads until cancelled."""
        watched = (*CONTROLLERS, PODS, REVISIONS)
        ends = [self._store.subscribe(*resource, self._on_change) for resource in watched]
        for resource in watched:
            for key, document in list(self._store.storage(*resource).objects.items()):
                self._note(resource, key, document, gone=False)
        try:
            await self._queue.run()
        finally:
            for end in ends:
                end()

    def _on_change(self, change: StoreChange) -> None:
        self._note(change.resource, change.key, change.document, gone=change.type == DELETED)

    def _note(
        self, resource: GroupResource, key: ObjectKey, document: JsonObject, *, gone: bool
    ) -> None:
        self._owned.note(resource, document, gone=gone)
        if resource in CONTROLLERS:
            self._queue.add((resource, key))
        reference = find_controller(document)
        if reference is None:
            return
        group = str(reference.get("apiVersion") or "").rpartition("/")[0]
        owners = self._resources.get((group, str(reference.get("kind"))))
        if owners is not None:
            self._queue.add((owners, (key[0], str(reference.get("name")))))

    async def _reconcile(self, workload: Workload) -> bool | float:
        """Reconcile one object; the seconds until the next time."""
        resource, key = workload
        document = self._store.storage(*resource).objects.get(key)
        if document is None:
            return True
        client = self._clients[resource]
        try:
            pause = await reconcile(CONTROLLERS[resource], resource, client, document)
        except (ObjectRefusedError, RefusedRequestError) as error:
            # Policies change: a refused object may be accepted later.
            log.debug("workload waits", extra={"workload": key, "why": str(error)[:200]})
            return False
        return True if pause is None else pause
