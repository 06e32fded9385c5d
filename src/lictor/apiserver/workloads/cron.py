"""CronJobs: a Job at each time of the schedule, and not too many old ones."""

from datetime import UTC, datetime, timedelta

from lictor.apiserver.controllers.controller_client import CRON_JOBS, JOBS, ControllerClient
from lictor.apiserver.workloads.jobs import is_done
from lictor.apiserver.workloads.pods import build_reference, is_going
from lictor.errors import CompileError
from lictor.lang.cron import NextRun, compile_schedule
from lictor.raw import JsonObject

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
# Runs that were missed, as the program did not run: only the last one counts.
_MOST_MISSED = 1000


async def reconcile_cron_job(
    client: ControllerClient, cron_job: JsonObject, now: datetime | None = None
) -> float | None:
    """Start the Job whose time has come; in how many seconds to look again."""
    if is_going(cron_job):
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
