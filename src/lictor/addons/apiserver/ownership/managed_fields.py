"""What does a write do to the owners of an object's fields? As Kubernetes keeps managedFields."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.ownership.field_sets import (
    LEAF,
    FieldComparison,
    FieldSet,
    compare_fields,
    exclude,
    intersect,
    is_field_set,
    share_fields,
    subtract,
    unite,
)
from lictor.core.errors import EvaluationError
from lictor.core.raw import Json, JsonObject

APPLY = "Apply"
UPDATE = "Update"


class Manager(NamedTuple):
    """A writer and its operation. Apply counts as one manager for all versions."""

    name: str
    operation: str
    subresource: str
    # Empty for those who apply.
    api_version: str


class Share(msgspec.Struct, frozen=True):
    """What a manager owns."""

    fields: FieldSet
    api_version: str
    time: str = ""


Shares: TypeAlias = dict[Manager, Share]


def make_manager(name: str, operation: str, subresource: str, kind: ServedKind) -> Manager:
    """The identity of a writer."""
    version = "" if operation == APPLY else kind.api_version
    return Manager(name or "unknown", operation, subresource, version)


def read_shares(document: JsonObject, *, is_stored: bool = False) -> Shares | None:
    """What the managers own; None where it cannot be read. What is stored was read before."""
    entries = list_entries(document)
    if not isinstance(entries, list):
        return {} if entries is None else None
    shares: Shares = {}
    for entry in entries:
        if not (is_stored or _is_entry(entry)):
            return None
        operation, version = entry["operation"], entry["apiVersion"]
        manager = Manager(
            entry.get("manager") or "",
            operation,
            entry.get("subresource") or "",
            "" if operation == APPLY else version,
        )
        shares[manager] = Share(entry.get("fieldsV1") or LEAF, version, entry.get("time") or "")
    return shares


def list_entries(document: JsonObject) -> Json:
    """The managedFields as they stand there."""
    metadata = document.get("metadata")
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def _is_entry(entry: Json) -> bool:
    if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE):
        return False
    if not entry.get("apiVersion") or entry.get("fieldsType") != "FieldsV1":
        return False
    texts = map(entry.get, ("manager", "subresource", "apiVersion", "time"))
    if not all(text is None or isinstance(text, str) for text in texts):
        return False
    fields = entry.get("fieldsV1")
    return fields is None or is_field_set(fields)


def write_shares(document: JsonObject, shares: Shares) -> JsonObject:
    """The document with these owners, and no others."""
    metadata = document.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    metadata.pop("managedFields", None)
    if shares:
        entries = sorted(shares.items(), key=_order)
        metadata["managedFields"] = [_write_entry(manager, share) for manager, share in entries]
    return {**document, "metadata": metadata}


def _order(entry: tuple[Manager, Share]) -> tuple[str, ...]:
    manager, share = entry
    return manager.operation, share.time, manager.name, share.api_version, manager.subresource


def _write_entry(manager: Manager, share: Share) -> JsonObject:
    entry: JsonObject = {"manager": manager.name, "operation": manager.operation}
    entry["apiVersion"] = share.api_version
    if share.time:
        entry["time"] = share.time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = share.fields
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


# More of those who update than this are taken together: the oldest first.
_MAX_UPDATERS = 10
_ANCIENT = "ancient-changes"
# Fields that only the server writes; they have no owner.
_SERVER_METADATA = frozenset((
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
    "managedFields", "resourceVersion",
))  # fmt: skip
_SERVER_FIELDS: FieldSet = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {".": LEAF, **{f"f:{name}": LEAF for name in _SERVER_METADATA}},
}
# What an empty object of a built-in kind already contains; no manager adds it.
_EMPTY: JsonObject = {"metadata": {}, "spec": {}, "status": {}}


def list_reset_fields(kind: ServedKind, subresource: str) -> FieldSet:
    """Fields that a write through this subresource cannot change, so that it does not own them."""
    if subresource == "status":
        return kind.traits.status_resets
    return {"f:status": LEAF} if kind.has_status else {}


def compare_objects(
    old: JsonObject, new: JsonObject, kind: ServedKind, resets: FieldSet
) -> FieldComparison:
    """What a write changes, apart from what it cannot change and what the server itself writes."""
    compared = compare_fields(_bare(old), _bare(new), kind.schema.form)
    return (
        FieldComparison(*(exclude(fields, resets) for fields in compared)) if resets else compared
    )


def _bare(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata") or {}
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_METADATA}
    bare = {**document, "metadata": kept}
    bare.pop("apiVersion", None)
    bare.pop("kind", None)
    return bare


def strip_server_fields(fields: FieldSet) -> FieldSet:
    """The set without what the server itself writes."""
    return subtract(fields, _SERVER_FIELDS)


def find_conflicts(
    shares: Shares, manager: Manager | None, changed: FieldComparison
) -> dict[Manager, FieldSet]:
    """The fields of others that a write changes or adds, by owner."""
    touched = unite(changed.modified, changed.added)
    found = {
        other: intersect(share.fields, touched)
        for other, share in shares.items()
        if other != manager
    }
    return {other: fields for other, fields in found.items() if fields}


def take_from_others(
    shares: Shares,
    manager: Manager | None,
    changed: FieldComparison,
    conflicts: Mapping[Manager, FieldSet],
) -> Shares:
    """Leave to others what is still there and as they wrote it; who owns nothing is dropped."""
    kept: Shares = {}
    for other, share in shares.items():
        fields = share.fields
        if other != manager:
            fields = subtract(subtract(fields, conflicts.get(other, {})), changed.removed)
        if fields is share.fields and (fields or other == manager):
            kept[other] = share
        elif fields:
            kept[other] = msgspec.structs.replace(share, fields=fields)
    return kept


def track(
    kind: ServedKind,
    old: JsonObject | None,
    new: JsonObject,
    manager: str,
    now: str,
    subresource: str,
) -> JsonObject:
    """Give `new` with its managedFields, as they are after this create, update or patch.

    `old` is None for a create; `now` is as in `2026-01-02T03:04:05Z`. What cannot be tracked is
    written without managedFields, never refused.
    """
    try:
        shares = _find_shares(old, new, subresource)
        if not shares and old is not None:
            # Without earlier owners, Kubernetes does not start tracking either.
            return write_shares(new, {})
        writer = make_manager(manager, UPDATE, subresource, kind)
        shares = record_update(kind, old, new, shares, writer, now)
    except (EvaluationError, RecursionError):
        shares = {}
    return write_shares(new, shares)


def _find_shares(old: JsonObject | None, new: JsonObject, subresource: str) -> Shares:
    """The owners before the write. Who sends an empty list, or an empty entry, wants none."""
    kept = (read_shares(old, is_stored=True) or {}) if old is not None else {}
    sent = None if subresource else list_entries(new)
    if sent in ([], [{}]):
        return {}
    if not sent or (old is not None and sent == list_entries(old)):
        return kept
    return read_shares(new) or kept


def record_update(
    kind: ServedKind,
    old: JsonObject | None,
    new: JsonObject,
    shares: Shares,
    writer: Manager,
    now: str,
) -> Shares:
    """The owners after a write that is no apply."""
    before = make_empty(kind) if old is None else old
    changed = compare_objects(before, new, kind, list_reset_fields(kind, writer.subresource))
    conflicts = find_conflicts(shares, None, changed)
    shares = take_from_others(shares, None, changed, conflicts)
    taken = unite(changed.modified, changed.added)
    if taken:
        held = shares.get(writer)
        fields = share_fields(taken if held is None else unite(held.fields, taken))
        # Those who only scale leave no time, in Kubernetes too.
        time = "" if writer.subresource == "scale" else now
        shares[writer] = Share(fields, kind.api_version, time)
    return _cap_updaters(shares)


def make_empty(kind: ServedKind) -> JsonObject:
    """The object that a first write is compared with."""
    if kind.is_custom:
        return {}
    return {**_EMPTY, **kind.traits.empty_object}


def _cap_updaters(shares: Shares) -> Shares:
    updaters = [manager for manager in shares if manager.operation != APPLY]
    excess = len(updaters) - _MAX_UPDATERS
    if excess <= 0:
        return shares
    shares = dict(shares)
    updaters.sort(key=lambda manager: (shares[manager].time, manager))
    firsts: dict[str, Manager] = {}
    for manager in updaters:
        version = manager.api_version
        if firsts.setdefault(version, manager) is manager:
            continue
        bucket = Manager(_ANCIENT, UPDATE, "", version)
        old = shares.pop(bucket, None) or shares.pop(firsts[version])
        newer = shares.pop(manager)
        shares[bucket] = msgspec.structs.replace(newer, fields=unite(old.fields, newer.fields))
        excess -= 1
        if excess == 0:
            break
    return shares
