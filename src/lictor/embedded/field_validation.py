"""Which fields of a document does its kind not have, and what happens to them?"""

from enum import StrEnum

from lictor.embedded.kind import Cause, Kind
from lictor.embedded.refusals import bad_request, invalid_object
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject


class FieldValidation(StrEnum):
    """What a client wants to happen."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


def read_fields(
    kind: Kind,
    document: JsonObject,
    validation: FieldValidation,
    warnings: list[str],
    *,
    is_patch: bool = False,
) -> JsonObject:
    """The document without fields that its kind does not have; they are told, or refused."""
    unknown = kind.shape.list_unknown(document)
    if not unknown:
        return document
    told = [f'unknown field "{path}"' for path in unknown]
    if validation is FieldValidation.STRICT:
        raise refuse_fields(kind, told, is_patch=is_patch)
    if validation is FieldValidation.WARN:
        warnings += told
    return kind.shape.prune(document)


def refuse_fields(kind: Kind, told: list[str], *, is_patch: bool) -> RefusedRequestError:
    """A document that strict decoding does not take."""
    listed = f"strict decoding error: {', '.join(told)}"
    if is_patch:
        return invalid_patch(listed)
    return bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {listed}'
    )


def invalid_patch(why: str) -> RefusedRequestError:
    """A patch that leads to no object of the kind."""
    cause = Cause("FieldValueInvalid", f"Invalid value: {why}", "patch")
    return invalid_object("", {}, "", [cause])
