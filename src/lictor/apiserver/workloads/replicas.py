"""ReplicaSets: as many Pods as are asked for, and a status that says how far that went."""

from lictor.apiserver.controllers.controller_client import (
    PODS,
    REPLICA_SETS,
    ControllerClient,
    ObjectRefusedError,
)
from lictor.apiserver.workloads.conditions import find_condition, put_condition
from lictor.apiserver.workloads.pods import (
    build_pod,
    choose_victims,
    count_ready,
    is_active,
    is_going,
)
from lictor.raw import JsonObject

_FAILURE = "ReplicaFailure"
# A template that is refused is refused a thousand times; the answer is worth asking for again,
# as policies change, but not without end at once.
_MOST_AT_ONCE = 500


async def reconcile_replica_set(client: ControllerClient, owner: JsonObject) -> None:
    """Make or delete Pods, and say so. Raises ObjectRefusedError where Pods were refused."""
    pods = [pod for pod in client.list_children(owner, PODS) if is_active(pod)]
    why = "" if is_going(owner) else await _bring_to_count(client, owner, pods)
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


async def add_pod(client: ControllerClient, owner: JsonObject, template: JsonObject) -> str:
    """One more Pod, its name ending as chance will have it; why not, where it was refused."""
    pod = build_pod(owner, template)
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    try:
        made = await client.create(PODS, pod)
    except ObjectRefusedError as refusal:
        text = str(refusal)
        await client.tell(owner, "FailedCreate", f"Error creating: {text}", warns=True)
        return text
    await client.tell(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
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
