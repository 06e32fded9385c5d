"""Who owns which fields of an object? metadata.managedFields, read and written."""

from typing import NamedTuple, TypeAlias

import msgspec

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.ownership.field_sets import LEAF, FieldSet, is_field_set
from lictor.raw import Json, JsonObject

APPLY = "Apply"
UPDATE = "Update"


class Manager(NamedTuple):
    """Who writes, and how. Those who apply are one manager whichever version they apply."""

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
