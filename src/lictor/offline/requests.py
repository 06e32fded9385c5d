"""A resource from a file as a request: who asks, for what, and with which values."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from lictor.lang.dotted import merge_dotted, merge_objects
from lictor.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.model.result import PolicyRef
from lictor.offline.values import GivenValues
from lictor.raw import Json, JsonObject

Adapt = Callable[[PolicyRef, Request], Request]

_OPERATION = "request.operation"
# Values stand for what classic rules ask for; CEL policies judge the creation of what is given.
_CLASSIC = ("ClusterPolicy", "Policy")
_OBJECT = "request.object."
_OLD_OBJECT = "request.oldObject."


class World(msgspec.Struct, frozen=True):
    """Everything that a request is made with, besides its resource."""

    values: GivenValues = msgspec.field(default_factory=GivenValues)
    caller: Caller | None = None
    # Labels of namespaces that are themselves among the given cluster resources.
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)

    def make_request(self, resource: JsonObject) -> Request:
        """The creation of a resource."""
        kind, subresource = self.values.parent_of(
            GroupVersionKind.of(str(resource.get("apiVersion")), str(resource.get("kind")))
        )
        namespace = _metadata(resource, "namespace")
        labels = self.values.namespace_labels(namespace) or self.namespaces.get(namespace, {})
        return Request(
            kind=kind,
            object=resource,
            subresource=subresource,
            caller=self.caller,
            namespace_labels=labels,
        )

    @property
    def adapt(self) -> Adapt | None:
        """How a request changes for one policy; None where it never does."""
        return self._adapt if self.values.change_requests else None

    def _adapt(self, policy: PolicyRef, request: Request) -> Request:
        if policy.kind not in _CLASSIC:
            return request
        variables = self.values.of_resource(policy.name, _metadata(request.resource, "name"))
        if not variables:
            return request
        operation = _read_operation(variables.get(_OPERATION))
        resource = request.resource
        new = None if operation is Operation.DELETE else resource
        old = None if operation is Operation.CREATE else resource
        return replace(
            request,
            object=_merge(new, variables, _OBJECT),
            old_object=_merge(old, variables, _OLD_OBJECT),
            operation=operation,
            variables=_leave_variables(variables, new, old, operation),
        )


def _metadata(resource: JsonObject, name: str) -> str:
    metadata = resource.get("metadata")
    found = metadata.get(name) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""


def _read_operation(value: Json) -> Operation:
    # Any other word is only a variable: what is asked for stays the creation of the resource.
    return Operation(value) if value in ("UPDATE", "DELETE") else Operation.CREATE


def _leave_variables(
    variables: Mapping[str, Json],
    new: JsonObject | None,
    old: JsonObject | None,
    operation: Operation,
) -> dict[str, Json]:
    """What is not already part of the request: a rule may look at it as at another request."""
    taken: list[str] = [_OBJECT] if new is not None else []
    taken += [_OLD_OBJECT] if old is not None else []
    return {
        name: value
        for name, value in variables.items()
        if not f"{name}.".startswith(tuple(taken))
        and not (name == _OPERATION and value == operation)
    }


def _merge(
    resource: JsonObject | None, variables: Mapping[str, Json], prefix: str
) -> JsonObject | None:
    """The resource with the values that were given for parts of it."""
    if resource is None:
        return None
    whole = variables.get(prefix.removesuffix("."))
    if isinstance(whole, dict):
        resource = merge_objects(resource, whole)
    given = {n.removeprefix(prefix): v for n, v in variables.items() if n.startswith(prefix)}
    return merge_dotted(resource, given) if given else resource
