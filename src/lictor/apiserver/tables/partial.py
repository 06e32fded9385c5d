"""Objects without anything but their metadata."""

from collections.abc import Iterable

from lictor.raw import JsonObject

_META = "meta.k8s.io"


def show_metadata(document: JsonObject, version: str = "v1") -> JsonObject:
    """A PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{_META}/{version}",
        "metadata": document["metadata"],
    }


def list_metadata(
    objects: Iterable[JsonObject], metadata: JsonObject, version: str = "v1"
) -> JsonObject:
    """A PartialObjectMetadataList; `metadata` is that of the list."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{_META}/{version}",
        "metadata": metadata,
        "items": [show_metadata(each, version) for each in objects],
    }
