"""Converts a plain resource, from a file or a list, to the Request that would have created it."""

from collections.abc import Mapping

from lictor.core.errors import LoadError
from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.core.raw import Json, JsonObject


def read_kind(resource: Json) -> GroupVersionKind:
    """The kind that a resource declares."""
    if not isinstance(resource, dict):
        raise LoadError("expected a resource, which is an object")
    api_version, kind = resource.get("apiVersion"), resource.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not kind:
        raise LoadError("a resource needs an apiVersion and a kind")
    return GroupVersionKind.of(api_version, kind)


def build_request(
    resource: JsonObject,
    *,
    operation: Operation = Operation.CREATE,
    old: JsonObject | None = None,
    caller: Caller | None = None,
    namespace_labels: Mapping[str, str] | None = None,
    variables: Mapping[str, Json] | None = None,
) -> Request:
    """The request for an operation on a resource: on DELETE the old object counts."""
    is_delete = operation is Operation.DELETE
    return Request(
        kind=read_kind(resource),
        object=None if is_delete else resource,
        old_object=(old or resource) if is_delete else old,
        operation=operation,
        caller=caller,
        namespace_labels=namespace_labels or {},
        variables=variables or {},
    )
