"""Rows of Pods."""

from datetime import datetime

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.table_columns import NONE, age_of, format_age, name_of, read_moment
from lictor.core.raw import Json, JsonObject


def fill_pod(pod: JsonObject, now: datetime) -> list[Json]:
    """A row."""
    spec, status = read_object(pod, "spec"), read_object(pod, "status")
    sidecars = {
        read_text(each, "name")
        for each in read_list(spec, "initContainers")
        if each.get("restartPolicy") == "Always"
    }
    detail = read_list(status, "containerStatuses")
    started = [
        each for each in read_list(status, "initContainerStatuses") if each["name"] in sidecars
    ]
    ready = sum(each.get("ready") is True for each in [*detail, *started])
    total = len(read_list(spec, "containers")) + len(sidecars)
    return [
        name_of(pod),
        f"{ready}/{total}",
        _format_status(pod),
        _format_restarts([*detail, *started], now),
        age_of(pod, now),
        _find_address(status),
        read_text(spec, "nodeName") or NONE,
        read_text(status, "nominatedNodeName") or NONE,
        _format_gates(spec, status),
    ]


def _find_address(status: JsonObject) -> str:
    addresses = [read_text(each, "ip") for each in read_list(status, "podIPs")]
    return (addresses or [read_text(status, "podIP")])[0] or NONE


def _format_gates(spec: JsonObject, status: JsonObject) -> str:
    gates = {read_text(each, "conditionType") for each in read_list(spec, "readinessGates")}
    if not gates:
        return NONE
    met = [
        each
        for each in read_list(status, "conditions")
        if each.get("type") in gates and each.get("status") == "True"
    ]
    return f"{len(met)}/{len(gates)}"


def _format_restarts(statuses: list[Json], now: datetime) -> str:
    count = sum(each.get("restartCount") or 0 for each in statuses)
    ends = [
        moment
        for each in statuses
        if (moment := read_moment(_read_end(each).get("finishedAt"))) is not None
    ]
    return (
        f"{count} ({format_age(max(ends).isoformat(), now)} ago)" if count and ends else str(count)
    )


def _read_end(status: JsonObject) -> JsonObject:
    return read_object(read_object(status, "lastState"), "terminated")


def _format_status(pod: JsonObject) -> str:
    """What `kubectl get` shows as status."""
    status = read_object(pod, "status")
    reason = read_text(status, "reason") or read_text(status, "phase")
    for condition in read_list(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    starting = _format_start(pod)
    reason = starting or _format_containers(status, reason)
    if read_object(pod, "metadata").get("deletionTimestamp"):
        return "Unknown" if read_text(status, "reason") == "NodeLost" else "Terminating"
    return reason


def _format_start(pod: JsonObject) -> str:
    """What an init container is doing that has not yet done its work; empty where all have."""
    spec, status = read_object(pod, "spec"), read_object(pod, "status")
    kinds = {each["name"]: each for each in read_list(spec, "initContainers") if "name" in each}
    for index, each in enumerate(read_list(status, "initContainerStatuses")):
        state = read_object(each, "state")
        ended, waiting = state.get("terminated"), read_object(state, "waiting")
        if ended is not None and ended.get("exitCode") == 0:
            continue
        if kinds.get(each.get("name"), {}).get("restartPolicy") == "Always" and each.get("started"):
            continue
        if ended is not None:
            return f"Init:{_format_end(ended)}"
        reason = read_text(waiting, "reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{index}/{len(kinds)}"
    return ""


def _format_end(ended: JsonObject) -> str:
    if reason := read_text(ended, "reason"):
        return reason
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode')}"


def _format_containers(status: JsonObject, reason: str) -> str:
    has_running = False
    for each in reversed(read_list(status, "containerStatuses")):
        state = read_object(each, "state")
        waiting = read_text(read_object(state, "waiting"), "reason")
        if waiting:
            reason = waiting
        elif "terminated" in state:
            reason = _format_end(read_object(state, "terminated"))
        elif each.get("ready") is True and "running" in state:
            has_running = True
    if reason == "Completed" and has_running:
        is_ready = any(
            each.get("type") == "Ready" and each.get("status") == "True"
            for each in read_list(status, "conditions")
        )
        return "Running" if is_ready else "NotReady"
    return reason
