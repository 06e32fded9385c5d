"""Objects in another version of their kind, where versions differ in more than their name."""

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import Json, JsonObject

# The same field under two names: core's, and that of events.k8s.io.
_EVENT_FIELDS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_TO_NEW = dict(_EVENT_FIELDS)
_TO_CORE = {new: core for core, new in _EVENT_FIELDS}
_PERCENT = "targetCPUUtilizationPercentage"
_CURRENT_PERCENT = "currentCPUUtilizationPercentage"


def convert_object(document: JsonObject, api_version: str, kind: str) -> JsonObject:
    """The same object in another version."""
    converted = {**document, "apiVersion": api_version, "kind": kind}
    if kind == "Event":
        return _rename(converted, _TO_CORE if api_version == "v1" else _TO_NEW)
    if kind == "HorizontalPodAutoscaler":
        return _scale_down(converted) if api_version.endswith("/v1") else _scale_up(converted)
    return converted


def _rename(document: JsonObject, names: dict[str, str]) -> JsonObject:
    return {names.get(key, key): value for key, value in document.items()}


# --- HorizontalPodAutoscalers: the older version knows one metric only


def _scale_down(autoscaler: JsonObject) -> JsonObject:
    spec, status = read_object(autoscaler, "spec"), read_object(autoscaler, "status")
    kept = {key: value for key, value in spec.items() if key not in ("metrics", "behavior")}
    percent = _find_cpu(read_list(spec, "metrics"), "target")
    if percent is not None:
        kept[_PERCENT] = percent
    shown = {key: status[key] for key in _STATUS if key in status}
    current = _find_cpu(read_list(status, "currentMetrics"), "current")
    if current is not None:
        shown[_CURRENT_PERCENT] = current
    shown.setdefault("currentReplicas", 0)
    return {**autoscaler, "spec": kept, "status": shown}


_STATUS = ("currentReplicas", "desiredReplicas", "lastScaleTime", "observedGeneration")


def _find_cpu(metrics: list[Json], field: str) -> Json:
    for metric in metrics:
        resource = read_object(metric, "resource")
        if read_text(resource, "name") == "cpu":
            return read_object(resource, field).get("averageUtilization")
    return None


def _scale_up(autoscaler: JsonObject) -> JsonObject:
    spec, status = dict(read_object(autoscaler, "spec")), dict(read_object(autoscaler, "status"))
    percent = spec.pop(_PERCENT, None)
    if percent is not None and "metrics" not in spec:
        target = {"type": "Utilization", "averageUtilization": percent}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    current = status.pop(_CURRENT_PERCENT, None)
    if current is not None:
        usage = {"name": "cpu", "current": {"averageUtilization": current}}
        status["currentMetrics"] = [{"type": "Resource", "resource": usage}]
    return {**autoscaler, "spec": spec, "status": status}
