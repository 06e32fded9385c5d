"""Which fields of a document does its kind not have, and what happens to them?"""

import json
from enum import StrEnum
from http import HTTPStatus

import orjson

from lictor.apiserver.bodies import cannot_handle, read_identity
from lictor.apiserver.kind import Cause, ServedKind
from lictor.apiserver.status_errors import invalid_object
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject


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
    """The document without fields that its kind does not have; they are told, or refused."""
    unknown = kind.shape.list_unknown(document)
    if not unknown:
        return document
    told = [f'unknown field "{path}"' for path in unknown]
    if validation is FieldValidation.STRICT:
        raise refuse_fields(kind, told)
    if validation is FieldValidation.WARN:
        warnings += told
    return kind.shape.prune(document)


def refuse_fields(kind: ServedKind, told: list[str]) -> RefusedRequestError:
    """A document that strict decoding does not take."""
    return cannot_handle(kind, f"strict decoding error: {', '.join(told)}")


def read_patched(
    kind: ServedKind, document: JsonObject, validation: FieldValidation, warnings: list[str]
) -> JsonObject:
    """The same for what a patch leaves; what is wrong with that is the patch's fault."""
    if document.get("apiVersion") is None or document.get("kind") is None:
        # The path says what it is; a patch cannot take that away.
        document = {**document, "apiVersion": kind.api_version, "kind": kind.kind}
    try:
        read_identity(kind, document)
        read = read_fields(kind, document, validation, warnings)
        # What has the wrong type is refused here, and not later as the object's fault.
        return kind.shape.prune(read)
    except RefusedRequestError as error:
        if error.code != HTTPStatus.BAD_REQUEST:
            raise
        shown = orjson.dumps(document).decode()
        why = error.message.partition(f"cannot be handled as a {kind.kind}: ")[2] or error.message
        told = f"Invalid value: {json.dumps(shown)}: {why}"
        raise invalid_object("", {}, "", [Cause("FieldValueInvalid", told, "patch")]) from error
