"""Metadata of all objects: names, versions, times, and which of them a client may write."""

import secrets
import uuid
from datetime import UTC, datetime

from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import CUSTOM_STATUS, STATUS, ServedKind
from lictor.addons.apiserver.status_errors import bad_request, not_allowed
from lictor.core.errors import RefusedRequestError
from lictor.core.lang.patch.pointer import is_same
from lictor.core.raw import Json, JsonObject

# No vowels and nothing that looks like another: generated names shall not become words.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LENGTH = 5
_MAX_PREFIX = 63 - _RANDOM_LENGTH
# Metadata that a client cannot set on creation.
_SYSTEM = frozenset(
    ("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
)
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_NO_CONTENT = frozenset(("apiVersion", "kind", "metadata"))
_NOT_SPECIFIED = frozenset(("apiVersion", "kind", "metadata", "status"))


def read_clock() -> str:
    """The current time in the format of objects."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_name(prefix: str) -> str:
    """A random name with this prefix."""
    tail = "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM_LENGTH))
    return prefix[:_MAX_PREFIX] + tail


def name_of(document: JsonObject) -> str:
    """The name, or nothing while it has none."""
    return document["metadata"].get("name") or ""


def key_of(document: JsonObject) -> tuple[str, str]:
    """Namespace (or nothing) and name."""
    metadata = document["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def version_of(document: JsonObject) -> str:
    """The resourceVersion, or nothing."""
    return document["metadata"].get("resourceVersion") or ""


def is_ending(document: JsonObject) -> bool:
    """Has someone deleted it already?"""
    return bool(document["metadata"].get("deletionTimestamp"))


# --- creation


def begin_object(kind: ServedKind, document: JsonObject, namespace: str) -> JsonObject:
    """The object to create, without fields that only the server sets."""
    metadata = {key: value for key, value in document["metadata"].items() if key not in _SYSTEM}
    metadata.pop("generation", None)
    if metadata.pop("resourceVersion", None):
        detail = "resourceVersion should not be set on objects to be created"
        raise RefusedRequestError(detail, code=500)
    _settle_namespace(metadata, namespace)
    begun = {**document, "metadata": metadata}
    if kind.has_status and not kind.traits.created_with_status:
        begun.pop("status", None)
    return begun


def _settle_namespace(metadata: JsonObject, namespace: str) -> None:
    found = metadata.get("namespace") or ""
    if not namespace:
        metadata.pop("namespace", None)
    elif not found:
        metadata["namespace"] = namespace
    elif found != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def set_creation_fields(kind: ServedKind, document: JsonObject, now: str) -> JsonObject:
    """The same object with what the server gives it: uid, time, and a name where it has none."""
    metadata = {**document["metadata"], "uid": str(uuid.uuid4()), "creationTimestamp": now}
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = make_name(metadata["generateName"])
    if kind.traits.counts_generations:
        metadata["generation"] = 1
    return {**document, "metadata": metadata}


# --- changes


def carry_over(kind: ServedKind, old: JsonObject, new: JsonObject, subresource: str) -> JsonObject:
    """What a client wants an object to become, as far as it may change it through this path."""
    part = kind.traits.parts.get(subresource)
    if part is None and subresource:
        if subresource != "status":
            raise not_allowed()
        part = CUSTOM_STATUS if kind.is_custom else STATUS
    changed = new if part is None else part.carry(old, new)
    if part is None or part.changes_metadata:
        keeps = kind.traits.status_keeps if subresource == "status" else ()
        changed = {**changed, "metadata": _carry_metadata(old, new, keeps)}
    else:
        managers = new["metadata"].get("managedFields")
        if managers is not None:
            changed = {**changed, "metadata": {**old["metadata"], "managedFields": managers}}
    if not subresource and kind.has_status:
        return _with_field(changed, "status", old.get("status"))
    return changed


def _carry_metadata(old: JsonObject, new: JsonObject, keeps: tuple[str, ...]) -> JsonObject:
    before, metadata = old["metadata"], dict(new["metadata"])
    _settle_namespace(metadata, before.get("namespace") or "")
    for field in (*_KEPT, "generation", "resourceVersion", *keeps):
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    return metadata


def _with_field(document: JsonObject, field: str, value: Json) -> JsonObject:
    if value is None:
        return {key: inner for key, inner in document.items() if key != field}
    return {**document, field: value}


def count_generation(kind: ServedKind, old: JsonObject, new: JsonObject) -> JsonObject:
    """One generation more, where the kind counts them and the content is another."""
    if not kind.traits.counts_generations or _content(kind, old) == _content(kind, new):
        return new
    generation = int(old["metadata"].get("generation") or 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def _content(kind: ServedKind, document: JsonObject) -> JsonObject:
    left_out = _NOT_SPECIFIED if kind.has_status or not kind.is_custom else _NO_CONTENT
    return {key: value for key, value in document.items() if key not in left_out}


def check_identity(old: JsonObject, new: JsonObject) -> list[Cause]:
    """An error if the replacement has another uid."""
    uid = new["metadata"].get("uid")
    if not uid or uid == old["metadata"].get("uid"):
        return []
    return [
        Cause("FieldValueInvalid", f'Invalid value: "{uid}": field is immutable', "metadata.uid")
    ]


def check_change(old: JsonObject, new: JsonObject) -> list[Cause]:
    """What is wrong with the metadata of an object that replaces another."""
    causes = []
    before, after = old["metadata"], new["metadata"]
    if after.get("name") != before.get("name"):
        detail = f'Invalid value: "{after.get("name")}": field is immutable'
        causes.append(Cause("FieldValueInvalid", detail, "metadata.name"))
    if before.get("deletionTimestamp"):
        added = sorted({*(after.get("finalizers") or ())} - {*(before.get("finalizers") or ())})
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            detail = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            causes.append(Cause("FieldValueForbidden", detail, "metadata.finalizers"))
    return causes


def is_unchanged(old: JsonObject, new: JsonObject, *, with_managers: bool) -> bool:
    """Would writing it change nothing? `with_managers`: managedFields count too."""
    left, right = old, new
    if not with_managers:
        left, right = _without_managers(old), _without_managers(new)
    # The first comparison is fast, but takes 1 and true for the same.
    return left == right and is_same(left, right)


def _without_managers(document: JsonObject) -> JsonObject:
    metadata = document["metadata"]
    if "managedFields" not in metadata:
        return document
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**document, "metadata": kept}


def find_controller(document: JsonObject) -> JsonObject | None:
    """The reference to the one owner that controls an object."""
    for reference in document["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: JsonObject = reference
            return found
    return None
