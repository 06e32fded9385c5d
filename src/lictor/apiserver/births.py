"""What an object gets only when it has its uid: the selector of a Job."""

from lictor.apiserver.kind import ServedKind
from lictor.raw import JsonObject

_PREFIX = "batch.kubernetes.io/"


def complete_with_uid(kind: ServedKind, document: JsonObject) -> JsonObject:
    """The same object; a Job with the selector and the labels by which it knows its Pods."""
    if (kind.group, kind.plural) != ("batch", "jobs"):
        return document
    spec = document.get("spec")
    if not isinstance(spec, dict) or spec.get("manualSelector"):
        return document
    metadata = document["metadata"]
    uid, name = metadata["uid"], metadata.get("name") or ""
    given = {
        "controller-uid": uid,
        "job-name": name,
        f"{_PREFIX}controller-uid": uid,
        f"{_PREFIX}job-name": name,
    }
    template = spec.get("template") or {}
    inner = template.get("metadata") or {}
    labels = {**given, **(inner.get("labels") or {})}
    labels |= {key: given[key] for key in (f"{_PREFIX}controller-uid", "controller-uid")}
    changed: JsonObject = {
        **spec,
        "template": {**template, "metadata": {**inner, "labels": labels}},
    }
    selector = dict(spec.get("selector") or {})
    wanted = {**(selector.get("matchLabels") or {}), f"{_PREFIX}controller-uid": uid}
    changed["selector"] = {**selector, "matchLabels": wanted}
    born = {**document, "spec": changed}
    if not metadata.get("labels"):
        born["metadata"] = {**metadata, "labels": labels}
    return born
