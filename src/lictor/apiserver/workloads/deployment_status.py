"""What a Deployment says about itself: counts, and whether it is available and gets on."""

from collections.abc import Sequence

from lictor.apiserver.objects import read_clock
from lictor.apiserver.workloads.conditions import find_condition, put_condition
from lictor.apiserver.workloads.rollout import Rollout, read_count, read_size
from lictor.raw import JsonObject

_FAILURE = "ReplicaFailure"
_COUNTS = ("replicas", "readyReplicas", "availableReplicas")


def compute_status(
    deployment: JsonObject, rollout: Rollout, new: JsonObject | None, sets: Sequence[JsonObject]
) -> JsonObject:
    """The status of now; conditions that say the same keep their times."""
    before = deployment.get("status") or {}
    counts = {name: sum(read_count(each, name) for each in sets) for name in _COUNTS}
    available = counts["availableReplicas"]
    counts["updatedReplicas"] = read_count(new, "replicas") if new else 0
    counts["unavailableReplicas"] = max(0, sum(map(read_size, sets)) - available)
    status: JsonObject = {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{name: count for name, count in counts.items() if count},
    }
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    conditions = [dict(each) for each in before.get("conditions") or ()]
    is_available = available >= rollout.wanted - rollout.unavailable
    put_condition(conditions, _tell_availability(is_available=is_available), is_stamped=True)
    if new is not None:
        _put_progress(conditions, _tell_progress(rollout, new, counts))
    _copy_failure(conditions, sets)
    return {**status, "conditions": conditions}


def _tell_availability(*, is_available: bool) -> JsonObject:
    if is_available:
        return {
            "type": "Available",
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.",
        }
    return {
        "type": "Available",
        "status": "False",
        "reason": "MinimumReplicasUnavailable",
        "message": "Deployment does not have minimum availability.",
    }


def _tell_progress(rollout: Rollout, new: JsonObject, counts: dict[str, int]) -> JsonObject:
    name = new["metadata"]["name"]
    is_complete = (
        counts["updatedReplicas"] == rollout.wanted
        and counts["replicas"] == rollout.wanted
        and counts["availableReplicas"] == rollout.wanted
    )
    if is_complete:
        reason, text = "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.'
    else:
        reason, text = "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.'
    return {"type": "Progressing", "status": "True", "reason": reason, "message": text}


def _put_progress(conditions: list[JsonObject], wanted: JsonObject) -> None:
    """Progress is told anew for each ReplicaSet, which only the message names."""
    old = find_condition(conditions, wanted["type"])
    if old is not None and old["message"] != wanted["message"]:
        conditions.remove(old)
        made = {**wanted, "lastUpdateTime": read_clock()}
        conditions.append({**made, "lastTransitionTime": old["lastTransitionTime"]})
    else:
        put_condition(conditions, wanted, is_stamped=True)


def _copy_failure(conditions: list[JsonObject], sets: Sequence[JsonObject]) -> None:
    """What keeps a set from making Pods is what people look for in the Deployment."""
    found = None
    for each in sets:
        found = found or find_condition(
            (each.get("status") or {}).get("conditions") or [], _FAILURE
        )
    if found is not None:
        wanted = {name: found[name] for name in ("type", "status", "reason", "message")}
        put_condition(conditions, wanted, is_stamped=True)
    elif (old := find_condition(conditions, _FAILURE)) is not None:
        conditions.remove(old)
