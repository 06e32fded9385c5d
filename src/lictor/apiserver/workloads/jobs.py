"""Jobs: Pods until enough of them have succeeded. Someone has to say that they have."""

from collections.abc import Iterator

from lictor.apiserver.controllers.controller_client import (
    JOBS,
    PODS,
    ControllerClient,
    ObjectRefusedError,
)
from lictor.apiserver.objects import read_clock
from lictor.apiserver.workloads.conditions import find_condition, put_condition
from lictor.apiserver.workloads.pods import is_active, is_going, read_phase
from lictor.apiserver.workloads.replicas import add_pod
from lictor.raw import JsonObject

_DONE = ("Complete", "Failed")
_SUSPENDED = "Suspended"
_TOO_OFTEN = "Job has reached the specified backoff limit"
_ENOUGH = "Reached expected number of succeeded pods"
# What an Event says where a condition comes with this reason, if that is something else.
_NEWS = {
    "CompletionsReached": ("Completed", "Job completed"),
    "JobSuspended": ("Suspended", "Job suspended"),
    "JobResumed": ("Resumed", "Job resumed"),
}


async def reconcile_job(client: ControllerClient, job: JsonObject) -> None:
    """Make the Pods that are missing, and count those that are there."""
    if is_going(job) or is_done(job):
        return
    why = await _bring_about(client, job)
    pods = client.list_children(job, PODS)
    status = _compute_status(job, pods)
    await client.write_status(JOBS, job, status)
    for reason, text in _list_news(job, status):
        await client.tell(job, reason, text, warns=reason == "BackoffLimitExceeded")
    if why:
        raise ObjectRefusedError(why)


def is_done(job: JsonObject) -> bool:
    """Is it over, well or not?"""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in _DONE and each["status"] == "True" for each in conditions)


async def _bring_about(client: ControllerClient, job: JsonObject) -> str:
    pods = client.list_children(job, PODS)
    active = [pod for pod in pods if is_active(pod)]
    if job["spec"].get("suspend"):
        for pod in active:
            await client.delete(PODS, pod)
        return ""
    for _ in range(_count_wanted(job, pods) - len(active)):
        why = await add_pod(client, job, job["spec"]["template"])
        if why:
            return why
    return ""


def _count_wanted(job: JsonObject, pods: list[JsonObject]) -> int:
    spec = job["spec"]
    if _count(pods, "Failed") > int(spec.get("backoffLimit", 6)):
        return 0
    parallel = int(spec.get("parallelism", 1))
    succeeded = _count(pods, "Succeeded")
    if "completions" not in spec:
        # A queue of work: whoever is through with it says so for all.
        return 0 if succeeded else parallel
    return min(parallel, max(0, int(spec["completions"]) - succeeded))


def _compute_status(job: JsonObject, pods: list[JsonObject]) -> JsonObject:
    before = job.get("status") or {}
    is_suspended = bool(job["spec"].get("suspend"))
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
    if not is_suspended:
        status["startTime"] = before.get("startTime") or read_clock()
    conditions = [dict(each) for each in before.get("conditions") or ()]
    _put_conditions(job, conditions, counts)
    if find_condition(conditions, "Complete"):
        status["completionTime"] = read_clock()
    return {**status, "conditions": conditions} if conditions else status


def _put_conditions(job: JsonObject, conditions: list[JsonObject], counts: dict[str, int]) -> None:
    spec = job["spec"]
    if spec.get("suspend"):
        text = {"status": "True", "reason": "JobSuspended", "message": "Job suspended"}
        _put(conditions, {"type": _SUSPENDED, **text})
    elif find_condition(conditions, _SUSPENDED):
        text = {"status": "False", "reason": "JobResumed", "message": "Job resumed"}
        _put(conditions, {"type": _SUSPENDED, **text})
    if counts["failed"] > int(spec.get("backoffLimit", 6)):
        text = {"reason": "BackoffLimitExceeded", "message": _TOO_OFTEN}
        _put(conditions, {"type": "Failed", "status": "True", **text})
    elif counts["succeeded"] and counts["succeeded"] >= int(spec.get("completions") or 1):
        text = {"reason": "CompletionsReached", "message": _ENOUGH}
        _put(conditions, {"type": "Complete", "status": "True", **text})


def _put(conditions: list[JsonObject], wanted: JsonObject) -> None:
    old = find_condition(conditions, wanted["type"])
    if old is None or old["status"] != wanted["status"]:
        put_condition(conditions, {**wanted, "lastProbeTime": read_clock()})


def _list_news(job: JsonObject, status: JsonObject) -> Iterator[tuple[str, str]]:
    """Reasons and messages of the Events that a new status is worth."""
    before = list((job.get("status") or {}).get("conditions") or ())
    for condition in status.get("conditions") or ():
        old = find_condition(before, condition["type"])
        if old is None or old["status"] != condition["status"]:
            yield _NEWS.get(condition["reason"], (condition["reason"], condition["message"]))


def _count(pods: list[JsonObject], phase: str) -> int:
    return sum(read_phase(pod) == phase for pod in pods)
