"""Deployment, ReplicaSet, ReplicationController, StatefulSet and DaemonSet."""

from lictor.addons.apiserver.field_checks import CheckedField, compile_fit
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.registry import find_checks
from lictor.core.errors import CompileError
from lictor.core.raw import JsonObject


def set_controller_defaults(controller: JsonObject) -> None:
    """Selector and labels of a ReplicationController are those of its Pods."""
    spec, metadata = controller["spec"], controller.setdefault("metadata", {})
    labels = read_object(read_object(spec["template"], "metadata"), "labels")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def set_generation_default(annotations: JsonObject) -> None:
    """The generation of the template of a DaemonSet."""
    annotations.setdefault("deprecated.daemonset.template.generation", "1")


def set_stateful_strategy_defaults(strategy: JsonObject) -> None:
    """The update strategy of a StatefulSet."""
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)


def check_deployment_pods(spec: CheckedField) -> None:
    """Selector and template of a Deployment."""
    _validate_pods(spec, "deployment")


def check_replica_set_pods(spec: CheckedField) -> None:
    """Selector and template of a ReplicaSet."""
    _validate_pods(spec, "replicaset")


def check_daemon_pods(spec: CheckedField) -> None:
    """Selector and template of a DaemonSet."""
    _validate_pods(spec, "daemonset")


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
    find_checks("template")(template)
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


def check_deadline(spec: CheckedField) -> None:
    """Pods must be able to become ready before the deadline."""
    deadline, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if isinstance(deadline, int) and deadline <= least:
        spec.invalid("progressDeadlineSeconds", "must be greater than minReadySeconds")


def check_strategy(spec: CheckedField) -> None:
    """The strategy of a Deployment."""
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


def check_daemon_strategy(spec: CheckedField) -> None:
    """The update strategy of a DaemonSet."""
    strategy = spec.at("updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = _show_strategy(strategy)
        spec.unsupported("updateStrategy", ("RollingUpdate", "OnDelete"), shown)


_STATEFUL_CHANGES = frozenset((
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
))  # fmt: skip
_STATEFUL_FIXED = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def check_stateful_change(stateful_set: CheckedField) -> None:
    """What of a StatefulSet can be changed."""
    spec = stateful_set.at("spec")
    before = spec.old
    if before is not None:
        fields = {*spec.value, *before}
        changed = {field for field in fields if spec.get(field) != before.get(field)}
        if changed - _STATEFUL_CHANGES:
            stateful_set.forbid("spec", _STATEFUL_FIXED)


def check_stateful_policies(spec: CheckedField) -> None:
    """How a StatefulSet creates and updates its Pods."""
    if spec.get("podManagementPolicy") not in ("OrderedReady", "Parallel"):
        spec.invalid("podManagementPolicy", "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.at("updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        spec.invalid("updateStrategy", why, _show_strategy(strategy))


def check_stateful_pods(stateful_set: CheckedField) -> None:
    """Selector and template of a StatefulSet; Pods may mount its claims."""
    spec = _with_claims(stateful_set.at("spec").value)
    _validate_pods(CheckedField(spec, "spec", stateful_set.add), "statefulset")


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
