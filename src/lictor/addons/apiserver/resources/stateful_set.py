"""StatefulSet and DaemonSet: defaults, validation, columns, controllers that keep revisions."""

import orjson

from lictor.addons.apiserver.controllers.workloads import (
    CLAIMS,
    DAEMON_SETS,
    PODS,
    REVISIONS,
    STATEFUL_SETS,
    ControllerClient,
    ObjectRefusedError,
)
from lictor.addons.apiserver.field_errors import Say, forbidden, invalid, unsupported
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.objects import is_ending
from lictor.addons.apiserver.resources.columns import (
    build_columns,
    list_images,
    tell_labels,
    tell_selector,
)
from lictor.addons.apiserver.resources.pod import EMPTY_POD
from lictor.addons.apiserver.resources.pod_defaults import set_template_defaults
from lictor.addons.apiserver.resources.registry import BuiltinResource, ResourceController
from lictor.addons.apiserver.resources.storage import set_claim_defaults
from lictor.addons.apiserver.resources.validation import check_counts, check_label, check_same
from lictor.addons.apiserver.resources.workload_pods import (
    build_pod,
    build_reference,
    count_field,
    count_ready,
    hash_text,
    is_ready,
    pod_spec_of,
    spec_of,
    validate_pods,
)
from lictor.core.raw import Json, JsonObject


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


def _list_daemon_set_cells(daemon_set: JsonObject) -> list[Json]:
    spec, status = read_object(daemon_set, "spec"), read_object(daemon_set, "status")
    pods = pod_spec_of(daemon_set)
    return [
        *(count_field(status, field) for field in _DAEMON_COUNTS),
        tell_labels(read_object(pods, "nodeSelector")),
        *list_images(pods),
        tell_selector(spec.get("selector")),
    ]


DAEMON_SET = build_columns(
    "Name | Desired:integer | Current:integer | Ready:integer | Up-to-date:integer "
    "| Available:integer | Node Selector | Age | Containers! | Images! | Selector!",
    _list_daemon_set_cells,
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


def set_stateful_set_defaults(stateful_set: JsonObject) -> None:
    """A StatefulSet."""
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


def validate_stateful_set(stateful_set: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A StatefulSet."""
    spec = read_object(stateful_set, "spec")
    before = spec_of(old)
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
    validate_pods(_with_claims(spec), "statefulset", say)


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
REVISION_LABEL = "controller-revision-hash"
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"


async def reconcile_stateful_set(client: ControllerClient, owner: JsonObject) -> None:
    """Make the next Pod, or take the last one away; and say how far that is."""
    if is_ending(owner):
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


RESOURCES = (
    BuiltinResource(
        "apps",
        "StatefulSet",
        set_defaults=set_stateful_set_defaults,
        validate=validate_stateful_set,
        validate_name=check_label,
        columns=STATEFUL_SET,
        controller=ResourceController("statefulset-controller", reconcile_stateful_set),
        counts_generations=True,
        empty_object={"spec": {"template": EMPTY_POD, "updateStrategy": {}}},
    ),
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
