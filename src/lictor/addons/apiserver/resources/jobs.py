"""Job and CronJob: defaults, validation, columns, and the selector of a Job by its uid."""

from datetime import datetime

from lictor.addons.apiserver.field_checks import CheckedField, describe_limit
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import BuiltinResource, SelectableField
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.pod_validation import validate_template
from lictor.addons.apiserver.resources.workloads import pod_spec_of
from lictor.addons.apiserver.table_columns import (
    NONE,
    age_of,
    build_timed_columns,
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
_PODS_ARE_KEPT = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)


def _set_job_defaults(job: JsonObject) -> None:
    """A Job; its selector is made of its uid."""
    spec = job.setdefault("spec", {})
    set_template_defaults(spec.setdefault("template", {}))
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", _choose_replacement(spec))
    _select_pods(job, spec)
    job.setdefault("status", {})


def _choose_replacement(spec: JsonObject) -> str:
    return "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"


def _select_pods(job: JsonObject, spec: JsonObject) -> None:
    metadata = job.setdefault("metadata", {})
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


def _validate_job(job: CheckedField) -> None:
    spec = job.at("spec")
    _validate_job_spec(spec)
    if spec.get("completionMode") != "Indexed":
        spec.same("completions")
    spec.same("selector", "completionMode")
    if not (spec.old or {}).get("suspend"):
        spec.same("template")


def _validate_job_spec(spec: CheckedField) -> None:
    """The spec of a Job, or of the template of one."""
    spec.counts("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit")
    spec.counts("ttlSecondsAfterFinished")
    spec.choice("completionMode", ("NonIndexed", "Indexed"))
    validate_template(spec.at("template"))
    pod = spec.at("template").at("spec")
    if pod.get("restartPolicy") == "Always":
        pod.required("restartPolicy", 'valid values: "OnFailure", "Never"')
    else:
        pod.choice("restartPolicy", ("OnFailure", "Never"))


def _fill_job(job: JsonObject, now: datetime) -> list[Json]:
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
        *list_images(pod_spec_of(job)),
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


JOB = build_timed_columns(
    "Name | Status | Completions | Duration | Age | Containers! | Images! | Selector!", _fill_job
)


def _set_cron_job_defaults(cron_job: JsonObject) -> None:
    """A CronJob; the Jobs it makes are completed when they are made."""
    spec = cron_job.setdefault("spec", {})
    job = spec.setdefault("jobTemplate", {})
    job.setdefault("metadata", {})
    set_template_defaults(job.setdefault("spec", {}).setdefault("template", {}))
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    cron_job.setdefault("status", {})


_MAX_CRON_NAME = 52


def _validate_cron_job(cron_job: CheckedField) -> None:
    spec = cron_job.at("spec")
    spec.need("schedule")
    if spec.text("schedule"):
        _check_schedule(spec)
    spec.counts("startingDeadlineSeconds")
    if zone := spec.text("timeZone"):
        try:
            find_zone(zone)
        except ValueError as error:
            spec.invalid("timeZone", str(error))
    spec.choice("concurrencyPolicy", ("Allow", "Forbid", "Replace"))
    _validate_job_spec(spec.at("jobTemplate").at("spec"))
    spec.counts("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    metadata = cron_job.at("metadata")
    if cron_job.old is None and len(metadata.text("name")) > _MAX_CRON_NAME:
        metadata.invalid("name", describe_limit(_MAX_CRON_NAME))


def _check_schedule(spec: CheckedField) -> None:
    schedule = spec.text("schedule")
    fields = schedule.split()
    if not schedule.startswith("@") and len(fields) != 5:
        why = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        spec.invalid("schedule", why)
        return
    try:
        compile_schedule(schedule)
    except CompileError as error:
        spec.invalid("schedule", str(error))


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
        NONE if last is None else format_age(last, now),
        age_of(cron_job, now),
        *list_images(read_object(read_object(job, "template"), "spec")),
        format_selector(job.get("selector"), NONE) if job.get("selector") else NONE,
    ]


CRON_JOB = build_timed_columns(
    "Name | Schedule | Timezone | Suspend:boolean | Active:integer | Last Schedule | Age "
    "| Containers! | Images! | Selector!",
    _fill_cron_job,
)
RESOURCES = (
    BuiltinResource(
        "batch",
        "Job",
        set_defaults=_set_job_defaults,
        set_uid_defaults=set_uid_defaults,
        validate=_validate_job,
        columns=JOB,
        selectable_fields={"status.successful": SelectableField(("status", "succeeded"), "0")},
        counts_generations=True,
        orphans_dependents=True,
        deletion_warning=_PODS_ARE_KEPT,
        empty_object={"spec": {"template": EMPTY_POD}},
    ),
    BuiltinResource(
        "batch",
        "CronJob",
        set_defaults=_set_cron_job_defaults,
        validate=_validate_cron_job,
        columns=CRON_JOB,
        counts_generations=True,
        empty_object={"spec": {"jobTemplate": {"metadata": {}, "spec": {"template": EMPTY_POD}}}},
    ),
)
