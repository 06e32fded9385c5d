"""Defaults of what runs Pods: Deployments, StatefulSets, DaemonSets, Jobs and the like."""

from lictor.apiserver.defaults.pod_defaults import complete_template
from lictor.apiserver.defaults.storage_defaults import complete_claim
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import JsonObject

_QUARTER = "25%"
_BATCH = "batch.kubernetes.io/"


def complete_deployment(deployment: JsonObject) -> None:
    """A Deployment."""
    spec = deployment.setdefault("spec", {})
    complete_template(spec.setdefault("template", {}))
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", _QUARTER)
        rolling.setdefault("maxSurge", _QUARTER)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    deployment.setdefault("status", {})


def complete_replica_set(replica_set: JsonObject) -> None:
    """A ReplicaSet or a ReplicationController."""
    spec = replica_set.setdefault("spec", {})
    template = spec.setdefault("template", {})
    complete_template(template)
    spec.setdefault("replicas", 1)
    if replica_set.get("kind") == "ReplicationController":
        labels = read_object(read_object(template, "metadata"), "labels")
        if labels and not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = replica_set.setdefault("metadata", {})
        if labels and not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    replica_set.setdefault("status", {}).setdefault("replicas", 0)


def complete_stateful_set(stateful_set: JsonObject) -> None:
    """A StatefulSet."""
    spec = stateful_set.setdefault("spec", {})
    complete_template(spec.setdefault("template", {}))
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("serviceName", "")
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in read_list(spec, "volumeClaimTemplates"):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        complete_claim(claim)
    status = stateful_set.setdefault("status", {})
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


def complete_daemon_set(daemon_set: JsonObject) -> None:
    """A DaemonSet."""
    spec = daemon_set.setdefault("spec", {})
    complete_template(spec.setdefault("template", {}))
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    annotations = daemon_set.setdefault("metadata", {}).setdefault("annotations", {})
    annotations.setdefault("deprecated.daemonset.template.generation", "1")
    status = daemon_set.setdefault("status", {})
    for field in ("current", "desired"):
        status.setdefault(f"{field}NumberScheduled", 0)
    status.setdefault("numberMisscheduled", 0)
    status.setdefault("numberReady", 0)


def complete_job(job: JsonObject) -> None:
    """A Job; its selector is made of its uid."""
    spec = job.setdefault("spec", {})
    complete_template(spec.setdefault("template", {}))
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


def complete_cron_job(cron_job: JsonObject) -> None:
    """A CronJob; the Jobs it makes are completed when they are made."""
    spec = cron_job.setdefault("spec", {})
    job = spec.setdefault("jobTemplate", {})
    job.setdefault("metadata", {})
    complete_template(job.setdefault("spec", {}).setdefault("template", {}))
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    cron_job.setdefault("status", {})


def complete_autoscaler(autoscaler: JsonObject) -> None:
    """A HorizontalPodAutoscaler."""
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
