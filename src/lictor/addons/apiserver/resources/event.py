"""Events: served in two groups, the same objects under other names of fields."""

from datetime import datetime

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_object, read_text
from lictor.addons.apiserver.table_columns import format_age, name_of, read_moment
from lictor.core.raw import Json, JsonObject

GROUP = "events.k8s.io"
# As they are kept -> as `events.k8s.io` shows them.
_SHOWN_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_KEPT_NAMES = {shown: kept for kept, shown in _SHOWN_NAMES.items()}


def convert_event(event: JsonObject) -> JsonObject:
    """The same Event with the field names of the other group."""
    names = _KEPT_NAMES if event["apiVersion"] == "v1" else _SHOWN_NAMES
    return {names.get(field, field): value for field, value in event.items()}


def validate_event(event: CheckedField) -> None:
    """An Event is in the namespace of its object."""
    about = event.at("involvedObject" if "involvedObject" in event.value else "regarding")
    namespace = about.text("namespace")
    # Events about cluster-scoped objects may be in any namespace.
    if event.old is None and namespace and namespace != event.at("metadata").text("namespace"):
        about.invalid("namespace", "does not match event.namespace")


def fill_event(event: JsonObject, now: datetime) -> list[Json]:
    """A row."""
    source = read_object(event, "source") or read_object(event, "deprecatedSource")
    about = read_object(event, "involvedObject") or read_object(event, "regarding")
    reporter = read_text(event, "reportingComponent") or read_text(event, "reportingController")
    words = [read_text(source, "component"), read_text(source, "host")]
    if not words[0]:
        words = [reporter, read_text(event, "reportingInstance")]
    first, last = _find_times(event)
    return [
        format_age(last, now),
        read_text(event, "type"),
        read_text(event, "reason"),
        f"{read_text(about, 'kind').lower()}/{read_text(about, 'name')}",
        read_text(about, "fieldPath"),
        ", ".join(word for word in words if word),
        (read_text(event, "message") or read_text(event, "note")).strip(),
        format_age(first, now),
        _count(event),
        name_of(event),
    ]


def _find_times(event: JsonObject) -> tuple[Json, Json]:
    when = event.get("eventTime")
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or when
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    seen = read_object(event, "series").get("lastObservedTime")
    times = [each for each in (last, seen) if read_moment(each) is not None]
    return first, seen or (times[0] if times else first)


def _count(event: JsonObject) -> int:
    repeated = read_object(event, "series").get("count")
    return repeated or event.get("count") or event.get("deprecatedCount") or 1
