"""HorizontalPodAutoscaler: defaults, validation, columns, and conversion between its versions."""

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import BuiltinResource
from lictor.addons.apiserver.table_columns import NONE, UNKNOWN, UNSET, build_columns
from lictor.core.raw import Json, JsonObject


def _set_autoscaler_defaults(autoscaler: JsonObject) -> None:
    spec = autoscaler.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    status = autoscaler.setdefault("status", {})
    status.setdefault("desiredReplicas", 0)
    if autoscaler.get("apiVersion") == "autoscaling/v1":
        spec.setdefault("targetCPUUtilizationPercentage", 80)
        status.setdefault("currentReplicas", 0)
    elif not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


_PERCENT = "targetCPUUtilizationPercentage"
_CURRENT_PERCENT = "currentCPUUtilizationPercentage"


def _convert(autoscaler: JsonObject) -> JsonObject:
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


def _validate_autoscaler(autoscaler: CheckedField) -> None:
    spec = autoscaler.at("spec")
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if isinstance(least, int) and least < 1:
        spec.invalid("minReplicas", "must be greater than or equal to 1")
    if most < 1:
        spec.invalid("maxReplicas", "must be greater than 0", most)
    elif isinstance(least, int) and most < least:
        spec.invalid("maxReplicas", "must be greater than or equal to `minReplicas`")
    spec.at("scaleTargetRef").need("kind", "name")


def _list_autoscaler_cells(autoscaler: JsonObject) -> list[Json]:
    spec = read_object(autoscaler, "spec")
    target = read_object(spec, "scaleTargetRef")
    least = spec.get("minReplicas")
    return [
        f"{read_text(target, 'kind')}/{read_text(target, 'name')}",
        _format_targets(spec),
        UNSET if least is None else str(least),
    ]


def _format_targets(spec: JsonObject) -> str:
    """The targets; current values are unknown without metrics."""
    percent = spec.get("targetCPUUtilizationPercentage")
    if percent is not None:
        return f"cpu: {UNKNOWN}/{percent}%"
    detail = []
    for metric in read_list(spec, "metrics"):
        kind = read_text(metric, "type")
        source = read_object(metric, kind[:1].lower() + kind[1:])
        aim = read_object(source, "target")
        name = f"{read_text(source, 'name')}: " if kind == "Resource" else ""
        used = aim.get("averageUtilization")
        amount = aim.get("averageValue") or aim.get("value") or "<auto>"
        detail.append(f"{name}{UNKNOWN}/{f'{used}%' if used is not None else amount}")
    if not detail:
        return NONE
    return ", ".join(detail[:2]) + (f" + {len(detail) - 2} more..." if len(detail) > 2 else "")


AUTOSCALER = build_columns(
    "Name | Reference | Targets | MinPods | MaxPods=+spec.maxReplicas "
    "| Replicas=+status.currentReplicas | Age",
    _list_autoscaler_cells,
)
RESOURCES = (
    BuiltinResource(
        "autoscaling",
        "HorizontalPodAutoscaler",
        set_defaults=_set_autoscaler_defaults,
        validate=_validate_autoscaler,
        columns=AUTOSCALER,
        convert=_convert,
    ),
)
