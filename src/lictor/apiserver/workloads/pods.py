"""Pods as controllers make and count them: from a template, for an owner."""

from collections.abc import Iterable, Mapping

from lictor.raw import JsonObject

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


def find_controller(document: JsonObject) -> JsonObject | None:
    """The reference to the one owner that controls an object."""
    for reference in document["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: JsonObject = reference
            return found
    return None


def is_going(document: JsonObject) -> bool:
    """Is it being deleted?"""
    return bool(document["metadata"].get("deletionTimestamp"))


def read_phase(pod: JsonObject) -> str:
    """Pending, Running, Succeeded or Failed."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: JsonObject) -> bool:
    """Does it count: neither over nor being deleted?"""
    return read_phase(pod) not in _DONE and not is_going(pod)


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
