"""Parses the body of a request to a policy server."""

from http import HTTPStatus
from typing import Final, Required, TypedDict, TypeVar

import msgspec

from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault, check_depth, cut_depth
from lictor.core.load.review import find_head
from lictor.core.raw import Json, JsonObject

Body = TypeVar("Body")


class ReviewRequest(TypedDict, total=False):
    """A request of the API server, with the fields that Kubernetes knows; others are dropped."""

    uid: Required[str]
    kind: Required[dict[str, str]]
    resource: Required[dict[str, str]]
    operation: Required[str]
    userInfo: Required[JsonObject]
    subResource: str | None
    requestKind: dict[str, str] | None
    requestResource: dict[str, str] | None
    requestSubResource: str | None
    name: str | None
    namespace: str | None
    object: Json
    oldObject: Json
    dryRun: bool | None
    options: Json


class _AdmissionBody(msgspec.Struct):
    request: ReviewRequest
    # Their values do not matter; that they are text does.
    apiVersion: str = ""  # noqa: N815
    kind: str = ""


class _RawBody(msgspec.Struct):
    request: Json


_ADMISSION: Final = msgspec.json.Decoder(_AdmissionBody)
_RAW: Final = msgspec.json.Decoder(_RawBody)
# Where the object of a request stands.
_LEVELS: Final = 2


class UnreadableBodyError(Exception):
    """An invalid body, with an HTTP status."""

    def __init__(self, status: HTTPStatus, why: str, uid: str | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        # Given where the question must be refused by an answer: without one a failure policy would
        # count, and might allow what was not evaluated.
        self.uid = uid


def read_admission(body: bytes) -> ReviewRequest:
    """The request of an AdmissionReview, without empty fields."""
    question = _decode(body, _ADMISSION).request
    for name in [name for name, value in question.items() if value is None]:
        del question[name]  # type: ignore[misc]  # those that must be there are never None
    if _may_be_deep(body):
        if question["operation"] == "DELETE":
            # Otherwise it could never be deleted.
            cut_depth(question.get("oldObject"), MAX_DEPTH - _LEVELS)
        _check_depth(question, body)
    return question


def read_raw(body: bytes) -> Json:
    """The value of `request`, of any type."""
    question = _decode(body, _RAW).request
    if _may_be_deep(body):
        _check_depth(question, body)
    return question


def refuse_large(body: bytes) -> UnreadableBodyError:
    """For a body of which only the beginning was kept."""
    return _refuse_unread(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too large", body)


def _decode(body: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if _may_be_deep(body):
            _check_unread(body)
        why = f"the body is not of the expected form: {error}"
        raise UnreadableBodyError(HTTPStatus.UNPROCESSABLE_ENTITY, why) from error
    except msgspec.DecodeError as error:
        raise UnreadableBodyError(HTTPStatus.BAD_REQUEST, f"not JSON: {error}") from error
    except RecursionError as error:
        raise _refuse_deep(body) from error
    except UnicodeDecodeError as error:
        raise UnreadableBodyError(HTTPStatus.BAD_REQUEST, "not JSON: not UTF-8") from error


def _may_be_deep(body: bytes) -> bool:
    return body.count(b"{") + body.count(b"[") > MAX_DEPTH


def _check_unread(body: bytes) -> None:
    """The recursion limit of the interpreter must not decide which of two faults is reported."""
    try:
        question = msgspec.json.decode(body)
    except RecursionError as error:
        raise _refuse_deep(body) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    _check_depth(question, body)


def _check_depth(question: Json, body: bytes) -> None:
    try:
        check_depth(question)
    except (YamlFault, RecursionError) as error:
        raise _refuse_deep(body) from error


def _refuse_deep(body: bytes) -> UnreadableBodyError:
    why = f"the request is nested deeper than {MAX_DEPTH} levels"
    return _refuse_unread(HTTPStatus.BAD_REQUEST, why, body)


def _refuse_unread(status: HTTPStatus, why: str, body: bytes) -> UnreadableBodyError:
    head = find_head(body)
    return UnreadableBodyError(status, why, None if head is None else head[0])
