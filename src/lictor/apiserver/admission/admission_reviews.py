"""AdmissionReviews: what a webhook is asked, and what its answer means."""

import uuid
from base64 import b64decode
from binascii import Error as Base64Error

import msgspec
import orjson

from lictor.apiserver.admission.submission import Submission, describe_user
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.reading import read_list, read_object, read_text
from lictor.errors import LookupFailedError
from lictor.model.request import Operation
from lictor.raw import Json, JsonObject


class Answer(msgspec.Struct, frozen=True):
    """What a webhook said."""

    is_allowed: bool
    status: JsonObject
    warnings: tuple[str, ...] = ()
    annotations: JsonObject = {}
    patch: list[Json] = []


def describe_request(
    submission: Submission, place: ServedKind | None, uid: str = "", *, with_objects: bool = True
) -> JsonObject:
    """The AdmissionRequest; `place` is the version that is asked for, where it is another one."""
    attributes = submission.attributes
    own, subresource = attributes.kind, attributes.subresource
    kind = submission.kind
    asked_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    asked = {"group": own.group, "version": own.version, "resource": own.plural}
    shown_kind, shown = asked_kind, asked
    if place is not None:
        shown = {"group": place.group, "version": place.version, "resource": place.plural}
        if (kind.group, kind.version, kind.kind) == (own.group, own.version, own.kind):
            shown_kind = {"group": place.group, "version": place.version, "kind": place.kind}
    request: JsonObject = {"uid": uid, "kind": shown_kind, "resource": shown}
    if subresource:
        request["subResource"] = subresource
    request |= {"requestKind": asked_kind, "requestResource": asked}
    if subresource:
        request["requestSubResource"] = subresource
    if submission.name:
        request["name"] = submission.name
    if submission.namespace:
        request["namespace"] = submission.namespace
    request["operation"] = str(submission.operation)
    request["userInfo"] = describe_user(attributes.user)
    if with_objects:
        request |= {"object": submission.document, "oldObject": submission.old}
    request |= {"dryRun": attributes.dry_run, "options": _show_options(submission)}
    return request


def _show_options(submission: Submission) -> JsonObject | None:
    """The options; a patch is an update, or a creation, to admission."""
    options = submission.attributes.options
    if options.get("kind") != "PatchOptions":
        return options or None
    kind = "CreateOptions" if submission.operation is Operation.CREATE else "UpdateOptions"
    kept = {field: value for field, value in options.items() if field != "force"}
    return {**kept, "kind": kind}


def write_review(
    submission: Submission, place: ServedKind | None, version: str
) -> tuple[str, bytes]:
    """A review for a webhook, and the uid that the answer must repeat."""
    uid = str(uuid.uuid4())
    request = describe_request(submission, place, uid, with_objects=False)
    shown = "" if place is None else place.api_version
    request["object"] = submission.encode(submission.document, shown)
    request["oldObject"] = submission.encode(submission.old, shown)
    review = {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": request,
    }
    return uid, orjson.dumps(review)


def read_review(content: bytes, uid: str, version: str, *, is_mutating: bool) -> Answer:
    """What came back; raises LookupFailedError in Kubernetes' words."""
    try:
        review = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        told = f"couldn't get version/kind; json parse error: {error}"
        raise LookupFailedError(f"failed to call webhook: {told}") from None
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise _invalid("webhook response was absent")
    if version == "v1":
        _check_identity(review, response, uid)
        _check_patch(response, is_mutating=is_mutating)
    return Answer(
        response.get("allowed") is True,
        read_object(response, "status"),
        tuple(str(each) for each in read_list(response, "warnings")),
        read_object(response, "auditAnnotations"),
        _read_patch(response) if is_mutating else [],
    )


def _check_identity(review: JsonObject, response: JsonObject, uid: str) -> None:
    if response.get("uid") != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    api_version, kind = read_text(review, "apiVersion"), read_text(review, "kind")
    if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview"):
        raise _invalid(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
            f"got {api_version}, Kind={kind}"
        )


def _check_patch(response: JsonObject, *, is_mutating: bool) -> None:
    patch, kind = response.get("patch"), response.get("patchType")
    if not is_mutating:
        if patch:
            raise _invalid("validating webhook may not return response.patch")
        if kind is not None:
            raise _invalid("validating webhook may not return response.patchType")
    elif patch and kind is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    elif kind is not None and not patch:
        raise _invalid("webhook returned response.patchType but not response.patch")
    elif kind not in (None, "JSONPatch"):
        raise LookupFailedError(f'unsupported patch type "{kind}"')


def _invalid(told: str) -> LookupFailedError:
    return LookupFailedError(f"received invalid webhook response: {told}")


def _read_patch(response: JsonObject) -> list[Json]:
    patch = response.get("patch")
    if not patch:
        return []
    try:
        operations = orjson.loads(b64decode(patch, validate=True))
    except (Base64Error, TypeError, ValueError) as error:
        raise LookupFailedError(
            f"received undecodable patch in webhook response: {error}"
        ) from None
    if not isinstance(operations, list):
        raise LookupFailedError("received undecodable patch in webhook response: it is no list")
    return operations
