"""Job: defaults, validation, columns, selector by uid, and the controller that makes its Pods."""

from collections.abc import Iterator
from datetime import datetime

from lictor.addons.apiserver.controllers.workloads import (
    JOBS,
    PODS,
    ControllerClient,
    ObjectRefusedError,
)
from lictor.addons.apiserver.field_errors import Say, required
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.objects import is_ending, read_clock
from lictor.addons.apiserver.resources.columns import (
    age_of,
    build_timed_columns,
    list_images,
    name_of,
    read_moment,
    tell_length,
    tell_selector,
)
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.pod_validation import validate_template
from lictor.addons.apiserver.resources.registry import (
    BuiltinResource,
    ResourceController,
    SelectableField,
)
from lictor.addons.apiserver.resources.validation import check_choice, check_counts, check_same
from lictor.addons.apiserver.resources.workload_pods import (
    add_pod,
    count_field,
    find_condition,
    is_active,
    pod_spec_of,
    put_condition,
    read_phase,
    spec_of,
)
from lictor.core.raw import Json, JsonObject

_BATCH = "batch.kubernetes.io/"
_PODS_ARE_KEPT = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)


def set_job_defaults(job: JsonObject) -> None:
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


def validate_job(job: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Job."""
    spec = read_object(job, "spec")
    validate_job_spec(spec, "spec", say)
    before = spec_of(old)
    if before is not None and spec.get("completionMode") != "Indexed":
        check_same(spec, before, ("completions",), "spec", say)
    check_same(spec, before, ("selector", "completionMode"), "spec", say)
    if not before or not before.get("suspend"):
        check_same(spec, before, ("template",), "spec", say)


def validate_job_spec(spec: JsonObject, path: str, say: Say) -> None:
    """The spec of a Job, or of the template of one."""
    fields = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit")
    check_counts(spec, (*fields, "ttlSecondsAfterFinished"), path, say)
    modes = ("NonIndexed", "Indexed")
    check_choice(spec.get("completionMode"), modes, f"{path}.completionMode", say)
    template = read_object(spec, "template")
    validate_template(template, f"{path}.template", say)
    policy = read_object(template, "spec").get("restartPolicy")
    place = f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        say(required(place, 'valid values: "OnFailure", "Never"'))
    else:
        check_choice(policy, ("OnFailure", "Never"), place, say)


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
        _tell_job(job, status),
        completions,
        _tell_duration(status, now),
        age_of(job, now),
        *list_images(pod_spec_of(job)),
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


JOB = build_timed_columns(
    "Name | Status | Completions | Duration | Age | Containers! | Images! | Selector!", _fill_job
)
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
    if is_ending(job) or is_done(job):
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


RESOURCES = (
    BuiltinResource(
        "batch",
        "Job",
        set_defaults=set_job_defaults,
        set_uid_defaults=set_uid_defaults,
        validate=validate_job,
        columns=JOB,
        selectable_fields={"status.successful": SelectableField(("status", "succeeded"), "0")},
        controller=ResourceController("job-controller", reconcile_job),
        counts_generations=True,
        orphans_dependents=True,
        deletion_warning=_PODS_ARE_KEPT,
        empty_object={"spec": {"template": EMPTY_POD}},
    ),
)
