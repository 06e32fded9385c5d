"""What workloads share: selector and template, the Pods made from it, conditions in a status."""

from collections.abc import Iterable, Mapping

from lictor.addons.apiserver.controllers.workloads import PODS, ControllerClient, ObjectRefusedError
from lictor.addons.apiserver.field_errors import Say, invalid, required, unsupported
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.objects import is_ending, read_clock
from lictor.addons.apiserver.resources.pod_validation import validate_template
from lictor.addons.apiserver.resources.validation import check_selector
from lictor.core.errors import CompileError
from lictor.core.lang.label_selector import Requirement, compile_label_selector
from lictor.core.raw import JsonObject


def spec_of(document: JsonObject | None) -> JsonObject | None:
    """The spec of what is replaced; None where nothing is."""
    return None if document is None else read_object(document, "spec")


def validate_pods(spec: JsonObject, kind: str, say: Say) -> None:
    """Selector and template, and that they belong together."""
    selector, template = spec.get("selector"), read_object(spec, "template")
    if selector is None:
        if kind != "daemonset":
            say(required("spec.selector"))
    elif not selector:
        say(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    check_selector(selector, "spec.selector", say)
    labels = read_object(template, "metadata").get("labels")
    if selector != {} and not _selects(selector, labels or {}):
        told = "`selector` does not match template `labels`"
        say(invalid("spec.template.metadata.labels", labels, told))
    validate_template(template, "spec.template", say)
    policy = read_object(template, "spec").get("restartPolicy")
    if policy != "Always" and policy in ("OnFailure", "Never"):
        say(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))


def _selects(selector: JsonObject | None, labels: JsonObject) -> bool:
    if not isinstance(selector, dict):
        return False
    requirements = [
        Requirement(
            read_text(each, "key"), read_text(each, "operator"), tuple(read_list(each, "values"))
        )
        for each in read_list(selector, "matchExpressions")
    ]
    try:
        test = compile_label_selector(read_object(selector, "matchLabels"), requirements)
    except CompileError:
        # What is wrong with it is told elsewhere.
        return True
    return bool(test(labels))


def pod_spec_of(document: JsonObject) -> JsonObject:
    """The spec of the Pods of a workload."""
    return read_object(read_object(read_object(document, "spec"), "template"), "spec")


def count_field(holder: JsonObject, field: str) -> int:
    """A number of a spec or a status; 0 where it is not there."""
    value = holder.get(field)
    return value if isinstance(value, int) else 0


HASH_LABEL = "pod-template-hash"
# Kubernetes' own alphabet: no vowels, so that no hash is a word.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_FNV_START = 2166136261
_FNV_PRIME = 16777619
_DONE = ("Succeeded", "Failed")
_TEMPLATE_PARTS = ("labels", "annotations", "finalizers")


def build_pod(
    owner: JsonObject, template: JsonObject, labels: Mapping[str, str] | None = None
) -> JsonObject:
    """A Pod of the owner's, still without a name."""
    given = template.get("metadata") or {}
    metadata: JsonObject = {part: given[part] for part in _TEMPLATE_PARTS if given.get(part)}
    if labels:
        metadata["labels"] = {**(given.get("labels") or {}), **labels}
    metadata["namespace"] = owner["metadata"]["namespace"]
    metadata["ownerReferences"] = [build_reference(owner)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }


def build_reference(owner: JsonObject) -> JsonObject:
    """The reference by which an object says whose it is."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def read_phase(pod: JsonObject) -> str:
    """Pending, Running, Succeeded or Failed."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: JsonObject) -> bool:
    """Does it count: neither over nor being deleted?"""
    return read_phase(pod) not in _DONE and not is_ending(pod)


def is_ready(pod: JsonObject) -> bool:
    """Has someone said that it answers? Without a kubelet, only a test would."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def count_ready(pods: Iterable[JsonObject]) -> int:
    """How many of them answer."""
    return sum(is_ready(pod) for pod in pods)


def choose_victims(pods: Iterable[JsonObject], count: int) -> list[JsonObject]:
    """Which Pods go when there are too many: those that do least, the youngest first."""
    youngest = sorted(
        pods,
        key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]),
        reverse=True,
    )
    return sorted(youngest, key=_rank)[:count]


def _rank(pod: JsonObject) -> tuple[bool, bool, bool]:
    has_node = bool((pod.get("spec") or {}).get("nodeName"))
    return has_node, read_phase(pod) == "Running", is_ready(pod)


def hash_text(data: bytes) -> str:
    """A short name for a content: the same for the same bytes."""
    number = _FNV_START
    for byte in data:
        number = ((number ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def find_condition(conditions: list[JsonObject], kind: str) -> JsonObject | None:
    """The condition of a type."""
    return next((each for each in conditions if each.get("type") == kind), None)


def put_condition(
    conditions: list[JsonObject], wanted: JsonObject, *, is_stamped: bool = False
) -> None:
    """Put a condition in the place of its older self; `is_stamped`: with the time of the update.

    One with the same status and reason stays as it is, even where its words differ: they may name
    a Pod that has another name each time.
    """
    old = find_condition(conditions, wanted["type"])
    now = read_clock()
    if old is not None:
        if all(old.get(name) == wanted.get(name) for name in ("status", "reason")):
            return
        conditions.remove(old)
    is_same = old is not None and old.get("status") == wanted["status"]
    made = {**wanted, "lastTransitionTime": old["lastTransitionTime"] if old and is_same else now}
    if is_stamped:
        made["lastUpdateTime"] = now
    conditions.append(made)


async def add_pod(client: ControllerClient, owner: JsonObject, template: JsonObject) -> str:
    """One more Pod, its name ending as chance will have it; why not, where it was refused."""
    pod = build_pod(owner, template)
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    try:
        made = await client.create(PODS, pod)
    except ObjectRefusedError as refusal:
        text = str(refusal)
        await client.tell(owner, "FailedCreate", f"Error creating: {text}", warns=True)
        return text
    await client.tell(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
    return ""
