"""ReplicaSets and Deployments: which Pods and ReplicaSets to create, scale and delete."""

from collections.abc import Iterable

from lictor.addons.apiserver.controllers.deployment_rollout import (
    Rollout,
    compute_rollout_status,
    plan_rollout,
    read_count,
    read_rollout,
    read_size,
)
from lictor.addons.apiserver.controllers.workload_client import (
    PODS,
    REPLICA_SETS,
    ControllerClient,
    WriteAction,
    add_pods,
    build_child,
    count_ready,
    find_condition,
    hash_template,
    is_active,
    is_ready,
    put_condition,
    read_phase,
)
from lictor.addons.apiserver.objects import is_ending
from lictor.core.raw import JsonObject

# A refused template is refused for each Pod: no more than these are tried in a row.
_MAX_AT_ONCE = 500
_FAILURE = "ReplicaFailure"
_HASH_LABEL = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MOST = "deployment.kubernetes.io/max-replicas"
_NOT_INHERITED = frozenset((
    "kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to",
    "deployment.kubernetes.io/revision-history", _REVISION, _DESIRED, _MOST,
))  # fmt: skip


def plan_pods(client: ControllerClient, owner: JsonObject) -> list[WriteAction]:
    """Create or delete Pods until a ReplicaSet has its number of replicas."""
    if is_ending(owner):
        return []
    pods = _list_pods(client, owner)
    excess = len(pods) - int(owner["spec"].get("replicas", 1))
    event = ("SuccessfulDelete", "Deleted pod: {name}")
    surplus = _sort_for_deletion(pods)[: max(0, excess)]
    return [
        *(WriteAction("delete", PODS, pod, *event) for pod in surplus),
        *add_pods(owner, min(-excess, _MAX_AT_ONCE)),
    ]


def _list_pods(client: ControllerClient, owner: JsonObject) -> list[JsonObject]:
    return [pod for pod in client.list_children(owner, PODS) if is_active(pod)]


