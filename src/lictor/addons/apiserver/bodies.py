"""Bodies of requests, read: JSON or YAML that claims to be an object of a kind."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from http import HTTPStatus
from typing import TypeVar

import orjson

from lictor.addons.apiserver.decoding import explain_metadata
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.protobuf import MEDIA_TYPE, read_protobuf
from lictor.addons.apiserver.status_errors import (
    bad_request,
    invalid_object,
    too_large,
    unsupported_media,
)
from lictor.core.errors import RefusedRequestError, UndecodableObjectError
from lictor.core.raw import Json, JsonObject
from lictor.http.messages import HttpRequest


class FieldValidation(StrEnum):
    """What a client wants to happen."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


def read_fields(
    kind: ServedKind,
    document: JsonObject,
    validation: FieldValidation,
    warnings: list[str],
) -> JsonObject:
    """The document without unknown fields, which are reported or refused."""
    unknown = kind.schema.list_unknown(document)
    if not unknown:
        return document
    detail = [f'unknown field "{path}"' for path in unknown]
    if validation is FieldValidation.STRICT:
        raise refuse_fields(kind, detail)
    if validation is FieldValidation.WARN:
        warnings += detail
    return kind.schema.prune(document)


def refuse_fields(kind: ServedKind, detail: list[str]) -> RefusedRequestError:
    """A document that strict decoding does not take."""
    return UndecodableObjectError(
        kind.kind, kind.version, f"strict decoding error: {', '.join(detail)}"
    )


def read_patched(
    kind: ServedKind, document: JsonObject, validation: FieldValidation, warnings: list[str]
) -> JsonObject:
    """The same for what a patch leaves; what is wrong with that is the patch's fault."""
    if document.get("apiVersion") is None or document.get("kind") is None:
        # The path defines the kind; a patch cannot remove it.
        document = {**document, "apiVersion": kind.api_version, "kind": kind.kind}
    try:
        read_identity(kind, document)
        read = read_fields(kind, document, validation, warnings)
        # What has the wrong type is refused here, and not later as the object's fault.
        return kind.schema.prune(read)
    except RefusedRequestError as error:
        if error.code != HTTPStatus.BAD_REQUEST:
            raise
        shown = orjson.dumps(document).decode()
        why = error.why if isinstance(error, UndecodableObjectError) else error.message
        detail = f"Invalid value: {json.dumps(shown)}: {why}"
        raise invalid_object("", {}, "", [Cause("FieldValueInvalid", detail, "patch")]) from error


_JSON = b"application/json"
_YAML = b"application/yaml"
_ACCEPTED = ("application/json", "application/yaml", MEDIA_TYPE.decode())
# Deeper than anyone writes, and not so deep that walking through it fails.
_MAX_DEPTH = 200
# Checking them holds the event loop: 1.6 s were measured for 49,000 empty containers.
_MAX_ITEMS = 50_000
_OPENING = (b"{", b"[")


# Larger bodies are read beside the event loop: other requests go on meanwhile.
_MAX_AT_ONCE = 64 * 1024
# So that bodies of one client do not take all turns of the interpreter.
_READERS = ThreadPoolExecutor(2, "body-reader")
Read = TypeVar("Read")


async def read_beside(read: Callable[..., Read], body: bytes, *more: bytes) -> Read:
    """What a reader makes of a body, and of what else it needs to know."""
    if len(body) <= _MAX_AT_ONCE:
        return read(body, *more)
    return await asyncio.get_running_loop().run_in_executor(_READERS, read, body, *more)


async def read_body(call: HttpRequest) -> Json:
    """The value of the body of a request; raises RefusedRequestError where it has none."""
    return await read_beside(read_document, call.body, call.content_type)


def read_document(body: bytes, content_type: bytes) -> Json:
    """The value of a body; raises RefusedRequestError where it has none."""
    media = content_type.partition(b";")[0].strip().lower()
    if media in (_JSON, b"") or media.endswith(b"+json"):
        return read_json(body)
    if media == _YAML or media.endswith(b"+yaml"):
        return read_yaml(body)
    if media == MEDIA_TYPE:
        value = read_protobuf(body)
        _check_shape(value)
        return value
    raise unsupported_media(_ACCEPTED)


