"""Rows of what runs Pods."""

from datetime import datetime

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.apiserver.tables.ages import UNKNOWN, read_moment, tell_age, tell_length
from lictor.apiserver.tables.table_columns import (
    NONE,
    UNSET,
    age_of,
    build_layout,
    list_images,
    name_of,
    tell_labels,
    tell_selector,
)
from lictor.raw import Json, JsonObject


def _pods_of(document: JsonObject) -> JsonObject:
    return read_object(read_object(read_object(document, "spec"), "template"), "spec")


def _count(holder: JsonObject, field: str) -> int:
    value = holder.get(field)
    return value if isinstance(value, int) else 0


def _fill_deployment(deployment: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(deployment, "spec"), read_object(deployment, "status")
    return [
        name_of(deployment),
        f"{_count(status, 'readyReplicas')}/{_count(spec, 'replicas')}",
        _count(status, "updatedReplicas"),
        _count(status, "availableReplicas"),
        age_of(deployment, now),
        *list_images(_pods_of(deployment)),
        tell_selector(spec.get("selector")),
    ]


def _fill_replica_set(replica_set: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(replica_set, "spec"), read_object(replica_set, "status")
    selector = spec.get("selector")
    is_old = replica_set.get("kind") == "ReplicationController"
    return [
        name_of(replica_set),
        _count(spec, "replicas"),
        _count(status, "replicas"),
        _count(status, "readyReplicas"),
        age_of(replica_set, now),
        *list_images(_pods_of(replica_set)),
        tell_labels(selector or {}) if is_old else tell_selector(selector),
    ]


def _fill_stateful_set(stateful_set: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(stateful_set, "spec"), read_object(stateful_set, "status")
    return [
        name_of(stateful_set),
        f"{_count(status, 'readyReplicas')}/{_count(spec, 'replicas')}",
        age_of(stateful_set, now),
        *list_images(_pods_of(stateful_set)),
    ]


_DAEMON_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _fill_daemon_set(daemon_set: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(daemon_set, "spec"), read_object(daemon_set, "status")
    pods = _pods_of(daemon_set)
    return [
        name_of(daemon_set),
        *(_count(status, field) for field in _DAEMON_COUNTS),
        tell_labels(read_object(pods, "nodeSelector")),
        age_of(daemon_set, now),
        *list_images(pods),
        tell_selector(spec.get("selector")),
    ]


def _fill_job(job: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(job, "spec"), read_object(job, "status")
    succeeded = _count(status, "succeeded")
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = _count(spec, "parallelism")
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    return [
        name_of(job),
        _tell_job(job, status),
        completions,
        _tell_duration(status, now),
        age_of(job, now),
        *list_images(_pods_of(job)),
        tell_selector(spec.get("selector")),
    ]


def _tell_job(job: JsonObject, status: JsonObject) -> str:
    true = {
        each.get("type") for each in read_list(status, "conditions") if each.get("status") == "True"
    }
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if read_object(job, "metadata").get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition in true:
            return condition
    return "Running"


def _tell_duration(status: JsonObject, now: datetime) -> str:
    start, end = read_moment(status.get("startTime")), read_moment(status.get("completionTime"))
    return "" if start is None else tell_length(((end or now) - start).total_seconds())


def _fill_cron_job(cron_job: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(cron_job, "spec"), read_object(cron_job, "status")
    job = read_object(read_object(spec, "jobTemplate"), "spec")
    last = status.get("lastScheduleTime")
    return [
        name_of(cron_job),
        read_text(spec, "schedule"),
        read_text(spec, "timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(read_list(status, "active")),
        NONE if last is None else tell_age(last, now),
        age_of(cron_job, now),
        *list_images(read_object(read_object(job, "template"), "spec")),
        tell_selector(job.get("selector"), NONE) if job.get("selector") else NONE,
    ]


def _fill_autoscaler(autoscaler: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(autoscaler, "spec"), read_object(autoscaler, "status")
    target = read_object(spec, "scaleTargetRef")
    least = spec.get("minReplicas")
    return [
        name_of(autoscaler),
        f"{read_text(target, 'kind')}/{read_text(target, 'name')}",
        _tell_targets(spec),
        UNSET if least is None else str(least),
        _count(spec, "maxReplicas"),
        _count(status, "currentReplicas"),
        age_of(autoscaler, now),
    ]


def _tell_targets(spec: JsonObject) -> str:
    """What is aimed at; nobody measures anything here."""
    percent = spec.get("targetCPUUtilizationPercentage")
    if percent is not None:
        return f"cpu: {UNKNOWN}/{percent}%"
    told = []
    for metric in read_list(spec, "metrics"):
        kind = read_text(metric, "type")
        source = read_object(metric, kind[:1].lower() + kind[1:])
        aim = read_object(source, "target")
        name = f"{read_text(source, 'name')}: " if kind == "Resource" else ""
        used = aim.get("averageUtilization")
        amount = aim.get("averageValue") or aim.get("value") or "<auto>"
        told.append(f"{name}{UNKNOWN}/{f'{used}%' if used is not None else amount}")
    if not told:
        return NONE
    return ", ".join(told[:2]) + (f" + {len(told) - 2} more..." if len(told) > 2 else "")


_REPLICAS = (
    "Name | Desired:integer | Current:integer | Ready:integer | Age "
    "| Containers! | Images! | Selector!"
)
DEPLOYMENT = build_layout(
    "Name | Ready | Up-to-date | Available | Age | Containers! | Images! | Selector!",
    _fill_deployment,
)
REPLICA_SET = build_layout(_REPLICAS, _fill_replica_set)
STATEFUL_SET = build_layout("Name | Ready | Age | Containers! | Images!", _fill_stateful_set)
DAEMON_SET = build_layout(
    "Name | Desired:integer | Current:integer | Ready:integer | Up-to-date:integer "
    "| Available:integer | Node Selector | Age | Containers! | Images! | Selector!",
    _fill_daemon_set,
)
JOB = build_layout(
    "Name | Status | Completions | Duration | Age | Containers! | Images! | Selector!", _fill_job
)
CRON_JOB = build_layout(
    "Name | Schedule | Timezone | Suspend:boolean | Active:integer | Last Schedule | Age "
    "| Containers! | Images! | Selector!",
    _fill_cron_job,
)
AUTOSCALER = build_layout(
    "Name | Reference | Targets | MinPods | MaxPods | Replicas | Age", _fill_autoscaler
)
