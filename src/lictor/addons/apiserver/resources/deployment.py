"""Deployment: defaults, validation, columns, and the controller of its ReplicaSets."""

import orjson

from lictor.addons.apiserver.controllers.workloads import (
    DEPLOYMENTS,
    REPLICA_SETS,
    ControllerClient,
)
from lictor.addons.apiserver.field_errors import Say, forbidden, invalid, unsupported
from lictor.addons.apiserver.json_fields import read_object
from lictor.addons.apiserver.objects import is_ending
from lictor.addons.apiserver.resources.columns import build_columns, list_images, tell_selector
from lictor.addons.apiserver.resources.deployment_rollout import (
    Rollout,
    compute_status,
    plan_rollout,
    read_count,
    read_rollout,
    read_size,
)
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.registry import BuiltinResource, ResourceController
from lictor.addons.apiserver.resources.validation import check_counts, check_same
from lictor.addons.apiserver.resources.workload_pods import (
    HASH_LABEL,
    build_reference,
    count_field,
    hash_text,
    pod_spec_of,
    spec_of,
    validate_pods,
)
from lictor.core.raw import Json, JsonObject

_QUARTER = "25%"


def set_deployment_defaults(deployment: JsonObject) -> None:
    """A Deployment."""
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


def validate_deployment(deployment: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Deployment."""
    spec = read_object(deployment, "spec")
    check_counts(spec, ("replicas",), "spec", say)
    validate_pods(spec, "deployment", say)
    _check_strategy(read_object(spec, "strategy"), say)
    fields = ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    check_counts(spec, fields, "spec", say)
    deadline, patience = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if isinstance(deadline, int) and deadline <= patience:
        told = "must be greater than minReadySeconds"
        say(invalid("spec.progressDeadlineSeconds", deadline, told))
    check_same(spec, spec_of(old), ("selector",), "spec", say)


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


def _list_deployment_cells(deployment: JsonObject) -> list[Json]:
    spec, status = read_object(deployment, "spec"), read_object(deployment, "status")
    return [
        f"{count_field(status, 'readyReplicas')}/{count_field(spec, 'replicas')}",
        count_field(status, "updatedReplicas"),
        count_field(status, "availableReplicas"),
        *list_images(pod_spec_of(deployment)),
        tell_selector(spec.get("selector")),
    ]


DEPLOYMENT = build_columns(
    "Name | Ready | Up-to-date | Available | Age | Containers! | Images! | Selector!",
    _list_deployment_cells,
)
_REVISION = "deployment.kubernetes.io/revision"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MOST = "deployment.kubernetes.io/max-replicas"
_NOT_INHERITED = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        "deployment.kubernetes.io/revision-history",
        _REVISION,
        _DESIRED,
        _MOST,
    )
)


async def reconcile_deployment(client: ControllerClient, deployment: JsonObject) -> None:
    """Bring the ReplicaSets to what the Deployment says, and say how far that went."""
    if is_ending(deployment):
        return
    sets = sorted(client.list_children(deployment, REPLICA_SETS), key=_read_age)
    new = next((each for each in sets if _has_template(each, deployment)), None)
    rollout = read_rollout(deployment)
    if not deployment["spec"].get("paused"):
        new = await _renew(client, deployment, new, sets)
    old = [each for each in sets if new is None or _read_uid(each) != _read_uid(new)]
    if new is not None:
        await _scale(client, deployment, rollout, new, old)
    await _forget_old(client, deployment, old)
    # As they are after all that was written.
    sets = client.list_children(deployment, REPLICA_SETS)
    new = next((each for each in sets if _has_template(each, deployment)), None)
    revision = (new["metadata"].get("annotations") or {}).get(_REVISION) if new else None
    await client.write_status(
        DEPLOYMENTS,
        deployment,
        compute_status(deployment, rollout, new, sets),
        annotations={_REVISION: revision} if revision else None,
    )


async def _renew(
    client: ControllerClient, deployment: JsonObject, new: JsonObject | None, sets: list[JsonObject]
) -> JsonObject:
    """The set of the template of now: made where there is none, and always the last revision."""
    others = [each for each in sets if new is None or _read_uid(each) != _read_uid(new)]
    revision = max(map(_read_revision, others), default=0) + 1
    if new is None:
        made = _build_set(deployment, revision)
        return await client.create(REPLICA_SETS, made)
    if _read_revision(new) < revision and others:
        return await _annotate(client, new, {_REVISION: str(revision)})
    return new


def _build_set(deployment: JsonObject, revision: int) -> JsonObject:
    spec, metadata = deployment["spec"], deployment["metadata"]
    template = spec["template"]
    digest = hash_text(orjson.dumps(template, option=orjson.OPT_SORT_KEYS))
    inner = template.get("metadata") or {}
    labels = {**(inner.get("labels") or {}), HASH_LABEL: digest}
    selector = spec.get("selector") or {}
    rollout = read_rollout(deployment)
    inherited = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name not in _NOT_INHERITED
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {**inherited, _REVISION: str(revision), **_write_sizes(rollout)},
            "ownerReferences": [build_reference(deployment)],
        },
        "spec": {
            "replicas": 0,
            "minReadySeconds": spec.get("minReadySeconds") or 0,
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest},
            },
            "template": {**template, "metadata": {**inner, "labels": labels}},
        },
    }


async def _scale(
    client: ControllerClient,
    deployment: JsonObject,
    rollout: Rollout,
    new: JsonObject,
    old: list[JsonObject],
) -> None:
    for each, size in plan_rollout(rollout, new, old):
        before = read_size(each)
        name, way = each["metadata"]["name"], "up" if size > before else "down"
        annotations = {**(each["metadata"].get("annotations") or {}), **_write_sizes(rollout)}
        changed = {
            **each,
            "metadata": {**each["metadata"], "annotations": annotations},
            "spec": {**each["spec"], "replicas": size},
        }
        await client.update(REPLICA_SETS, changed)
        text = f"Scaled {way} replica set {name} from {before} to {size}"
        await client.tell(deployment, "ScalingReplicaSet", text)


async def _forget_old(
    client: ControllerClient, deployment: JsonObject, old: list[JsonObject]
) -> None:
    limit = deployment["spec"].get("revisionHistoryLimit", 10)
    unused = [
        each
        for each in sorted(old, key=_read_revision)
        if not read_size(each) and not read_count(each, "replicas") and not is_ending(each)
    ]
    for each in unused[: max(0, len(unused) - int(limit))]:
        await client.delete(REPLICA_SETS, each)


async def _annotate(client: ControllerClient, one: JsonObject, added: dict[str, str]) -> JsonObject:
    annotations = {**(one["metadata"].get("annotations") or {}), **added}
    changed = {**one, "metadata": {**one["metadata"], "annotations": annotations}}
    return await client.update(REPLICA_SETS, changed)


def _write_sizes(rollout: Rollout) -> dict[str, str]:
    return {_DESIRED: str(rollout.wanted), _MOST: str(rollout.most)}


def _has_template(one: JsonObject, deployment: JsonObject) -> bool:
    """Is it a set of the template of now, but for the label that we gave it?"""
    template = one["spec"]["template"]
    metadata = template.get("metadata") or {}
    labels = {name: v for name, v in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    wanted = deployment["spec"]["template"]
    given = wanted.get("metadata") or {}
    return (
        template.get("spec") == wanted.get("spec")
        and labels == (given.get("labels") or {})
        and (metadata.get("annotations") or {}) == (given.get("annotations") or {})
    )


def _read_revision(one: JsonObject) -> int:
    text = (one["metadata"].get("annotations") or {}).get(_REVISION) or "0"
    return int(text) if text.isdecimal() else 0


def _read_uid(one: JsonObject) -> str:
    return str(one["metadata"]["uid"])


def _read_age(one: JsonObject) -> tuple[str, str]:
    return one["metadata"].get("creationTimestamp") or "", one["metadata"]["name"]


RESOURCES = (
    BuiltinResource(
        "apps",
        "Deployment",
        set_defaults=set_deployment_defaults,
        validate=validate_deployment,
        columns=DEPLOYMENT,
        controller=ResourceController("deployment-controller", reconcile_deployment),
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD, "strategy": {}}},
        status_keeps=("labels",),
        status_resets={"f:spec": {}, "f:metadata": {"f:labels": {}}},
    ),
)
