"""DaemonSet: defaults, validation, columns, and a controller for clusters without nodes."""

from datetime import datetime

from lictor.apiserver.controllers.workloads import DAEMON_SETS, ControllerClient
from lictor.apiserver.field_errors import Say, unsupported
from lictor.apiserver.json_fields import read_object
from lictor.apiserver.objects import is_ending
from lictor.apiserver.resources.columns import (
    age_of,
    build_columns,
    list_images,
    name_of,
    tell_labels,
    tell_selector,
)
from lictor.apiserver.resources.pod import EMPTY_POD
from lictor.apiserver.resources.pod_defaults import set_template_defaults
from lictor.apiserver.resources.registry import BuiltinResource, ResourceController
from lictor.apiserver.resources.stateful_set import keep_revision
from lictor.apiserver.resources.validation import check_counts, check_same
from lictor.apiserver.resources.workload_pods import (
    count_field,
    pod_spec_of,
    spec_of,
    validate_pods,
)
from lictor.raw import Json, JsonObject


def set_daemon_set_defaults(daemon_set: JsonObject) -> None:
    """A DaemonSet."""
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


def validate_daemon_set(daemon_set: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A DaemonSet."""
    spec = read_object(daemon_set, "spec")
    validate_pods(spec, "daemonset", say)
    strategy = read_object(spec, "updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type"), "RollingUpdate": strategy.get("rollingUpdate")}
        say(unsupported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete")))
    check_counts(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec", say)
    check_same(spec, spec_of(old), ("selector",), "spec", say)


_DAEMON_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _fill_daemon_set(daemon_set: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(daemon_set, "spec"), read_object(daemon_set, "status")
    pods = pod_spec_of(daemon_set)
    return [
        name_of(daemon_set),
        *(count_field(status, field) for field in _DAEMON_COUNTS),
        tell_labels(read_object(pods, "nodeSelector")),
        age_of(daemon_set, now),
        *list_images(pods),
        tell_selector(spec.get("selector")),
    ]


DAEMON_SET = build_columns(
    "Name | Desired:integer | Current:integer | Ready:integer | Up-to-date:integer "
    "| Available:integer | Node Selector | Age | Containers! | Images! | Selector!",
    _fill_daemon_set,
)
_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
)  # fmt: skip


async def reconcile_daemon_set(client: ControllerClient, owner: JsonObject) -> None:
    """Say that everything is as it should be: no Pod for no node."""
    if is_ending(owner):
        return
    await keep_revision(client, owner)
    status: JsonObject = dict.fromkeys(_COUNTS, 0)
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    before = owner.get("status") or {}
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    await client.write_status(DAEMON_SETS, owner, status)


RESOURCES = (
    BuiltinResource(
        "apps",
        "DaemonSet",
        set_defaults=set_daemon_set_defaults,
        validate=validate_daemon_set,
        columns=DAEMON_SET,
        controller=ResourceController("daemon-set-controller", reconcile_daemon_set),
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD, "updateStrategy": {}}},
    ),
)
