"""Deployment, ReplicaSet, ReplicationController, StatefulSet and DaemonSet."""

from lictor.addons.apiserver.field_checks import CheckedField, check_label, compile_fit
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import BuiltinResource, select_by
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.pod_validation import validate_template
from lictor.addons.apiserver.resources.storage import set_claim_defaults
from lictor.addons.apiserver.table_columns import (
    build_columns,
    count_field,
    format_labels,
    format_selector,
    list_images,
)
from lictor.core.errors import CompileError
from lictor.core.raw import Json, JsonObject


def _validate_pods(spec: CheckedField, kind: str) -> None:
    """Selector and template, and that they belong together."""
    selector, template = spec.get("selector"), spec.at("template")
    if selector is None:
        if kind != "daemonset":
            spec.required("selector")
    elif not selector:
        spec.invalid("selector", f"empty selector is invalid for {kind}")
    spec.selector("selector")
    labels = template.at("metadata").get("labels")
    if selector != {} and not _selects(selector, labels or {}):
        template.at("metadata").invalid("labels", "`selector` does not match template `labels`")
    validate_template(template)
    if template.at("spec").get("restartPolicy") in ("OnFailure", "Never"):
        template.at("spec").unsupported("restartPolicy", ("Always",))


def _selects(selector: JsonObject | None, labels: JsonObject) -> bool:
    if not isinstance(selector, dict):
        return False
    fits = compile_fit(selector)
    try:
        return fits is None or fits(labels)
    except CompileError:
        # What is wrong with the selector is found by its own check.
        return True


def pod_spec_of(document: JsonObject) -> JsonObject:
    """The spec of the Pods of a workload."""
    return read_object(read_object(read_object(document, "spec"), "template"), "spec")


_QUARTER = "25%"


def _set_deployment_defaults(deployment: JsonObject) -> None:
    spec = deployment.setdefault("spec", {})
    set_template_defaults(spec.setdefault("template", {}))
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


