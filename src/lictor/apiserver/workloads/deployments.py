"""Deployments: a ReplicaSet for each template, and the change from one to the next."""

import orjson

from lictor.apiserver.controllers.controller_client import (
    DEPLOYMENTS,
    REPLICA_SETS,
    ControllerClient,
)
from lictor.apiserver.workloads.deployment_status import compute_status
from lictor.apiserver.workloads.pods import HASH_LABEL, build_reference, hash_text, is_going
from lictor.apiserver.workloads.rollout import (
    Rollout,
    plan_rollout,
    read_count,
    read_rollout,
    read_size,
)
from lictor.raw import JsonObject

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
    if is_going(deployment):
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
        if not read_size(each) and not read_count(each, "replicas") and not is_going(each)
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
