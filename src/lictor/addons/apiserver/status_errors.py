"""Errors of the API in Kubernetes' words, and their Status objects."""

from collections.abc import Iterable
from http import HTTPStatus

from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import ServedKind
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject

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
    return _drop_empty({"name": name, "group": kind.group, "kind": subject or kind.plural})


def _drop_empty(details: JsonObject) -> JsonObject:
    return {field: text for field, text in details.items() if text}


def _refuse(
    code: HTTPStatus, reason: str, message: str, details: JsonObject | None = None
) -> RefusedRequestError:
    return RefusedRequestError(message, code=code, reason=reason, details=details)


def not_found(kind: ServedKind, name: str) -> RefusedRequestError:
    """There is no such object."""
    message = f'{kind.resource} "{name}" not found'
    return _refuse(HTTPStatus.NOT_FOUND, "NotFound", message, _describe(kind, name))


def no_such_resource() -> RefusedRequestError:
    """There is no such kind."""
    message = "the server could not find the requested resource"
    return _refuse(HTTPStatus.NOT_FOUND, "NotFound", message, {})


def forbid(group: str, resource: str, name: str, why: str) -> RefusedRequestError:
    """A Status 403 about an object, or about a kind where there is no name."""
    qualified = f"{resource}.{group}" if group else resource
    named = f'{qualified} "{name}"' if name else qualified
    details = _drop_empty({"name": name, "group": group, "kind": resource})
    return _refuse(HTTPStatus.FORBIDDEN, "Forbidden", f"{named} is forbidden: {why}", details)


def already_exists(kind: ServedKind, name: str) -> RefusedRequestError:
    """The name is taken."""
    message = f'{kind.resource} "{name}" already exists'
    return _refuse(HTTPStatus.CONFLICT, "AlreadyExists", message, _describe(kind, name))


def conflict(kind: ServedKind, name: str, why: str = MODIFIED) -> RefusedRequestError:
    """Someone else was first, or it is no longer what the client takes it for."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return _refuse(HTTPStatus.CONFLICT, "Conflict", message, _describe(kind, name))


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
    shown = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in listed
    ]
    message = f'{qualified} "{name}" is invalid: {detail}'
    code = HTTPStatus.UNPROCESSABLE_ENTITY
    return _refuse(code, "Invalid", message, {**details, "causes": shown})


def versionless(kind: ServedKind, name: str) -> RefusedRequestError:
    """A replacement without a resourceVersion."""
    detail = "Invalid value: 0: must be specified for an update"
    cause = Cause("FieldValueInvalid", detail, "metadata.resourceVersion")
    return invalid_object(kind.resource, _describe(kind, name), name, [cause])


def bad_request(message: str) -> RefusedRequestError:
    """The request makes no sense."""
    return _refuse(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def expired(message: str) -> RefusedRequestError:
    """What the client wants to go on from is forgotten: it must list again."""
    return _refuse(HTTPStatus.GONE, "Expired", message)


def too_large_version(wanted: int, current: int) -> RefusedRequestError:
    """A version that does not exist yet."""
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return _refuse(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message, details)


def not_allowed() -> RefusedRequestError:
    """A method that this path does not know."""
    message = "the server does not allow this method on the requested resource"
    return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, {})


def unsupported_media(accepted: Iterable[str]) -> RefusedRequestError:
    """A body in an unknown format."""
    message = (
        "the body of the request was in an unknown format - "
        f"accepted media types include: {', '.join(accepted)}"
    )
    return _refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)


def too_large(message: str) -> RefusedRequestError:
    """A body that would keep the server busy for too long."""
    return _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


def not_acceptable(accepted: Iterable[str]) -> RefusedRequestError:
    """A format of answers that is unknown."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}"
    return _refuse(HTTPStatus.NOT_ACCEPTABLE, "NotAcceptable", message, {})


def internal_error(message: str) -> RefusedRequestError:
    """The server is to blame."""
    code, details = HTTPStatus.INTERNAL_SERVER_ERROR, {"causes": [{"message": message}]}
    return _refuse(code, "InternalError", f"Internal error occurred: {message}", details)


def missing_namespace(name: str) -> RefusedRequestError:
    """A Status 404 about a namespace."""
    details = {"name": name, "kind": "namespaces"}
    return _refuse(HTTPStatus.NOT_FOUND, "NotFound", f'namespaces "{name}" not found', details)
