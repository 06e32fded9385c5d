"""The annotations in which Kyverno stores the outcomes of verifications, for its readers.

They are no evidence: the author of the object may have written them. Only the stored object's, by
policy and rule, save a second verification of an image that an update does not change.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
import orjson

from lictor.core.model.request import Request
from lictor.core.model.result import Status
from lictor.core.raw import Json, JsonObject

ANNOTATION: Final = "kyverno.io/verify-images"
SCOPED_ANNOTATION: Final = "kyverno.io/verify-images-scoped"
# Kubernetes allows twice as much for all annotations of an object.
_LARGEST: Final = 128 * 1024
_LARGEST_SCOPED: Final = 64 * 1024
_WORDS: Final = ("pass", "fail", "skip")
_ACCEPTED: Final = ("pass", "skip")
_VERSION: Final = 1

# Policy as `namespace/name` (`/name` for the whole cluster) -> rule -> image -> outcome.
ScopedOutcomes: TypeAlias = dict[str, dict[str, dict[str, str]]]


class PolicyRule(msgspec.Struct, frozen=True):
    """A rule as the scoped annotation names it."""

    policy: str
    name: str


class _ScopedAnnotation(msgspec.Struct):
    version: int = 0
    policies: ScopedOutcomes = {}


# Built now: msgspec would crash if threads built it on first use at the same time.
_SCOPED = msgspec.json.Decoder(_ScopedAnnotation)


def annotate_outcomes(resource: JsonObject, outcomes: Mapping[str, str]) -> JsonObject:
    """The object with these outcomes by image; the same object if it already has them."""
    text = orjson.dumps(outcomes, option=orjson.OPT_SORT_KEYS).decode()
    return resource if len(text) > _LARGEST else _annotate(resource, ANNOTATION, text)


def annotate_scoped(
    request: Request, resource: JsonObject, rule: PolicyRule, outcomes: Mapping[str, str]
) -> JsonObject:
    """The object with the outcomes of one rule, and without those that a user wrote."""
    known = _read_scoped(_find_written(request, resource, SCOPED_ANNOTATION))
    if outcomes:
        rules = known.setdefault(rule.policy, {})
        rules[rule.name] = {**rules.get(rule.name, {}), **outcomes}
    if not known:
        return _annotate(resource, SCOPED_ANNOTATION, None)
    whole = {"version": _VERSION, "policies": dict(sorted(known.items()))}
    text = orjson.dumps(whole).decode()
    # Without the annotation, images are verified again by every update.
    return _annotate(resource, SCOPED_ANNOTATION, text if len(text) <= _LARGEST_SCOPED else None)


def was_accepted(request: Request, rule: PolicyRule, image: str) -> bool:
    """Whether the stored object has the outcome that the rule accepted the image."""
    text = _read_annotations(request.old_object or {})[1].get(SCOPED_ANNOTATION)
    if text is None:
        return False
    return _read_scoped(text).get(rule.policy, {}).get(rule.name, {}).get(image) in _ACCEPTED


def _annotate(resource: JsonObject, name: str, text: str | None) -> JsonObject:
    metadata, annotations = _read_annotations(resource)
    if annotations.get(name) == text:
        return resource
    rest = {key: value for key, value in annotations.items() if key != name}
    added = {} if text is None else {name: text}
    return {**resource, "metadata": {**metadata, "annotations": {**rest, **added}}}


def list_known_outcomes(request: Request, resource: JsonObject) -> dict[str, str]:
    """What earlier rules wrote, and what the old object had; not what a user wrote."""
    return _read_outcomes(_find_written(request, resource, ANNOTATION))


def _find_written(request: Request, resource: JsonObject, name: str) -> Json:
    written = _read_annotations(resource)[1].get(name)
    sent = request.admission.get("object") if request.admission is not None else None
    if isinstance(sent, dict) and _read_annotations(sent)[1].get(name) == written:
        return _read_annotations(request.old_object or {})[1].get(name)
    return written


def format_status(status: Status) -> str:
    """An error counts as failed."""
    return str(status) if status in _WORDS else str(Status.FAIL)


def _read_annotations(resource: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The metadata, and its annotations."""
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    return metadata, annotations if isinstance(annotations, dict) else {}


def _read_scoped(text: Json) -> ScopedOutcomes:
    try:
        found = _SCOPED.decode(text) if isinstance(text, str) else None
    except msgspec.MsgspecError:
        return {}
    return found.policies if found is not None and found.version == _VERSION else {}


def _read_outcomes(text: Json) -> dict[str, str]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else {}
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: word for name, word in found.items() if word in _WORDS}
