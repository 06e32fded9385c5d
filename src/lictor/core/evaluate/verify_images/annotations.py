"""The annotation in which Kyverno stores the outcomes of verifications, for its readers.

It is no evidence: the author of the object may have written it.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from lictor.core.model.request import Request
from lictor.core.model.result import Status
from lictor.core.raw import Json, JsonObject

ANNOTATION: Final = "kyverno.io/verify-images"
# Kubernetes allows twice as much for all annotations of an object.
_LARGEST: Final = 128 * 1024
_WORDS: Final = ("pass", "fail", "skip")


def annotate_outcomes(resource: JsonObject, outcomes: Mapping[str, str]) -> JsonObject:
    """The object with these outcomes by image; the same object if it already has them."""
    text = orjson.dumps(outcomes, option=orjson.OPT_SORT_KEYS).decode()
    metadata, annotations = _read_annotations(resource)
    if annotations.get(ANNOTATION) == text or len(text) > _LARGEST:
        return resource
    return {**resource, "metadata": {**metadata, "annotations": {**annotations, ANNOTATION: text}}}


def list_known_outcomes(request: Request, resource: JsonObject) -> dict[str, str]:
    """What earlier rules wrote, and what the old object had; not what a user wrote."""
    written = _read_annotations(resource)[1].get(ANNOTATION)
    sent = request.admission.get("object") if request.admission is not None else None
    if isinstance(sent, dict) and _read_annotations(sent)[1].get(ANNOTATION) == written:
        written = _read_annotations(request.old_object or {})[1].get(ANNOTATION)
    return _read_outcomes(written)


def format_status(status: Status) -> str:
    """An error counts as failed."""
    return str(status) if status in _WORDS else str(Status.FAIL)


def _read_annotations(resource: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The metadata, and its annotations."""
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    return metadata, annotations if isinstance(annotations, dict) else {}


def _read_outcomes(text: Json) -> dict[str, str]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else {}
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: word for name, word in found.items() if word in _WORDS}
