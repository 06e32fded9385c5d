"""Job and CronJob: schedules, rows of tables, and the selector of a Job by its uid."""

from datetime import datetime

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.name_rules import describe_limit
from lictor.addons.apiserver.table_columns import (
    NONE,
    age_of,
    count_field,
    format_age,
    format_duration,
    format_selector,
    list_images,
    name_of,
    read_moment,
)
from lictor.core.errors import CompileError
from lictor.core.lang.schedule import compile_schedule, find_zone
from lictor.core.raw import Json, JsonObject

_BATCH = "batch.kubernetes.io/"
_MAX_CRON_NAME = 52


def set_completions_default(spec: JsonObject) -> None:
    """One run, unless there is a number of parallel ones."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1


def set_selector_defaults(job: JsonObject) -> None:
    """The replacement policy, and the selector and labels once the Job has a uid."""
    metadata, spec = job.setdefault("metadata", {}), job["spec"]
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    uid, name = read_text(metadata, "uid"), read_text(metadata, "name")
    if not uid or spec.get("manualSelector") or spec.get("selector"):
        return
    own = metadata.setdefault("labels", {})
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for prefix in ("", _BATCH):
        labels.setdefault(f"{prefix}controller-uid", uid)
        labels.setdefault(f"{prefix}job-name", name)
    for key, value in labels.items():
        own.setdefault(key, value)
    spec["selector"] = {"matchLabels": {f"{_BATCH}controller-uid": uid}}


def set_uid_defaults(document: JsonObject) -> JsonObject:
    """The Job with the selector and the labels by which it knows its Pods."""
    spec = document.get("spec")
    if not isinstance(spec, dict) or spec.get("manualSelector"):
        return document
    metadata = document["metadata"]
    uid, name = metadata["uid"], metadata.get("name") or ""
    given = {
        "controller-uid": uid,
        "job-name": name,
        f"{_BATCH}controller-uid": uid,
        f"{_BATCH}job-name": name,
    }
    template = spec.get("template") or {}
    inner = template.get("metadata") or {}
    labels = {**given, **(inner.get("labels") or {})}
    labels |= {key: given[key] for key in (f"{_BATCH}controller-uid", "controller-uid")}
    changed: JsonObject = {
        **spec,
        "template": {**template, "metadata": {**inner, "labels": labels}},
    }
    selector = dict(spec.get("selector") or {})
    wanted = {**(selector.get("matchLabels") or {}), f"{_BATCH}controller-uid": uid}
    changed["selector"] = {**selector, "matchLabels": wanted}
    filled = {**document, "spec": changed}
    if not metadata.get("labels"):
        filled["metadata"] = {**metadata, "labels": labels}
    return filled


def check_kept_fields(spec: CheckedField) -> None:
    """What of a Job cannot be changed."""
    if spec.get("completionMode") != "Indexed":
        spec.same("completions")
    spec.same("selector", "completionMode")
    if not (spec.old or {}).get("suspend"):
        spec.same("template")


def check_restart_policy(pod: CheckedField) -> None:
    """Pods of Jobs end."""
    if pod.get("restartPolicy") == "Always":
        pod.required("restartPolicy", 'valid values: "OnFailure", "Never"')
    else:
        pod.choice("restartPolicy", ("OnFailure", "Never"))


def fill_job(job: JsonObject, now: datetime) -> list[Json]:
    """A row of a Job."""
    spec, status = read_object(job, "spec"), read_object(job, "status")
    succeeded = count_field(status, "succeeded")
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = count_field(spec, "parallelism")
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    return [
        name_of(job),
        _format_job(job, status),
        completions,
        _format_duration(status, now),
        age_of(job, now),
        *list_images(read_object(read_object(spec, "template"), "spec")),
        format_selector(spec.get("selector")),
    ]


def _format_job(job: JsonObject, status: JsonObject) -> str:
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


def _format_duration(status: JsonObject, now: datetime) -> str:
    start, end = read_moment(status.get("startTime")), read_moment(status.get("completionTime"))
    return "" if start is None else format_duration(((end or now) - start).total_seconds())


def check_schedule(spec: CheckedField) -> None:
    """The schedule of a CronJob."""
    schedule = spec.text("schedule")
    if not schedule:
        return
    fields = schedule.split()
    if not schedule.startswith("@") and len(fields) != 5:
        why = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        spec.invalid("schedule", why)
        return
    try:
        compile_schedule(schedule)
    except CompileError as error:
        spec.invalid("schedule", str(error))


def check_time_zone(spec: CheckedField) -> None:
    """The time zone of a CronJob, or none."""
    if zone := spec.text("timeZone"):
        try:
            find_zone(zone)
        except ValueError as error:
            spec.invalid("timeZone", str(error))


def check_name(cron_job: CheckedField) -> None:
    """The names of the Jobs are longer."""
    metadata = cron_job.at("metadata")
    if cron_job.old is None and len(metadata.text("name")) > _MAX_CRON_NAME:
        metadata.invalid("name", describe_limit(_MAX_CRON_NAME))


def fill_cron_job(cron_job: JsonObject, now: datetime) -> list[Json]:
    """A row of a CronJob."""
    spec, status = read_object(cron_job, "spec"), read_object(cron_job, "status")
    job = read_object(read_object(spec, "jobTemplate"), "spec")
    last = status.get("lastScheduleTime")
    return [
        name_of(cron_job),
        read_text(spec, "schedule"),
        read_text(spec, "timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(read_list(status, "active")),
        NONE if last is None else format_age(last, now),
        age_of(cron_job, now),
        *list_images(read_object(read_object(job, "template"), "spec")),
        format_selector(job.get("selector"), NONE) if job.get("selector") else NONE,
    ]
