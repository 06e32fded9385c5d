"""Events are served in two groups: the same objects, under other names of fields."""

from lictor.apiserver.kind import ServedKind
from lictor.raw import JsonObject

PLURAL = "events"
GROUP = "events.k8s.io"
# As they are kept -> as `events.k8s.io` shows them.
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {shown: kept for kept, shown in _NAMES.items()}


def is_event(kind: ServedKind) -> bool:
    """Are these Events, of either group?"""
    return kind.plural == PLURAL and kind.group in ("", GROUP)


def view_event(document: JsonObject, kind: ServedKind) -> JsonObject:
    """An Event as its group names the fields; the same one where it is of that group already."""
    if document.get("apiVersion") == kind.api_version:
        return document
    names = _NAMES if kind.group else _BACK
    shown = {names.get(field, field): value for field, value in document.items()}
    return {**shown, "apiVersion": kind.api_version}


def find_kept_field(field: str) -> str:
    """What a field selector of `events.k8s.io` means in an Event as it is kept."""
    first, dot, rest = field.partition(".")
    return _BACK.get(first, first) + dot + rest