def _validate_deployment(deployment: CheckedField) -> None:
    spec = deployment.at("spec")
    spec.counts("replicas")
    _validate_pods(spec, "deployment")
    _check_strategy(spec)
    spec.counts("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if isinstance(deadline, int) and deadline <= least:
        spec.invalid("progressDeadlineSeconds", "must be greater than minReadySeconds")
    spec.same("selector")


def _check_strategy(spec: CheckedField) -> None:
    strategy = spec.at("strategy")
    kind, rolling = strategy.get("type"), strategy.at("rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        spec.unsupported("strategy", ("Recreate", "RollingUpdate"), _show_strategy(strategy))
    elif kind == "Recreate" and rolling.value:
        why = "may not be specified when strategy `type` is 'Recreate'"
        strategy.forbid("rollingUpdate", why)
    elif kind == "RollingUpdate" and _is_none(rolling.value, "maxSurge", "maxUnavailable"):
        rolling.invalid("maxUnavailable", "may not be 0 when `maxSurge` is 0")


def _show_strategy(strategy: CheckedField) -> JsonObject:
    return {"Type": strategy.get("type"), "RollingUpdate": strategy.get("rollingUpdate")}


def _is_none(rolling: JsonObject, *fields: str) -> bool:
    return all(rolling.get(field) in (0, "0%") for field in fields)


def _list_deployment_cells(deployment: JsonObject) -> list[Json]:
    spec, status = read_object(deployment, "spec"), read_object(deployment, "status")
    return [
        f"{count_field(status, 'readyReplicas')}/{count_field(spec, 'replicas')}",
        *list_images(pod_spec_of(deployment)),
    ]


DEPLOYMENT = build_columns(
    "Name | Ready | Up-to-date=+status.updatedReplicas | Available=+status.availableReplicas | Age "
    "| Containers! | Images! | Selector!=~spec.selector",
    _list_deployment_cells,
)


def _set_replica_set_defaults(replica_set: JsonObject) -> None:
    spec = replica_set.setdefault("spec", {})
    template = spec.setdefault("template", {})
    set_template_defaults(template)
    spec.setdefault("replicas", 1)
    if replica_set.get("kind") == "ReplicationController":
        labels = read_object(read_object(template, "metadata"), "labels")
        if labels and not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = replica_set.setdefault("metadata", {})
        if labels and not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    replica_set.setdefault("status", {}).setdefault("replicas", 0)


def _validate_replica_set(replica_set: CheckedField) -> None:
    spec = replica_set.at("spec")
    spec.counts("replicas", "minReadySeconds")
    _validate_pods(spec, "replicaset")
    spec.same("selector")


def _list_replica_set_cells(replica_set: JsonObject) -> list[Json]:
    selector = read_object(replica_set, "spec").get("selector")
    is_old = replica_set.get("kind") == "ReplicationController"
    return [
        *list_images(pod_spec_of(replica_set)),
        format_labels(selector or {}) if is_old else format_selector(selector),
    ]


_REPLICAS = (
    "Name | Desired:integer=+spec.replicas | Current:integer=+status.replicas "
    "| Ready:integer=+status.readyReplicas | Age | Containers! | Images! | Selector!"
)
REPLICA_SET = build_columns(_REPLICAS, _list_replica_set_cells)


def _set_daemon_set_defaults(daemon_set: JsonObject) -> None:
    spec = daemon_set.setdefault("spec", {})
    set_template_defaults(spec.setdefault("template", {}))
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


def _validate_daemon_set(daemon_set: CheckedField) -> None:
    spec = daemon_set.at("spec")
    _validate_pods(spec, "daemonset")
    strategy = spec.at("updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = _show_strategy(strategy)
        spec.unsupported("updateStrategy", ("RollingUpdate", "OnDelete"), shown)
    spec.counts("minReadySeconds", "revisionHistoryLimit")
    spec.same("selector")


def _list_daemon_set_cells(daemon_set: JsonObject) -> list[Json]:
    pods = pod_spec_of(daemon_set)
    return [
        format_labels(read_object(pods, "nodeSelector")),
        *list_images(pods),
    ]


DAEMON_SET = build_columns(
    "Name | Desired:integer=+status.desiredNumberScheduled "
    "| Current:integer=+status.currentNumberScheduled | Ready:integer=+status.numberReady "
    "| Up-to-date:integer=+status.updatedNumberScheduled "
    "| Available:integer=+status.numberAvailable | Node Selector | Age "
    "| Containers! | Images! | Selector!=~spec.selector",
    _list_daemon_set_cells,
)


def _set_stateful_set_defaults(stateful_set: JsonObject) -> None:
    spec = stateful_set.setdefault("spec", {})
    set_template_defaults(spec.setdefault("template", {}))
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
        set_claim_defaults(claim)
    status = stateful_set.setdefault("status", {})
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


_STATEFUL_CHANGES = frozenset((
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
))  # fmt: skip
_STATEFUL_FIXED = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def _validate_stateful_set(stateful_set: CheckedField) -> None:
    spec = stateful_set.at("spec")
    before = spec.old
    if before is not None:
        fields = {*spec.value, *before}
        changed = {field for field in fields if spec.get(field) != before.get(field)}
        if changed - _STATEFUL_CHANGES:
            stateful_set.forbid("spec", _STATEFUL_FIXED)
    if spec.get("podManagementPolicy") not in ("OrderedReady", "Parallel"):
        spec.invalid("podManagementPolicy", "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.at("updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        spec.invalid("updateStrategy", why, _show_strategy(strategy))
    spec.counts("replicas", "minReadySeconds")
    _validate_pods(CheckedField(_with_claims(spec.value), "spec", stateful_set.add), "statefulset")


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


def _list_stateful_set_cells(stateful_set: JsonObject) -> list[Json]:
    spec, status = read_object(stateful_set, "spec"), read_object(stateful_set, "status")
    return [
        f"{count_field(status, 'readyReplicas')}/{count_field(spec, 'replicas')}",
        *list_images(pod_spec_of(stateful_set)),
    ]


STATEFUL_SET = build_columns("Name | Ready | Age | Containers! | Images!", _list_stateful_set_cells)
RESOURCES = (
    BuiltinResource(
        "apps",
        "Deployment",
        set_defaults=_set_deployment_defaults,
        validate=_validate_deployment,
        columns=DEPLOYMENT,
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD, "strategy": {}}},
        status_keeps=("labels",),
        status_resets={"f:spec": {}, "f:metadata": {"f:labels": {}}},
    ),
    BuiltinResource(
        "apps",
        "ReplicaSet",
        set_defaults=_set_replica_set_defaults,
        validate=_validate_replica_set,
        columns=REPLICA_SET,
        selectable_fields=select_by("status.replicas", missing="0"),
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD}},
    ),
    BuiltinResource(
        "",
        "ReplicationController",
        set_defaults=_set_replica_set_defaults,
        columns=REPLICA_SET,
        selectable_fields=select_by("status.replicas", missing="0"),
        counts_generations=True,
        orphans_dependents=True,
        empty_object={"spec": {}},
    ),
    BuiltinResource(
        "apps",
        "StatefulSet",
        set_defaults=_set_stateful_set_defaults,
        validate=_validate_stateful_set,
        validate_name=check_label,
        columns=STATEFUL_SET,
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD, "updateStrategy": {}}},
    ),
    BuiltinResource(
        "apps",
        "DaemonSet",
        set_defaults=_set_daemon_set_defaults,
        validate=_validate_daemon_set,
        columns=DAEMON_SET,
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD, "updateStrategy": {}}},
    ),
)
