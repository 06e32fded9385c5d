"""StatefulSets: Pods with names and claims of their own, one after the other."""

import orjson

from lictor.apiserver.controllers.controller_client import (
    CLAIMS,
    PODS,
    REVISIONS,
    STATEFUL_SETS,
    ControllerClient,
    ObjectRefusedError,
)
from lictor.apiserver.workloads.pods import (
    build_pod,
    build_reference,
    count_ready,
    hash_text,
    is_going,
    is_ready,
)
from lictor.raw import JsonObject

REVISION_LABEL = "controller-revision-hash"
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"


async def reconcile_stateful_set(client: ControllerClient, owner: JsonObject) -> None:
    """Make the next Pod, or take the last one away; and say how far that is."""
    if is_going(owner):
        return
    revision = await keep_revision(client, owner)
    why = await _bring_about(client, owner, revision)
    pods = _list_pods(client, owner)
    await client.write_status(STATEFUL_SETS, owner, _compute_status(owner, pods, revision))
    if why:
        raise ObjectRefusedError(why)


async def keep_revision(client: ControllerClient, owner: JsonObject) -> str:
    """The record of the template of now, and its name."""
    template = owner["spec"]["template"]
    digest = hash_text(orjson.dumps(template, option=orjson.OPT_SORT_KEYS))
    name = f"{owner['metadata']['name']}-{digest}"
    known = client.list_children(owner, REVISIONS)
    if any(each["metadata"]["name"] == name for each in known):
        return name
    labels = (template.get("metadata") or {}).get("labels") or {}
    made = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**labels, REVISION_LABEL: digest},
            "ownerReferences": [build_reference(owner)],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": max((int(each.get("revision") or 0) for each in known), default=0) + 1,
    }
    await client.create(REVISIONS, made)
    return name


async def _bring_about(client: ControllerClient, owner: JsonObject, revision: str) -> str:
    spec = owner["spec"]
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    wanted = range(first, first + int(spec.get("replicas", 1)))
    pods = _list_pods(client, owner)
    is_ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    for number in wanted:
        if number not in pods:
            why = await _add_pod(client, owner, number, revision)
            if why:
                return why
        if is_ordered and not (number in pods and is_ready(pods[number])):
            # The next one waits for this one.
            break
    for number in sorted(pods.keys() - set(wanted), reverse=True):
        await client.delete(PODS, pods[number])
        name = pods[number]["metadata"]["name"]
        await client.tell(owner, "SuccessfulDelete", _describe("delete", name, owner, "successful"))
    return ""


async def _add_pod(client: ControllerClient, owner: JsonObject, number: int, revision: str) -> str:
    name = f"{owner['metadata']['name']}-{number}"
    labels = {_NAME_LABEL: name, _INDEX_LABEL: str(number), REVISION_LABEL: revision}
    pod = build_pod(owner, owner["spec"]["template"], labels)
    pod["metadata"]["name"] = name
    claims = owner["spec"].get("volumeClaimTemplates") or []
    pod["spec"] = {**pod["spec"], "hostname": name, **_mount_claims(pod["spec"], claims, name)}
    if owner["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = owner["spec"]["serviceName"]
    try:
        for claim in claims:
            await _add_claim(client, owner, claim, name)
        await client.create(PODS, pod)
    except ObjectRefusedError as refusal:
        text = _describe("create", name, owner, "failed")
        await client.tell(owner, "FailedCreate", f"{text} error: {refusal}", warns=True)
        return str(refusal)
    text = _describe("create", name, owner, "successful")
    await client.tell(owner, "SuccessfulCreate", text)
    return ""


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


async def _add_claim(
    client: ControllerClient, owner: JsonObject, claim: JsonObject, pod: str
) -> None:
    namespace = owner["metadata"]["namespace"]
    name = f"{claim['metadata']['name']}-{pod}"
    if client.find(CLAIMS, namespace, name) is not None:
        return
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    metadata = {**claim["metadata"], "name": name, "namespace": namespace}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": claim["spec"]}
    await client.create(CLAIMS, {**made, "metadata": metadata})


def _list_pods(client: ControllerClient, owner: JsonObject) -> dict[int, JsonObject]:
    """The Pods by the number at the end of their names."""
    found = {}
    for pod in client.list_children(owner, PODS):
        number = pod["metadata"]["name"].rpartition("-")[2]
        if number.isdecimal():
            found[int(number)] = pod
    return found


def _compute_status(owner: JsonObject, pods: dict[int, JsonObject], revision: str) -> JsonObject:
    before = owner.get("status") or {}
    updated = sum(_read_revision(pod) == revision for pod in pods.values())
    current = before.get("currentRevision") or revision
    if updated == len(pods) and len(pods) == int(owner["spec"].get("replicas", 1)):
        current = revision
    ready = count_ready(pods.values())
    of_current = sum(_read_revision(pod) == current for pod in pods.values())
    counts = {"currentReplicas": of_current, "updatedReplicas": updated, "readyReplicas": ready}
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(pods),
        **{name: count for name, count in counts.items() if count},
        "availableReplicas": ready,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": before.get("collisionCount", 0),
    }


def _read_revision(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL) or "")


def _describe(verb: str, pod: str, owner: JsonObject, result: str) -> str:
    return f"{verb} Pod {pod} in StatefulSet {owner['metadata']['name']} {result}"
