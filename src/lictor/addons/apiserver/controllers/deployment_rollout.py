"""The number of Pods of each ReplicaSet of a Deployment, and the status of the Deployment.

Old sets shrink as far as the new one is available. Without a kubelet no Pod becomes available, so
that a rolling update stops half-way, as on a cluster whose Pods do not start; the strategy Recreate
completes.
"""

from collections.abc import Sequence

import msgspec

from lictor.addons.apiserver.controllers.workload_client import find_condition, put_condition
from lictor.addons.apiserver.objects import read_clock
from lictor.core.raw import Json, JsonObject


class Rollout(msgspec.Struct, frozen=True):
    """The replica counts of a Deployment."""

    wanted: int
    surge: int
    unavailable: int
    recreates: bool

    @property
    def most(self) -> int:
        """The largest number of Pods during an update."""
        return self.wanted if self.recreates else self.wanted + (self.surge if self.wanted else 0)


def read_rollout(deployment: JsonObject) -> Rollout:
    """The numbers of a Deployment, percentages resolved."""
    spec = deployment["spec"]
    wanted = int(spec.get("replicas", 1))
    strategy = spec.get("strategy") or {}
    limits = strategy.get("rollingUpdate") or {}
    surge = resolve(limits.get("maxSurge", "25%"), wanted, rounds_up=True)
    unavailable = resolve(limits.get("maxUnavailable", "25%"), wanted, rounds_up=False)
    if not surge and not unavailable:
        # Otherwise no update could start.
        unavailable = 1
    return Rollout(wanted, surge, min(unavailable, wanted), strategy.get("type") == "Recreate")


def resolve(value: Json, total: int, *, rounds_up: bool) -> int:
    """A number, or a percentage of the total."""
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    hundredths = int(text[:-1]) * total
    return -(-hundredths // 100) if rounds_up else hundredths // 100


def plan_rollout(
    rollout: Rollout, new: JsonObject, old: Sequence[JsonObject]
) -> list[tuple[JsonObject, int]]:
    """The sets whose number changes, with the new number; the old ones are given oldest first."""
    sizes = {each["metadata"]["uid"]: read_size(each) for each in (new, *old)}
    before = dict(sizes)
    newest = new["metadata"]["uid"]
    if rollout.recreates:
        _plan_recreation(rollout, sizes, newest, old)
    else:
        _plan_growth(rollout, sizes, newest)
        _plan_shrinking(rollout, sizes, new, old)
    return [
        (each, sizes[each["metadata"]["uid"]])
        for each in (new, *old)
        if sizes[each["metadata"]["uid"]] != before[each["metadata"]["uid"]]
    ]


def _plan_recreation(
    rollout: Rollout, sizes: dict[str, int], newest: str, old: Sequence[JsonObject]
) -> None:
    for each in old:
        sizes[each["metadata"]["uid"]] = 0
    if not any(read_count(each, "replicas") for each in old):
        sizes[newest] = rollout.wanted


def _plan_growth(rollout: Rollout, sizes: dict[str, int], newest: str) -> None:
    total = sum(sizes.values())
    if sizes[newest] > rollout.wanted or total == sizes[newest]:
        sizes[newest] = rollout.wanted
    elif total < rollout.most:
        sizes[newest] += min(rollout.most - total, rollout.wanted - sizes[newest])


def _plan_shrinking(
    rollout: Rollout, sizes: dict[str, int], new: JsonObject, old: Sequence[JsonObject]
) -> None:
    least = rollout.wanted - rollout.unavailable
    missing = read_size(new) - read_count(new, "availableReplicas")
    surplus = sum(map(read_size, (new, *old))) - least - missing
    # Unavailable Pods first, then available ones while enough remain.
    for each in old:
        idle = read_size(each) - read_count(each, "availableReplicas")
        surplus -= _take(sizes, each, min(surplus, idle))
    spare = sum(read_count(each, "availableReplicas") for each in (new, *old)) - least
    for each in old:
        spare -= _take(sizes, each, min(surplus, spare))


def _take(sizes: dict[str, int], one: JsonObject, count: int) -> int:
    uid = one["metadata"]["uid"]
    taken = max(0, min(count, sizes[uid]))
    sizes[uid] -= taken
    return taken


def read_size(one: JsonObject) -> int:
    """The number of Pods in the spec of a set."""
    return int(one["spec"].get("replicas", 1))


def read_count(one: JsonObject, name: str) -> int:
    """A number of its status."""
    return int((one.get("status") or {}).get(name) or 0)


_FAILURE = "ReplicaFailure"
_AVAILABLE = {
    "type": "Available",
    "status": "True",
    "reason": "MinimumReplicasAvailable",
    "message": "Deployment has minimum availability.",
}
_UNAVAILABLE = {
    **_AVAILABLE,
    "status": "False",
    "reason": "MinimumReplicasUnavailable",
    "message": "Deployment does not have minimum availability.",
}
_COUNTS = ("replicas", "readyReplicas", "availableReplicas")


def compute_rollout_status(
    deployment: JsonObject, rollout: Rollout, new: JsonObject | None, sets: Sequence[JsonObject]
) -> JsonObject:
    """The current status; unchanged conditions keep their times."""
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
    put_condition(conditions, _AVAILABLE if is_available else _UNAVAILABLE, is_stamped=True)
    if new is not None:
        _put_progress(conditions, _describe_progress(rollout, new, counts))
    _copy_failure(conditions, sets)
    return {**status, "conditions": conditions}


def _describe_progress(rollout: Rollout, new: JsonObject, counts: dict[str, int]) -> JsonObject:
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
    """The condition is renewed for each ReplicaSet, which only the message names."""
    old = find_condition(conditions, wanted["type"])
    if old is not None and old["message"] != wanted["message"]:
        conditions.remove(old)
        made = {**wanted, "lastUpdateTime": read_clock()}
        conditions.append({**made, "lastTransitionTime": old["lastTransitionTime"]})
    else:
        put_condition(conditions, wanted, is_stamped=True)


def _copy_failure(conditions: list[JsonObject], sets: Sequence[JsonObject]) -> None:
    """Users look in the Deployment for the reason why a set cannot create Pods."""
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
