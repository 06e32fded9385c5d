"""CronJob: defaults, validation, columns, and the controller that starts Jobs on schedule."""

from datetime import UTC, datetime, timedelta

from lictor.addons.apiserver.controllers.workloads import CRON_JOBS, JOBS, ControllerClient
from lictor.addons.apiserver.field_errors import Say, invalid
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.objects import is_ending
from lictor.addons.apiserver.resources.columns import (
    NONE,
    age_of,
    build_timed_columns,
    list_images,
    name_of,
    tell_age,
    tell_selector,
)
from lictor.addons.apiserver.resources.job import is_done, validate_job_spec
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.registry import BuiltinResource, ResourceController
from lictor.addons.apiserver.resources.validation import (
    check_choice,
    check_counts,
    need,
    tell_length,
)
from lictor.addons.apiserver.resources.workload_pods import build_reference
from lictor.core.errors import CompileError
from lictor.core.lang.schedule import NextRun, compile_schedule, find_zone
from lictor.core.raw import Json, JsonObject


def set_cron_job_defaults(cron_job: JsonObject) -> None:
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


def validate_cron_job(cron_job: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A CronJob."""
    spec = read_object(cron_job, "spec")
    schedule, zone = read_text(spec, "schedule"), read_text(spec, "timeZone")
    need(spec, ("schedule",), "spec", say)
    if schedule:
        _check_schedule(schedule, say)
    check_counts(spec, ("startingDeadlineSeconds",), "spec", say)
    if zone:
        try:
            find_zone(zone)
        except ValueError as error:
            say(invalid("spec.timeZone", zone, str(error)))
    policies = ("Allow", "Forbid", "Replace")
    check_choice(spec.get("concurrencyPolicy"), policies, "spec.concurrencyPolicy", say)
    job = read_object(read_object(spec, "jobTemplate"), "spec")
    validate_job_spec(job, "spec.jobTemplate.spec", say)
    limits = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    check_counts(spec, limits, "spec", say)
    name = read_text(read_object(cron_job, "metadata"), "name")
    if old is None and len(name) > _MAX_CRON_NAME:
        say(invalid("metadata.name", name, tell_length(_MAX_CRON_NAME)))


def _check_schedule(schedule: str, say: Say) -> None:
    fields = schedule.split()
    if not schedule.startswith("@") and len(fields) != 5:
        told = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        say(invalid("spec.schedule", schedule, told))
        return
    try:
        compile_schedule(schedule)
    except CompileError as error:
        say(invalid("spec.schedule", schedule, str(error)))


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


CRON_JOB = build_timed_columns(
    "Name | Schedule | Timezone | Suspend:boolean | Active:integer | Last Schedule | Age "
    "| Containers! | Images! | Selector!",
    _fill_cron_job,
)
_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
# Runs that were missed, as the program did not run: only the last one counts.
_MOST_MISSED = 1000


async def reconcile_cron_job(
    client: ControllerClient, cron_job: JsonObject, now: datetime | None = None
) -> float | None:
    """Start the Job whose time has come; in how many seconds to look again."""
    if is_ending(cron_job):
        return None
    now = now or datetime.now(UTC)
    jobs = client.list_children(cron_job, JOBS)
    await _forget_old(client, cron_job, jobs)
    next_run = _compile(cron_job)
    started = None
    due = None if next_run is None else _find_due(cron_job, next_run, now)
    if due is not None and not cron_job["spec"].get("suspend"):
        started = await _start(client, cron_job, jobs, due)
    await _write_status(client, cron_job, due if started else None)
    if next_run is None or cron_job["spec"].get("suspend"):
        return None
    return max(1.0, (next_run(now) - now).total_seconds())


def _compile(cron_job: JsonObject) -> NextRun | None:
    spec = cron_job["spec"]
    zone = f"TZ={spec['timeZone']} " if spec.get("timeZone") else ""
    try:
        return compile_schedule(f"{zone}{spec.get('schedule') or ''}")
    except CompileError:
        return None


def _find_due(cron_job: JsonObject, next_run: NextRun, now: datetime) -> datetime | None:
    """The last time that has come and for which nothing was started."""
    status = cron_job.get("status") or {}
    since = status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"]
    moment, due = datetime.fromisoformat(since), None
    for _ in range(_MOST_MISSED):
        moment = next_run(moment)
        if moment > now:
            break
        due = moment
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if due is not None and deadline is not None and now - due > timedelta(seconds=int(deadline)):
        return None
    return due


async def _start(
    client: ControllerClient, cron_job: JsonObject, jobs: list[JsonObject], due: datetime
) -> JsonObject | None:
    running = [job for job in jobs if not is_done(job)]
    policy = cron_job["spec"].get("concurrencyPolicy", "Allow")
    if running and policy == "Forbid":
        return None
    for job in running if policy == "Replace" else ():
        await client.delete(JOBS, job)
    made = await client.create(JOBS, _build_job(cron_job, due))
    text = f"Created job {made['metadata']['name']}"
    await client.tell(cron_job, "SuccessfulCreate", text)
    return made


def _build_job(cron_job: JsonObject, due: datetime) -> JsonObject:
    template = cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    metadata = cron_job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            # One name for one time: a second start of the same run is refused.
            "name": f"{metadata['name']}-{int(due.timestamp()) // 60}",
            "namespace": metadata["namespace"],
            "labels": given.get("labels") or {},
            "annotations": {
                **(given.get("annotations") or {}),
                _SCHEDULED: due.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "ownerReferences": [build_reference(cron_job)],
        },
        "spec": template["spec"],
    }


async def _write_status(
    client: ControllerClient, cron_job: JsonObject, started: datetime | None
) -> None:
    active = [job for job in client.list_children(cron_job, JOBS) if not is_done(job)]
    status = {name: v for name, v in (cron_job.get("status") or {}).items() if name != "active"}
    if active:
        status["active"] = [_refer(job) for job in active]
    if started is not None:
        status["lastScheduleTime"] = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    await client.write_status(CRON_JOBS, cron_job, status)


def _refer(job: JsonObject) -> JsonObject:
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }


async def _forget_old(
    client: ControllerClient, cron_job: JsonObject, jobs: list[JsonObject]
) -> None:
    spec = cron_job["spec"]
    limits = {
        "Complete": int(spec.get("successfulJobsHistoryLimit", 3)),
        "Failed": int(spec.get("failedJobsHistoryLimit", 1)),
    }
    for kind, limit in limits.items():
        ended = [job for job in jobs if _has(job, kind)]
        ended.sort(key=lambda job: str((job.get("status") or {}).get("startTime") or ""))
        for job in ended[: max(0, len(ended) - limit)]:
            await client.delete(JOBS, job)


def _has(job: JsonObject, kind: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


RESOURCES = (
    BuiltinResource(
        "batch",
        "CronJob",
        set_defaults=set_cron_job_defaults,
        validate=validate_cron_job,
        columns=CRON_JOB,
        controller=ResourceController("cronjob-controller", reconcile_cron_job),
        counts_generations=True,
        empty_object={"spec": {"jobTemplate": {"metadata": {}, "spec": {"template": EMPTY_POD}}}},
    ),
)