def _sort_for_deletion(pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Pods without a node, not running and not ready first; among these the youngest first."""
    youngest = sorted(pods, key=_read_age, reverse=True)
    return sorted(
        youngest,
        key=lambda pod: (
            bool((pod.get("spec") or {}).get("nodeName")),
            read_phase(pod) == "Running",
            is_ready(pod),
        ),
    )


def compute_set_status(client: ControllerClient, owner: JsonObject, failure: str) -> JsonObject:
    """The status of a ReplicaSet."""
    pods = _list_pods(client, owner)
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    ready = count_ready(pods)
    counts: JsonObject = {
        "fullyLabeledReplicas": sum(
            labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in pods
        ),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": owner["metadata"].get("generation", 1),
    }
    status = {"replicas": len(pods), **{name: count for name, count in counts.items() if count}}
    conditions = list((owner.get("status") or {}).get("conditions") or ())
    if failure:
        found = {"status": "True", "reason": "FailedCreate", "message": failure}
        put_condition(conditions, {"type": _FAILURE, **found})
    elif (old := find_condition(conditions, _FAILURE)) is not None:
        conditions.remove(old)
    return {**status, "conditions": conditions} if conditions else status


def plan_sets(client: ControllerClient, deployment: JsonObject) -> list[WriteAction]:
    """Create the ReplicaSet of the current template, then scale all, then delete unused ones."""
    sets = sorted(client.list_children(deployment, REPLICA_SETS), key=_read_age)
    new = _find_current(deployment, sets)
    old = [each for each in sets if each is not new]
    revision = max(map(_read_revision, old), default=0) + 1
    if not deployment["spec"].get("paused"):
        if new is None:
            return [WriteAction("create", REPLICA_SETS, _build_set(deployment, revision))]
        if _read_revision(new) < revision and old:
            return [WriteAction("update", REPLICA_SETS, _annotate(new, {_REVISION: str(revision)}))]
    rollout = read_rollout(deployment)
    scaled = [] if new is None else plan_rollout(rollout, new, old)
    return [_scale(rollout, *each) for each in scaled] or _delete_unused(deployment, old)


def _find_current(deployment: JsonObject, sets: Iterable[JsonObject]) -> JsonObject | None:
    return next((each for each in sets if _has_template(each, deployment)), None)


def _build_set(deployment: JsonObject, revision: int) -> JsonObject:
    spec, metadata = deployment["spec"], deployment["metadata"]
    template, selector = spec["template"], spec.get("selector") or {}
    digest = hash_template(template)
    inner = template.get("metadata") or {}
    labels = {**(inner.get("labels") or {}), _HASH_LABEL: digest}
    annotations = metadata.get("annotations") or {}
    inherited = {name: text for name, text in annotations.items() if name not in _NOT_INHERITED}
    return build_child(
        deployment,
        "apps/v1",
        "ReplicaSet",
        {
            "name": f"{metadata['name']}-{digest}",
            "labels": labels,
            "annotations": {
                **inherited,
                _REVISION: str(revision),
                **_write_sizes(read_rollout(deployment)),
            },
        },
        spec={
            "replicas": 0,
            "minReadySeconds": spec.get("minReadySeconds") or 0,
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), _HASH_LABEL: digest},
            },
            "template": {**template, "metadata": {**inner, "labels": labels}},
        },
    )


def _scale(rollout: Rollout, one: JsonObject, size: int) -> WriteAction:
    before = read_size(one)
    changed = _annotate(one, _write_sizes(rollout))
    changed["spec"] = {**one["spec"], "replicas": size}
    way = "up" if size > before else "down"
    message = f"Scaled {way} replica set {{name}} from {before} to {size}"
    return WriteAction("update", REPLICA_SETS, changed, "ScalingReplicaSet", message)


def _delete_unused(deployment: JsonObject, old: list[JsonObject]) -> list[WriteAction]:
    limit = int(deployment["spec"].get("revisionHistoryLimit", 10))
    unused = [
        each
        for each in sorted(old, key=_read_revision)
        if not read_size(each) and not read_count(each, "replicas") and not is_ending(each)
    ]
    return [
        WriteAction("delete", REPLICA_SETS, each) for each in unused[: max(0, len(unused) - limit)]
    ]


def compute_deployment_status(
    client: ControllerClient, deployment: JsonObject, _: str
) -> JsonObject:
    """The status of a Deployment."""
    sets = client.list_children(deployment, REPLICA_SETS)
    new = _find_current(deployment, sets)
    return compute_rollout_status(deployment, read_rollout(deployment), new, sets)


def list_deployment_annotations(client: ControllerClient, deployment: JsonObject) -> dict[str, str]:
    """The revision, which is written with the status."""
    new = _find_current(deployment, client.list_children(deployment, REPLICA_SETS))
    revision = (new["metadata"].get("annotations") or {}).get(_REVISION) if new else None
    return {_REVISION: revision} if revision else {}


def _annotate(one: JsonObject, added: dict[str, str]) -> JsonObject:
    annotations = {**(one["metadata"].get("annotations") or {}), **added}
    return {**one, "metadata": {**one["metadata"], "annotations": annotations}}


def _write_sizes(rollout: Rollout) -> dict[str, str]:
    return {_DESIRED: str(rollout.wanted), _MOST: str(rollout.most)}


def _has_template(one: JsonObject, deployment: JsonObject) -> bool:
    """Does the set have the current template, apart from the hash label?"""
    template, wanted = one["spec"]["template"], deployment["spec"]["template"]
    metadata, given = template.get("metadata") or {}, wanted.get("metadata") or {}
    labels = {name: v for name, v in (metadata.get("labels") or {}).items() if name != _HASH_LABEL}
    return (
        template.get("spec") == wanted.get("spec")
        and labels == (given.get("labels") or {})
        and (metadata.get("annotations") or {}) == (given.get("annotations") or {})
    )


def _read_revision(one: JsonObject) -> int:
    text = (one["metadata"].get("annotations") or {}).get(_REVISION) or "0"
    return int(text) if text.isdecimal() else 0


def _read_age(one: JsonObject) -> tuple[str, str]:
    return one["metadata"].get("creationTimestamp") or "", one["metadata"]["name"]
