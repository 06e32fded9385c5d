"""What is there, put right: as it should be, but with what others have added to its metadata."""

from collections.abc import Iterator

from lictor.raw import Json, JsonObject

_KEPT = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
# Whoever added these needs them; a made object rarely says anything of its own about them.
_OTHERS = ("finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds")


def merge_known(wanted: JsonObject, known: JsonObject, manager: str) -> JsonObject:
    """The object to put; equal to `known` where nothing is to be done.

    Labels and annotations that others have set stay, such as those that controllers write on what
    they look after; those that `manager` set and are not wanted any more go. All else is as wanted.
    """
    old, new = known["metadata"], wanted["metadata"]
    metadata = {name: old[name] for name in _KEPT if name in old}
    metadata |= {name: old[name] for name in _OTHERS if name in old and name not in new}
    for name in ("labels", "annotations"):
        ours = set(_list_owned(old.get("managedFields"), manager, name))
        kept = {key: text for key, text in (old.get(name) or {}).items() if key not in ours}
        metadata[name] = {**kept, **(new.get(name) or {})}
    merged = {**wanted, "metadata": {**new, **metadata}}
    if "status" in known:
        merged.setdefault("status", known["status"])
    return merged


def _list_owned(fields: Json, manager: str, name: str) -> Iterator[str]:
    """The keys of a map in the metadata that a manager has set."""
    for entry in fields if isinstance(fields, list) else ():
        if not isinstance(entry, dict) or entry.get("manager") != manager:
            continue
        owned = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for key in owned.get(f"f:{name}") or ():
            if key.startswith("f:"):
                yield key.removeprefix("f:")
