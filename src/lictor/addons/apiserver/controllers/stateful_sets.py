"""StatefulSets and DaemonSets: their revisions, and the numbered Pods of StatefulSets."""

from lictor.addons.apiserver.controllers.workload_client import (
    CLAIMS,
    PODS,
    REVISIONS,
    ControllerClient,
    WriteAction,
    build_child,
    build_pod,
    count_ready,
    hash_template,
    is_ready,
)
from lictor.addons.apiserver.objects import is_ending
from lictor.core.raw import JsonObject

_REVISION_LABEL = "controller-revision-hash"
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NODE_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
)  # fmt: skip


def plan_revision(client: ControllerClient, owner: JsonObject) -> list[WriteAction]:
    """Record the current template where it is not recorded yet."""
    name, template = _name_revision(owner), owner["spec"]["template"]
    known = client.list_children(owner, REVISIONS)
    if any(each["metadata"]["name"] == name for each in known):
        return []
    labels = (template.get("metadata") or {}).get("labels") or {}
    revision = build_child(
        owner,
        "apps/v1",
        "ControllerRevision",
        {"name": name, "labels": {**labels, _REVISION_LABEL: hash_template(template)}},
        data={"spec": {"template": {**template, "$patch": "replace"}}},
        revision=max((int(each.get("revision") or 0) for each in known), default=0) + 1,
    )
    return [WriteAction("create", REVISIONS, revision)]


def _name_revision(owner: JsonObject) -> str:
    return f"{owner['metadata']['name']}-{hash_template(owner['spec']['template'])}"


def compute_daemon_status(_: ControllerClient, owner: JsonObject, __: str) -> JsonObject:
    """The status of a DaemonSet: there are no nodes, so there are no Pods."""
    status: JsonObject = dict.fromkeys(_NODE_COUNTS, 0)
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    before = owner.get("status") or {}
    kept = {name: before[name] for name in ("collisionCount",) if name in before}
    return {**status, **kept}


def plan_numbered_pods(client: ControllerClient, owner: JsonObject) -> list[WriteAction]:
    """Record the template; then create the next Pod, or delete those beyond the last number."""
    actions = plan_revision(client, owner)
    if actions:
        return actions
    spec = owner["spec"]
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    wanted = range(first, first + int(spec.get("replicas", 1)))
    pods = _list_pods(client, owner)
    is_ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    for number in wanted:
        if number not in pods:
            actions += _add_pod(client, owner, number)
        if is_ordered and not (number in pods and is_ready(pods[number])):
            # The next Pod waits until this one is ready.
            break
    for number in sorted(pods.keys() - set(wanted), reverse=True):
        if not is_ending(pods[number]):
            message = _describe("delete", "{name}", owner, "successful")
            actions.append(WriteAction("delete", PODS, pods[number], "SuccessfulDelete", message))
    return actions


def _add_pod(client: ControllerClient, owner: JsonObject, number: int) -> list[WriteAction]:
    name, spec = f"{owner['metadata']['name']}-{number}", owner["spec"]
    labels = {
        _NAME_LABEL: name,
        _INDEX_LABEL: str(number),
        _REVISION_LABEL: _name_revision(owner),
    }
    pod = build_pod(owner, spec["template"], labels)
    pod["metadata"]["name"] = name
    claims = spec.get("volumeClaimTemplates") or []
    pod["spec"] = {**pod["spec"], "hostname": name, **_mount_claims(pod["spec"], claims, name)}
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    failure = f"{_describe('create', name, owner, 'failed')} error:"
    message = _describe("create", name, owner, "successful")
    missing = (_build_claim(owner, claim, name) for claim in claims)
    return [
        *(
            WriteAction("create", CLAIMS, claim, failure=failure)
            for claim in missing
            if client.find(CLAIMS, claim["metadata"]["namespace"], claim["metadata"]["name"])
            is None
        ),
        WriteAction("create", PODS, pod, "SuccessfulCreate", message, failure),
    ]


def _mount_claims(spec: JsonObject, claims: list[JsonObject], pod: str) -> JsonObject:
    if not claims:
        return {}
    names = {claim["metadata"]["name"] for claim in claims}
    volumes = [each for each in spec.get("volumes") or () if each.get("name") not in names]
    volumes += [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}}
        for name in sorted(names)
    ]
    return {"volumes": volumes}


def _build_claim(owner: JsonObject, claim: JsonObject, pod: str) -> JsonObject:
    given = claim["metadata"]
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    metadata = {
        **given,
        "name": f"{given['name']}-{pod}",
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(given.get("labels") or {}), **labels},
    }
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "metadata": metadata, "spec": claim["spec"]}


def _list_pods(client: ControllerClient, owner: JsonObject) -> dict[int, JsonObject]:
    """The Pods by the number at the end of their names."""
    named = (
        (pod["metadata"]["name"].rpartition("-")[2], pod)
        for pod in client.list_children(owner, PODS)
    )
    return {int(number): pod for number, pod in named if number.isdecimal()}


def compute_stateful_status(client: ControllerClient, owner: JsonObject, _: str) -> JsonObject:
    """The status of a StatefulSet."""
    before, revision = owner.get("status") or {}, _name_revision(owner)
    pods = _list_pods(client, owner).values()
    revisions = [(pod["metadata"].get("labels") or {}).get(_REVISION_LABEL) for pod in pods]
    updated = revisions.count(revision)
    current = before.get("currentRevision") or revision
    if updated == len(pods) and len(pods) == int(owner["spec"].get("replicas", 1)):
        current = revision
    ready = count_ready(pods)
    counts = {
        "currentReplicas": revisions.count(current),
        "updatedReplicas": updated,
        "readyReplicas": ready,
    }
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(pods),
        **{name: count for name, count in counts.items() if count},
        "availableReplicas": ready,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": before.get("collisionCount", 0),
    }


def _describe(verb: str, pod: str, owner: JsonObject, result: str) -> str:
    return f"{verb} Pod {pod} in StatefulSet {owner['metadata']['name']} {result}"
