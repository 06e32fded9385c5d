"""The bodies of PATCH requests, as functions from an object to the patched object."""

import logging
from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from typing import TypeAlias

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.status_errors import bad_request, unsupported_media
from lictor.apiserver.strategic import merge_strategic
from lictor.errors import CompileError, EvaluationError, RefusedRequestError, TooLargeError
from lictor.lang.patch.strict_json_patch import apply_json_patch
from lictor.raw import Json, JsonObject

log = logging.getLogger(__name__)

ObjectEdit: TypeAlias = Callable[[JsonObject], JsonObject]
_MAX_OPERATIONS = 10_000


class PatchKind(StrEnum):
    """The content types of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def read_patch_kind(kind: ServedKind, content_type: str) -> PatchKind:
    """Which patch is this? Custom kinds know no strategic one."""
    media = content_type.partition(";")[0].strip().lower()
    accepted = [each for each in PatchKind if not (kind.is_custom and each is PatchKind.STRATEGIC)]
    for each in accepted:
        if media == each.value:
            return each
    if kind.is_custom:
        raise unsupported_media(each.value for each in accepted)
    raise RefusedRequestError(
        "415: Unsupported Media Type",
        code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        reason="UnsupportedMediaType",
        details={},
    )


def compile_patch(patch_kind: PatchKind, patch: Json) -> ObjectEdit:
    """A function that patches an object; raises RefusedRequestError, as the function itself."""
    if patch_kind is PatchKind.JSON:
        return _compile_operations(patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a patch must be an object")
    if patch_kind is PatchKind.MERGE:
        return lambda document: _require_object(merge_json(document, patch))
    return lambda document: _merge(document, patch)


def _compile_operations(patch: Json) -> ObjectEdit:
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch must be a list of operations")
    if len(patch) > _MAX_OPERATIONS:
        raise RefusedRequestError(
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, "
            f"got {len(patch)}",
            code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            reason="RequestEntityTooLarge",
        )

    def edit(document: JsonObject) -> JsonObject:
        try:
            return _require_object(apply_json_patch(document, patch, must_pass_tests=True))
        except (CompileError, EvaluationError, TooLargeError) as error:
            raise _refuse(str(error)) from error

    return edit


def _merge(document: JsonObject, patch: JsonObject) -> JsonObject:
    try:
        return merge_strategic(document, patch)
    except EvaluationError as error:
        raise bad_request(str(error)) from error


def merge_json(current: Json, patch: Json) -> Json:
    """RFC 7386: maps are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_json(merged.get(key), value)
    return merged


def _require_object(patched: Json) -> JsonObject:
    if not isinstance(patched, dict):
        raise _refuse("what the patch leaves is no object")
    return patched


def _refuse(why: str) -> RefusedRequestError:
    # An API server does not say why either; its log does.
    log.info("patch refused", extra={"why": why})
    return RefusedRequestError(
        "the server rejected our request due to an error in our request",
        code=HTTPStatus.UNPROCESSABLE_ENTITY,
        reason="Invalid",
        details={},
    )