def read_json(body: bytes) -> Json:
    """The value of a body of JSON."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    # Few openings cannot be deep, few commas cannot be many items, and nearly all bodies have few.
    openings = body.count(b"{") + body.count(b"[")
    if openings > _MAX_DEPTH or openings + body.count(b",") > _MAX_ITEMS:
        _check_shape(value)
    return value


def read_yaml(body: bytes) -> Json:
    """The value of a body of YAML; JSON is YAML too, and read faster."""
    if body.lstrip()[:1] in _OPENING:
        try:
            return read_json(body)
        except RefusedRequestError as error:
            if error.code != HTTPStatus.BAD_REQUEST:
                raise
    # Few send YAML, and reading it takes a while to learn.
    from lictor.core.lang.yaml.build import build_yaml
    from lictor.core.lang.yaml.plain_json import YamlFault

    try:
        built = build_yaml(body.decode())
    except (YamlFault, ValueError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    if built is None:
        return None
    _check_shape(built.body)
    return built.body


def _check_shape(value: Json) -> None:
    """Refuse what is too deep, or has too many items, to be walked through on the event loop."""
    level = [value] if isinstance(value, (dict, list)) else []
    items = 0
    for _ in range(_MAX_DEPTH):
        items += sum(map(len, level))
        if items > _MAX_ITEMS:
            raise too_large(f"the body has more than {_MAX_ITEMS} fields and list items")
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise bad_request("the body is nested too deeply")


def list_duplicates(body: bytes) -> list[str]:
    """Names of fields that occur twice in an object of a JSON body."""
    duplicates: list[str] = []

    def build(pairs: list[tuple[str, Json]]) -> JsonObject:
        built = dict(pairs)
        if len(built) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    duplicates.append(key)
                seen.add(key)
        return built

    try:
        json.loads(body, object_pairs_hook=build)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(duplicates))


def decode_object(kind: ServedKind, document: Json) -> JsonObject:
    """A document as an object of a kind, with kind and apiVersion filled in where left out."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"couldn't get version/kind; cannot read {_name_type(document)} as an object"
        )
    if document.get("metadata") is None:
        document = {**document, "metadata": {}}
    read_identity(kind, document)
    return {**document, "apiVersion": kind.api_version, "kind": kind.kind}


def read_identity(kind: ServedKind, document: JsonObject) -> None:
    """Refuse objects of another kind, and invalid metadata."""
    version = document.get("apiVersion") or kind.api_version
    name = document.get("kind") or kind.kind
    if (version, name) != (kind.api_version, kind.kind):
        why = f'no kind "{name}" is registered for version "{version}" here'
        raise UndecodableObjectError(name, version, why, expected=kind.kind)
    check_metadata(kind, document)


def check_metadata(kind: ServedKind, document: JsonObject) -> None:
    """Refuse metadata that is not of the shape that everything here relies on."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        what = _name_go_type(metadata)
        raise UndecodableObjectError(
            kind.kind,
            kind.version,
            f"json: cannot unmarshal {what} into Go struct field {kind.kind}.metadata "
            "of type v1.ObjectMeta",
        )
    for field, value in metadata.items():
        if value is not None and not _has_type(value, field):
            detail = explain_metadata(metadata)
            raise UndecodableObjectError(
                kind.kind, kind.version, detail or f"metadata.{field} is not of the right type"
            )


def _name_type(value: Json) -> str:
    names = {list: "a list", str: "text", bool: "a boolean"}
    return names.get(type(value), "a number")


def _name_go_type(value: Json) -> str:
    names = {list: "array", str: "string", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")


def _has_type(value: Json, field: str) -> bool:
    """Has a field of the metadata the type of ObjectMeta?"""
    if field in _MAPS:
        return isinstance(value, dict) and all([isinstance(each, str) for each in value.values()])
    if field in _LISTS:
        item = _LISTS[field]
        return isinstance(value, list) and all([isinstance(each, item) for each in value])
    if field in _NUMBERS:
        return isinstance(value, int) and not isinstance(value, bool)
    return field not in _TEXTS or isinstance(value, str)


_TEXTS = frozenset((
    "name", "namespace", "generateName", "uid", "resourceVersion", "creationTimestamp",
    "deletionTimestamp",
))  # fmt: skip
_NUMBERS = frozenset(("generation", "deletionGracePeriodSeconds"))
_MAPS = frozenset(("labels", "annotations"))
_LISTS = {"finalizers": str, "ownerReferences": dict, "managedFields": dict}
