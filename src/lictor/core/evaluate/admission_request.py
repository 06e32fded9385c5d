"""The AdmissionRequest that an API server sent, or would have sent."""

from collections.abc import Callable

from lictor.core.model.request import Caller, GroupVersionKind, Request
from lictor.core.raw import JsonObject


def describe_request(
    request: Request, name_resource: Callable[[GroupVersionKind], str]
) -> JsonObject:
    """The original request with the current object; otherwise derived from the object.

    `name_resource` returns the resource name (`pods`) of a kind.
    """
    if request.admission is not None:
        both = {"object": request.object, "oldObject": request.old_object}
        return {**request.admission, **both}
    kind = request.kind
    own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    resource = {
        "group": kind.group,
        "version": kind.version,
        "resource": name_resource(kind),
    }
    described = {
        "uid": "",
        "kind": own,
        "resource": resource,
        "requestKind": own,
        "requestResource": resource,
        "name": read_metadata_text(request, "name"),
        "namespace": read_metadata_text(request, "namespace"),
        "operation": str(request.operation),
        "userInfo": _describe_caller(request.caller),
        "object": request.object,
        "oldObject": request.old_object,
        "dryRun": False,
        "options": None,
    }
    if request.subresource:
        described["subResource"] = described["requestSubResource"] = request.subresource
    return described


def read_metadata_text(request: Request, field: str) -> str:
    """A text in the metadata of the request's object; empty if it is not a string."""
    metadata = request.resource.get("metadata")
    value = metadata.get(field) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def _describe_caller(caller: Caller | None) -> JsonObject:
    if caller is None:
        return {}
    described: JsonObject = {
        "username": caller.username,
        "uid": caller.uid,
        "groups": list(caller.groups),
        "extra": dict(caller.extra),
    }
    return {name: value for name, value in described.items() if value}
