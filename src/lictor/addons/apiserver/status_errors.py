"""Errors of the API in Kubernetes' words, and their Status objects."""

from collections.abc import Iterable
from http import HTTPStatus

from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import ServedKind
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject

EXPIRED = "Expired"
MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
# Of many faults a Status names no more than these.
_MAX_CAUSES = 100


def build_status(error: RefusedRequestError) -> JsonObject:
    """The Status object of a refusal."""
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    if error.details is not None:
        status["details"] = error.details
    status["code"] = error.code
    return status


def build_success(kind: ServedKind, name: str, uid: str) -> JsonObject:
    """What a client gets for an object that is gone."""
    details = {**_describe(kind, name), "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def _describe(kind: ServedKind, name: str, subject: str = "") -> JsonObject:
    details = {"name": name, "group": kind.group, "kind": subject or kind.plural}
    return {key: value for key, value in details.items() if value}


def not_found(kind: ServedKind, name: str) -> RefusedRequestError:
    """There is no such object."""
    return RefusedRequestError(
        f'{kind.resource} "{name}" not found',
        code=HTTPStatus.NOT_FOUND,
        reason="NotFound",
        details=_describe(kind, name),
    )


def no_such_resource() -> RefusedRequestError:
    """There is no such kind."""
    return RefusedRequestError(
        "the server could not find the requested resource",
        code=HTTPStatus.NOT_FOUND,
        reason="NotFound",
        details={},
    )


def forbid(group: str, resource: str, name: str, why: str) -> RefusedRequestError:
    """A Status 403 about an object, or about a kind where there is no name."""
    qualified = f"{resource}.{group}" if group else resource
    named = f'{qualified} "{name}"' if name else qualified
    details: JsonObject = {"name": name, "group": group, "kind": resource}
    return RefusedRequestError(
        f"{named} is forbidden: {why}",
        code=HTTPStatus.FORBIDDEN,
        reason="Forbidden",
        details={field: text for field, text in details.items() if text},
    )


def already_exists(kind: ServedKind, name: str) -> RefusedRequestError:
    """The name is taken."""
    return RefusedRequestError(
        f'{kind.resource} "{name}" already exists',
        code=HTTPStatus.CONFLICT,
        reason="AlreadyExists",
        details=_describe(kind, name),
    )


def conflict(kind: ServedKind, name: str, why: str = MODIFIED) -> RefusedRequestError:
    """Someone else was first, or it is no longer what the client takes it for."""
    return RefusedRequestError(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}',
        code=HTTPStatus.CONFLICT,
        reason="Conflict",
        details=_describe(kind, name),
    )


def invalid(kind: ServedKind, name: str, causes: Iterable[Cause]) -> RefusedRequestError:
    """The object is not what it should be; all faults at once."""
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return invalid_object(qualified, _describe(kind, name, kind.kind), name, causes)


def invalid_object(
    qualified: str, details: JsonObject, name: str, causes: Iterable[Cause]
) -> RefusedRequestError:
    """The same for what is no object of a kind, such as options."""
    listed = list(causes)[:_MAX_CAUSES]
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in listed))
    detail = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return RefusedRequestError(
        f'{qualified} "{name}" is invalid: {detail}',
        code=HTTPStatus.UNPROCESSABLE_ENTITY,
        reason="Invalid",
        details={
            **details,
            "causes": [
                {"reason": cause.reason, "message": cause.message, "field": cause.field}
                for cause in listed
            ],
        },
    )


def versionless(kind: ServedKind, name: str) -> RefusedRequestError:
    """A replacement without a resourceVersion."""
    detail = "Invalid value: 0: must be specified for an update"
    cause = Cause("FieldValueInvalid", detail, "metadata.resourceVersion")
    return invalid_object(kind.resource, _describe(kind, name), name, [cause])


def bad_request(message: str) -> RefusedRequestError:
    """The request makes no sense."""
    return RefusedRequestError(message, code=HTTPStatus.BAD_REQUEST, reason="BadRequest")


def expired(message: str) -> RefusedRequestError:
    """What the client wants to go on from is forgotten: it must list again."""
    return RefusedRequestError(message, code=HTTPStatus.GONE, reason=EXPIRED)


def too_large_version(wanted: int, current: int) -> RefusedRequestError:
    """A version that has not come yet."""
    detail = f"Too large resource version: {wanted}, current: {current}"
    return RefusedRequestError(
        f"Timeout: {detail}",
        code=HTTPStatus.GATEWAY_TIMEOUT,
        reason="Timeout",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def not_allowed() -> RefusedRequestError:
    """A method that this path does not know."""
    return RefusedRequestError(
        "the server does not allow this method on the requested resource",
        code=HTTPStatus.METHOD_NOT_ALLOWED,
        reason="MethodNotAllowed",
        details={},
    )


def unsupported_media(accepted: Iterable[str]) -> RefusedRequestError:
    """A body in a language that is not spoken here."""
    return RefusedRequestError(
        "the body of the request was in an unknown format - "
        f"accepted media types include: {', '.join(accepted)}",
        code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        reason="UnsupportedMediaType",
    )


def not_acceptable(accepted: Iterable[str]) -> RefusedRequestError:
    """An answer in a language that is not spoken here."""
    return RefusedRequestError(
        f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}",
        code=HTTPStatus.NOT_ACCEPTABLE,
        reason="NotAcceptable",
        details={},
    )


def internal_error(message: str) -> RefusedRequestError:
    """We are to blame."""
    return RefusedRequestError(
        f"Internal error occurred: {message}",
        code=HTTPStatus.INTERNAL_SERVER_ERROR,
        reason="InternalError",
        details={"causes": [{"message": message}]},
    )
