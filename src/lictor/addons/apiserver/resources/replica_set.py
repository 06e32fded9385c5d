"""ReplicaSet and ReplicationController: defaults, validation, columns, controller."""

from lictor.addons.apiserver.controllers.workloads import (
    PODS,
    REPLICA_SETS,
    ControllerClient,
    ObjectRefusedError,
)
from lictor.addons.apiserver.field_errors import Say
from lictor.addons.apiserver.json_fields import read_object
from lictor.addons.apiserver.objects import is_ending
from lictor.addons.apiserver.resources.columns import (
    build_columns,
    list_images,
    tell_labels,
    tell_selector,
)
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.registry import (
    BuiltinResource,
    ResourceController,
    select_by,
)
from lictor.addons.apiserver.resources.validation import check_counts, check_same
from lictor.addons.apiserver.resources.workload_pods import (
    add_pod,
    choose_victims,
    count_field,
    count_ready,
    find_condition,
    is_active,
    pod_spec_of,
    put_condition,
    spec_of,
    validate_pods,
)
from lictor.core.raw import Json, JsonObject


def set_replica_set_defaults(replica_set: JsonObject) -> None:
    """A ReplicaSet or a ReplicationController."""
    spec = replica_set.setdefault("spec", {})
    template = spec.setdefault("template", {})
    set_template_defaults(template)
    spec.setdefault("replicas", 1)
    if replica_set.get("kind") == "ReplicationController":
        labels = read_object(read_object(template, "metadata"), "labels")
        if labels and not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = replica_set.setdefault("metadata", {})
        if labels and not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    replica_set.setdefault("status", {}).setdefault("replicas", 0)


def validate_replica_set(replica_set: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ReplicaSet."""
    spec = read_object(replica_set, "spec")
    check_counts(spec, ("replicas", "minReadySeconds"), "spec", say)
    validate_pods(spec, "replicaset", say)
    check_same(spec, spec_of(old), ("selector",), "spec", say)


def _list_replica_set_cells(replica_set: JsonObject) -> list[Json]:
    spec, status = read_object(replica_set, "spec"), read_object(replica_set, "status")
    selector = spec.get("selector")
    is_old = replica_set.get("kind") == "ReplicationController"
    return [
        count_field(spec, "replicas"),
        count_field(status, "replicas"),
        count_field(status, "readyReplicas"),
        *list_images(pod_spec_of(replica_set)),
        tell_labels(selector or {}) if is_old else tell_selector(selector),
    ]


_REPLICAS = (
    "Name | Desired:integer | Current:integer | Ready:integer | Age "
    "| Containers! | Images! | Selector!"
)
REPLICA_SET = build_columns(_REPLICAS, _list_replica_set_cells)
_FAILURE = "ReplicaFailure"
# A template that is refused is refused a thousand times; the answer is worth asking for again,
# as policies change, but not without end at once.
_MOST_AT_ONCE = 500


async def reconcile_replica_set(client: ControllerClient, owner: JsonObject) -> None:
    """Make or delete Pods, and say so. Raises ObjectRefusedError where Pods were refused."""
    pods = [pod for pod in client.list_children(owner, PODS) if is_active(pod)]
    why = "" if is_ending(owner) else await _bring_to_count(client, owner, pods)
    pods = [pod for pod in client.list_children(owner, PODS) if is_active(pod)]
    await client.write_status(REPLICA_SETS, owner, _compute_status(owner, pods, why))
    if why:
        raise ObjectRefusedError(why)


async def _bring_to_count(
    client: ControllerClient, owner: JsonObject, pods: list[JsonObject]
) -> str:
    wanted = int(owner["spec"].get("replicas", 1))
    for pod in choose_victims(pods, len(pods) - wanted) if len(pods) > wanted else ():
        await client.delete(PODS, pod)
        name = pod["metadata"]["name"]
        await client.tell(owner, "SuccessfulDelete", f"Deleted pod: {name}")
    for _ in range(min(wanted - len(pods), _MOST_AT_ONCE)):
        why = await add_pod(client, owner, owner["spec"]["template"])
        if why:
            return why
    return ""


def _compute_status(owner: JsonObject, pods: list[JsonObject], why: str) -> JsonObject:
    before = owner.get("status") or {}
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    ready = count_ready(pods)
    status: JsonObject = {
        "replicas": len(pods),
        "fullyLabeledReplicas": sum(_has_labels(pod, labels) for pod in pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": owner["metadata"].get("generation", 1),
    }
    status = {name: value for name, value in status.items() if value or name == "replicas"}
    conditions = list(before.get("conditions") or ())
    if why:
        put_condition(
            conditions,
            {"type": _FAILURE, "status": "True", "reason": "FailedCreate", "message": why},
        )
    elif (old := find_condition(conditions, _FAILURE)) is not None:
        conditions.remove(old)
    return {**status, "conditions": conditions} if conditions else status


def _has_labels(pod: JsonObject, labels: JsonObject) -> bool:
    given = pod["metadata"].get("labels") or {}
    return all(given.get(name) == value for name, value in labels.items())


RESOURCES = (
    BuiltinResource(
        "apps",
        "ReplicaSet",
        set_defaults=set_replica_set_defaults,
        validate=validate_replica_set,
        columns=REPLICA_SET,
        selectable_fields=select_by("status.replicas", missing="0"),
        controller=ResourceController("replicaset-controller", reconcile_replica_set),
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD}},
    ),
    BuiltinResource(
        "",
        "ReplicationController",
        set_defaults=set_replica_set_defaults,
        columns=REPLICA_SET,
        selectable_fields=select_by("status.replicas", missing="0"),
        counts_generations=True,
        orphans_dependents=True,
        empty_object={"spec": {}},
    ),
)
