"""HorizontalPodAutoscaler: limits, targets, and conversion between its versions."""

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.table_columns import NONE, UNKNOWN
from lictor.core.raw import Json, JsonObject

_PERCENT = "targetCPUUtilizationPercentage"
_CURRENT_PERCENT = "currentCPUUtilizationPercentage"


def convert_autoscaler(autoscaler: JsonObject) -> JsonObject:
    """The older version knows one metric only."""
    is_old = autoscaler["apiVersion"].endswith("/v1")
    return _convert_to_v1(autoscaler) if is_old else _convert_to_v2(autoscaler)


def _convert_to_v1(autoscaler: JsonObject) -> JsonObject:
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


def _convert_to_v2(autoscaler: JsonObject) -> JsonObject:
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


def check_limits(spec: CheckedField) -> None:
    """Check the smallest and the largest number of replicas."""
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if isinstance(least, int) and least < 1:
        spec.invalid("minReplicas", "must be greater than or equal to 1")
    if most < 1:
        spec.invalid("maxReplicas", "must be greater than 0", most)
    elif isinstance(least, int) and most < least:
        spec.invalid("maxReplicas", "must be greater than or equal to `minReplicas`")


def list_autoscaler_cells(autoscaler: JsonObject) -> list[Json]:
    """The targets; current values are unknown without metrics."""
    spec = read_object(autoscaler, "spec")
    percent = spec.get(_PERCENT)
    if percent is not None:
        return [f"cpu: {UNKNOWN}/{percent}%"]
    detail = [_format_target(metric) for metric in read_list(spec, "metrics")]
    more = f" + {len(detail) - 2} more..." if len(detail) > 2 else ""
    return [", ".join(detail[:2]) + more if detail else NONE]


def _format_target(metric: JsonObject) -> str:
    kind = read_text(metric, "type")
    source = read_object(metric, kind[:1].lower() + kind[1:])
    aim = read_object(source, "target")
    name = f"{read_text(source, 'name')}: " if kind == "Resource" else ""
    used = aim.get("averageUtilization")
    amount = aim.get("averageValue") or aim.get("value") or "<auto>"
    return f"{name}{UNKNOWN}/{f'{used}%' if used is not None else amount}"
