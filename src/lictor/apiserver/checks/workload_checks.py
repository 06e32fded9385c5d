"""What is wrong with what runs Pods?"""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lictor.apiserver.checks.check_basics import (
    Say,
    check_choice,
    check_counts,
    check_same,
    check_selector,
    need,
)
from lictor.apiserver.checks.name_rules import tell_length
from lictor.apiserver.checks.pod_checks import check_template
from lictor.apiserver.field_errors import forbidden, invalid, required, unsupported
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.errors import CompileError
from lictor.lang.cron import compile_schedule
from lictor.lang.label_selector import Requirement, compile_label_selector
from lictor.raw import JsonObject

_MAX_CRON_NAME = 52
_STATEFUL_CHANGES = frozenset((
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
))  # fmt: skip
_STATEFUL_FIXED = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def check_deployment(deployment: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Deployment."""
    spec = read_object(deployment, "spec")
    check_counts(spec, ("replicas",), "spec", say)
    _check_pods(spec, "deployment", say)
    _check_strategy(read_object(spec, "strategy"), say)
    fields = ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    check_counts(spec, fields, "spec", say)
    deadline, patience = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if isinstance(deadline, int) and deadline <= patience:
        told = "must be greater than minReadySeconds"
        say(invalid("spec.progressDeadlineSeconds", deadline, told))
    check_same(spec, _spec_of(old), ("selector",), "spec", say)


def _spec_of(document: JsonObject | None) -> JsonObject | None:
    return None if document is None else read_object(document, "spec")


def _check_pods(spec: JsonObject, kind: str, say: Say) -> None:
    """Selector and template, and that they belong together."""
    selector, template = spec.get("selector"), read_object(spec, "template")
    if selector is None:
        if kind != "daemonset":
            say(required("spec.selector"))
    elif not selector:
        say(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    check_selector(selector, "spec.selector", say)
    labels = read_object(template, "metadata").get("labels")
    if selector != {} and not _selects(selector, labels or {}):
        told = "`selector` does not match template `labels`"
        say(invalid("spec.template.metadata.labels", labels, told))
    check_template(template, "spec.template", say)
    policy = read_object(template, "spec").get("restartPolicy")
    if policy != "Always" and policy in ("OnFailure", "Never"):
        say(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))


def _selects(selector: JsonObject | None, labels: JsonObject) -> bool:
    if not isinstance(selector, dict):
        return False
    requirements = [
        Requirement(
            read_text(each, "key"), read_text(each, "operator"), tuple(read_list(each, "values"))
        )
        for each in read_list(selector, "matchExpressions")
    ]
    try:
        test = compile_label_selector(read_object(selector, "matchLabels"), requirements)
    except CompileError:
        # What is wrong with it is told elsewhere.
        return True
    return bool(test(labels))


def _check_strategy(strategy: JsonObject, say: Say) -> None:
    kind, rolling = strategy.get("type"), read_object(strategy, "rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        shown = {"Type": kind, "RollingUpdate": strategy.get("rollingUpdate")}
        say(unsupported("spec.strategy", shown, ("Recreate", "RollingUpdate")))
    elif kind == "Recreate" and rolling:
        told = "may not be specified when strategy `type` is 'Recreate'"
        say(forbidden("spec.strategy.rollingUpdate", told))
    elif kind == "RollingUpdate" and _is_none(rolling, "maxSurge", "maxUnavailable"):
        told = "may not be 0 when `maxSurge` is 0"
        say(invalid("spec.strategy.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], told))


def _is_none(rolling: JsonObject, *fields: str) -> bool:
    return all(rolling.get(field) in (0, "0%") for field in fields)


def check_replica_set(replica_set: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ReplicaSet."""
    spec = read_object(replica_set, "spec")
    check_counts(spec, ("replicas", "minReadySeconds"), "spec", say)
    _check_pods(spec, "replicaset", say)
    check_same(spec, _spec_of(old), ("selector",), "spec", say)


def check_daemon_set(daemon_set: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A DaemonSet."""
    spec = read_object(daemon_set, "spec")
    _check_pods(spec, "daemonset", say)
    strategy = read_object(spec, "updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type"), "RollingUpdate": strategy.get("rollingUpdate")}
        say(unsupported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete")))
    check_counts(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec", say)
    check_same(spec, _spec_of(old), ("selector",), "spec", say)


def check_stateful_set(stateful_set: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A StatefulSet."""
    spec = read_object(stateful_set, "spec")
    before = _spec_of(old)
    if before is not None:
        changed = {key for key in {*spec, *before} if spec.get(key) != before.get(key)}
        if changed - _STATEFUL_CHANGES:
            say(forbidden("spec", _STATEFUL_FIXED))
    management = spec.get("podManagementPolicy")
    if management not in ("OrderedReady", "Parallel"):
        told = "must be 'OrderedReady' or 'Parallel'"
        say(invalid("spec.podManagementPolicy", management, told))
    strategy = read_object(spec, "updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type"), "RollingUpdate": strategy.get("rollingUpdate")}
        say(invalid("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'"))
    check_counts(spec, ("replicas", "minReadySeconds"), "spec", say)
    _check_pods(_with_claims(spec), "statefulset", say)


def _with_claims(spec: JsonObject) -> JsonObject:
    """The same with a volume for each claim: Pods will have one, and may mount it."""
    template = read_object(spec, "template")
    pod = read_object(template, "spec")
    volumes = read_list(pod, "volumes")
    known = {read_text(volume, "name") for volume in volumes}
    claims = [read_object(each, "metadata") for each in read_list(spec, "volumeClaimTemplates")]
    names = {read_text(claim, "name") for claim in claims} - known
    if not names:
        return spec
    added = [{"name": name, "emptyDir": {}} for name in sorted(names)]
    return {
        **spec,
        "template": {**template, "spec": {**pod, "volumes": [*volumes, *added]}},
    }


def check_job(job: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Job."""
    spec = read_object(job, "spec")
    _check_job_spec(spec, "spec", say)
    before = _spec_of(old)
    if before is not None and spec.get("completionMode") != "Indexed":
        check_same(spec, before, ("completions",), "spec", say)
    check_same(spec, before, ("selector", "completionMode"), "spec", say)
    if not before or not before.get("suspend"):
        check_same(spec, before, ("template",), "spec", say)


def _check_job_spec(spec: JsonObject, path: str, say: Say) -> None:
    fields = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit")
    check_counts(spec, (*fields, "ttlSecondsAfterFinished"), path, say)
    modes = ("NonIndexed", "Indexed")
    check_choice(spec.get("completionMode"), modes, f"{path}.completionMode", say)
    template = read_object(spec, "template")
    check_template(template, f"{path}.template", say)
    policy = read_object(template, "spec").get("restartPolicy")
    place = f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        say(required(place, 'valid values: "OnFailure", "Never"'))
    else:
        check_choice(policy, ("OnFailure", "Never"), place, say)


def check_cron_job(cron_job: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A CronJob."""
    spec = read_object(cron_job, "spec")
    schedule, zone = read_text(spec, "schedule"), read_text(spec, "timeZone")
    need(spec, ("schedule",), "spec", say)
    if schedule:
        _check_schedule(schedule, say)
    check_counts(spec, ("startingDeadlineSeconds",), "spec", say)
    if zone and not _is_zone(zone):
        say(invalid("spec.timeZone", zone, f"unknown time zone {zone}"))
    policies = ("Allow", "Forbid", "Replace")
    check_choice(spec.get("concurrencyPolicy"), policies, "spec.concurrencyPolicy", say)
    job = read_object(read_object(spec, "jobTemplate"), "spec")
    _check_job_spec(job, "spec.jobTemplate.spec", say)
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


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def check_autoscaler(autoscaler: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A HorizontalPodAutoscaler."""
    del old
    spec = read_object(autoscaler, "spec")
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if isinstance(least, int) and least < 1:
        say(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < 1:
        say(invalid("spec.maxReplicas", most, "must be greater than 0"))
    elif isinstance(least, int) and most < least:
        say(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    target = read_object(spec, "scaleTargetRef")
    need(target, ("kind", "name"), "spec.scaleTargetRef", say)


def check_budget(budget: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A PodDisruptionBudget."""
    del old
    spec = read_object(budget, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        say(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    check_selector(spec.get("selector"), "spec.selector", say)
