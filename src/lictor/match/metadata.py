"""What an object says of itself, read from any JSON: a field of a wrong type is not there."""

from collections.abc import Mapping

from lictor.raw import Json, JsonObject

_NONE: Mapping[str, str] = {}


def read_text(resource: JsonObject, field: str) -> str:
    """A field of `metadata`, or the empty text."""
    metadata = resource.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    value = metadata.get(field)
    return value if isinstance(value, str) else ""


def read_name(resource: JsonObject) -> str:
    """The name; what stands for it while the API server has yet to choose one is `generateName`."""
    return read_text(resource, "name") or read_text(resource, "generateName")


def read_map(resource: JsonObject, field: str) -> Mapping[str, str]:
    """The labels or the annotations."""
    metadata = resource.get("metadata")
    return clean_map(metadata.get(field)) if isinstance(metadata, dict) else _NONE


def clean_map(value: Json) -> Mapping[str, str]:
    """The mapping where it maps texts to texts; null counts as the empty text.

    One value of another type and Kubernetes' own reader sees no entry at all; so do we.
    """
    if not isinstance(value, Mapping):
        return _NONE
    for entry in value.values():
        if entry.__class__ is not str:
            return _clean_odd_map(value)
    return value


def _clean_odd_map(value: Mapping[str, Json]) -> Mapping[str, str]:
    cleaned = {key: "" if entry is None else entry for key, entry in value.items()}
    return cleaned if all(isinstance(entry, str) for entry in cleaned.values()) else _NONE
