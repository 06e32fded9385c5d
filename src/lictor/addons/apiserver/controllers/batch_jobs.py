"""Jobs and CronJobs: the Pods that a Job needs, and the Jobs that are due."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from lictor.addons.apiserver.controllers.workload_client import (
    JOBS,
    PODS,
    ControllerClient,
    WriteAction,
    add_pods,
    build_child,
    find_condition,
    has_condition,
    is_active,
    put_condition,
    read_phase,
)
from lictor.addons.apiserver.objects import is_ending, read_clock
from lictor.core.errors import CompileError
from lictor.core.lang.schedule import NextRun, compile_schedule
from lictor.core.raw import JsonObject

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
# Of the runs that were missed while the program was stopped only the last one is started.
_MAX_MISSED = 1000
# Conditions by reason: type, status, message, and reason and message of the Event.
_CONDITIONS = {
    "JobSuspended": ("Suspended", "True", "Job suspended", "Suspended", "Job suspended"),
    "JobResumed": ("Suspended", "False", "Job resumed", "Resumed", "Job resumed"),
    "BackoffLimitExceeded": (
        "Failed", "True", "Job has reached the specified backoff limit",
        "BackoffLimitExceeded", "Job has reached the specified backoff limit",
    ),
    "CompletionsReached": (
        "Complete", "True", "Reached expected number of succeeded pods",
        "Completed", "Job completed",
    ),
}  # fmt: skip


def is_job_over(job: JsonObject) -> bool:
    """Is the Job finished, successfully or not, or being deleted?"""
    return is_ending(job) or _is_done(job)


def _is_done(job: JsonObject) -> bool:
    return has_condition(job, "Complete", "Failed")


def plan_job_pods(client: ControllerClient, job: JsonObject) -> list[WriteAction]:
    """Create the missing Pods of a Job; a suspended one has none."""
    pods = client.list_children(job, PODS)
    active = [pod for pod in pods if is_active(pod)]
    if job["spec"].get("suspend"):
        return [WriteAction("delete", PODS, pod) for pod in active]
    return add_pods(job, _count_wanted(job["spec"], pods) - len(active))


def _count_wanted(spec: JsonObject, pods: list[JsonObject]) -> int:
    if _count(pods, "Failed") > int(spec.get("backoffLimit", 6)):
        return 0
    parallel, succeeded = int(spec.get("parallelism", 1)), _count(pods, "Succeeded")
    if "completions" not in spec:
        # A work queue: the first Pod that succeeds ends it for all.
        return 0 if succeeded else parallel
    return min(parallel, max(0, int(spec["completions"]) - succeeded))


def _count(pods: list[JsonObject], phase: str) -> int:
    return sum(read_phase(pod) == phase for pod in pods)


def compute_job_status(client: ControllerClient, job: JsonObject, _: str) -> JsonObject:
    """The status of a Job."""
    before, pods = job.get("status") or {}, client.list_children(job, PODS)
    counts = {
        "active": sum(is_active(pod) for pod in pods),
        "succeeded": _count(pods, "Succeeded"),
        "failed": _count(pods, "Failed"),
    }
    status: JsonObject = {
        **{name: count for name, count in counts.items() if count},
        "terminating": 0,
        "ready": 0,
        "uncountedTerminatedPods": {},
    }
    if not job["spec"].get("suspend"):
        status["startTime"] = before.get("startTime") or read_clock()
    conditions = [dict(each) for each in before.get("conditions") or ()]
    for reason in _list_reasons(job["spec"], conditions, counts):
        kind, value, message, *_event = _CONDITIONS[reason]
        old = find_condition(conditions, kind)
        if old is None or old["status"] != value:
            found = {"type": kind, "status": value, "reason": reason, "message": message}
            put_condition(conditions, {**found, "lastProbeTime": read_clock()})
    if find_condition(conditions, "Complete"):
        status["completionTime"] = read_clock()
    return {**status, "conditions": conditions} if conditions else status


def _list_reasons(
    spec: JsonObject, conditions: list[JsonObject], counts: dict[str, int]
) -> Iterator[str]:
    if spec.get("suspend"):
        yield "JobSuspended"
    elif find_condition(conditions, "Suspended"):
        yield "JobResumed"
    if counts["failed"] > int(spec.get("backoffLimit", 6)):
        yield "BackoffLimitExceeded"
    elif counts["succeeded"] and counts["succeeded"] >= int(spec.get("completions") or 1):
        yield "CompletionsReached"


def list_job_events(job: JsonObject, status: JsonObject) -> Iterator[tuple[str, str]]:
    """Reasons and messages of the Events that new conditions cause."""
    before = list((job.get("status") or {}).get("conditions") or ())
    for condition in status.get("conditions") or ():
        old = find_condition(before, condition["type"])
        if old is None or old["status"] != condition["status"]:
            reason = condition["reason"]
            *_, event, message = _CONDITIONS.get(reason, (reason, condition["message"]))
            yield event, message


def plan_jobs(client: ControllerClient, cron_job: JsonObject) -> list[WriteAction]:
    """Delete finished Jobs beyond the limits, and start the Job that is due."""
    spec, jobs = cron_job["spec"], client.list_children(cron_job, JOBS)
    actions = [WriteAction("delete", JOBS, job) for job in _list_excess(spec, jobs)]
    next_run = _compile(spec)
    due = None if next_run is None else find_due(cron_job, next_run, datetime.now(UTC))
    if due is None or spec.get("suspend"):
        return actions
    job = _build_job(cron_job, due)
    running = [each for each in jobs if not _is_done(each)]
    policy = spec.get("concurrencyPolicy", "Allow")
    is_started = any(each["metadata"]["name"] == job["metadata"]["name"] for each in jobs)
    if is_started or (running and policy == "Forbid"):
        return actions
    if policy == "Replace":
        actions += [WriteAction("delete", JOBS, each) for each in running]
    return [*actions, WriteAction("create", JOBS, job, "SuccessfulCreate", "Created job {name}")]


def _list_excess(spec: JsonObject, jobs: list[JsonObject]) -> Iterator[JsonObject]:
    limits = {
        "Complete": int(spec.get("successfulJobsHistoryLimit", 3)),
        "Failed": int(spec.get("failedJobsHistoryLimit", 1)),
    }
    for kind, limit in limits.items():
        ended = [job for job in jobs if has_condition(job, kind) and not is_ending(job)]
        ended.sort(key=lambda job: str((job.get("status") or {}).get("startTime") or ""))
        yield from ended[: max(0, len(ended) - limit)]


def _compile(spec: JsonObject) -> NextRun | None:
    zone = f"TZ={spec['timeZone']} " if spec.get("timeZone") else ""
    try:
        return compile_schedule(f"{zone}{spec.get('schedule') or ''}")
    except CompileError:
        return None


def find_due(cron_job: JsonObject, next_run: NextRun, now: datetime) -> datetime | None:
    """The last scheduled time up to now for which no Job was started."""
    status = cron_job.get("status") or {}
    since = status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"]
    moment, due = datetime.fromisoformat(since), None
    for _ in range(_MAX_MISSED):
        moment = next_run(moment)
        if moment > now:
            break
        due = moment
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if due is not None and deadline is not None and now - due > timedelta(seconds=int(deadline)):
        return None
    return due


def find_pause(cron_job: JsonObject) -> float | None:
    """Seconds until the next run; None without one."""
    next_run, now = _compile(cron_job["spec"]), datetime.now(UTC)
    if next_run is None or cron_job["spec"].get("suspend"):
        return None
    return max(1.0, (next_run(now) - now).total_seconds())


def _build_job(cron_job: JsonObject, due: datetime) -> JsonObject:
    template = cron_job["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    metadata = {
        # The name follows from the time, so that a second start of the same run is refused.
        "name": f"{cron_job['metadata']['name']}-{int(due.timestamp()) // 60}",
        "labels": given.get("labels") or {},
        "annotations": {**(given.get("annotations") or {}), _SCHEDULED: due.strftime(_TIME)},
    }
    return build_child(cron_job, "batch/v1", "Job", metadata, spec=template["spec"])


def compute_cron_status(client: ControllerClient, cron_job: JsonObject, _: str) -> JsonObject:
    """The status of a CronJob."""
    before, jobs = cron_job.get("status") or {}, client.list_children(cron_job, JOBS)
    active = [_refer(job) for job in jobs if not _is_done(job)]
    status = {name: value for name, value in before.items() if name != "active"}
    times = [(job["metadata"].get("annotations") or {}).get(_SCHEDULED) or "" for job in jobs]
    last = max([before.get("lastScheduleTime") or "", *times])
    return {
        **status,
        **({"active": active} if active else {}),
        **({"lastScheduleTime": last} if last else {}),
    }


def _refer(job: JsonObject) -> JsonObject:
    fields = ("name", "namespace", "uid", "resourceVersion")
    named = {field: job["metadata"][field] for field in fields}
    return {"apiVersion": "batch/v1", "kind": "Job", **named}
