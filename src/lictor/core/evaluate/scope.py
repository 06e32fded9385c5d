"""The variables of a request: `request.*`, `images.*` and `serviceAccountName`."""

from collections.abc import Mapping
from typing import Any

from lictor.core.errors import BrokenVariableError, EvaluationError
from lictor.core.evaluate.images import extract_images
from lictor.core.lang.json_type import merge_dotted
from lictor.core.model.request import Caller, Operation, Request
from lictor.core.model.scope import Scope
from lictor.core.raw import Json, JsonObject

_SERVICE_ACCOUNT = "system:serviceaccount:"
# Fields of an AdmissionRequest that are omitted if empty.
_LEFT_OUT = ("name", "namespace", "subResource", "requestSubResource")


def build_scope(request: Request) -> Scope:
    """The variables for the rules of one policy and one request."""
    values: JsonObject = {"request": _request_values(request)}
    if request.caller is not None:
        namespace, name = _service_account(request.caller.username)
        values["serviceAccountName"] = name
        values["serviceAccountNamespace"] = namespace
    if request.variables:
        values = merge_dotted(values, request.variables)
    return Scope(values, {} if "images" in values else {"images": _load_images})


def _request_values(request: Request) -> JsonObject:
    values = _admission_values(request)
    if request.object is not None:
        values["object"] = request.object
    if request.old_object is not None:
        values["oldObject"] = request.old_object
    values["operation"] = str(request.operation)
    if request.caller is not None:
        values.update(_caller_values(request.caller))
    return values


def _admission_values(request: Request) -> JsonObject:
    if request.admission is None:
        return {"namespace": _namespace(request)}
    values: JsonObject = dict(request.admission)
    for name in _LEFT_OUT:
        # A Node is cluster-scoped: a rule that reads its namespace must get an error.
        if not values.get(name, True):
            del values[name]
    return values


def _namespace(request: Request) -> str:
    if request.operation is Operation.DELETE and request.object is None:
        return ""
    metadata = request.resource.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return namespace if isinstance(namespace, str) else ""


def _caller_values(caller: Caller) -> Mapping[str, Any]:
    user: JsonObject = {
        "username": caller.username,
        "uid": caller.uid,
        "groups": list(caller.groups),
        "extra": dict(caller.extra),
    }
    return {
        "roles": list(caller.roles) or None,
        "clusterRoles": list(caller.cluster_roles) or None,
        "userInfo": {key: value for key, value in user.items() if value},
    }


def _service_account(username: str) -> tuple[str, str]:
    namespace, colon, rest = username[len(_SERVICE_ACCOUNT) :].partition(":")
    return (namespace, rest.partition(":")[0]) if colon else ("", "")


def _load_images(scope: Scope) -> Json:
    request = scope["request"]
    subject = request.get("object") if isinstance(request, dict) else None
    try:
        images = extract_images(subject if isinstance(subject, dict) else {})
    except EvaluationError as error:
        # A projection such as `images.*.*.registry` would turn the error into null, and a condition
        # on it would not hold for an image that was not parsed.
        raise BrokenVariableError(str(error)) from error
    if not images:
        raise KeyError("images")
    return images
