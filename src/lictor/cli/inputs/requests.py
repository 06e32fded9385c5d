"""Makes requests from resources in files: caller, operation, and values given for variables."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from lictor.cli.inputs.records import Subresource, ValuesSpec
from lictor.core.errors import LoadError
from lictor.core.families.registry import registry
from lictor.core.lang.json_type import merge_dotted, merge_objects
from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.core.model.result import PolicyRef
from lictor.core.raw import Json, JsonObject

_NOTHING: Mapping[str, Json] = MappingProxyType({})
_OPERATION = "request.operation"
# Operations whose requests have an old object.
_CHANGING = ("UPDATE", "DELETE")
_AUTOGEN_PREFIXES = ("autogen-cronjob-", "autogen-")


class GivenValues:
    """Values, looked up by policy and resource, by policy and rule, and by namespace."""

    def __init__(self, values: ValuesSpec | None = None, settings: Sequence[str] = ()) -> None:
        spec = values if values is not None else ValuesSpec()
        self._spec, self._texts = spec, tuple(settings)
        self._global = dict(spec.global_values)
        self._settings: dict[str, str] = {}
        self.ignored_settings: list[str] = []
        if settings:
            self._settings, self.ignored_settings = parse_settings(settings)
        self._by_resource: dict[tuple[str, str], dict[str, Json]] = {}
        self._by_rule: dict[tuple[str, str], Mapping[str, Json]] = {}
        self._foreach: dict[tuple[str, str], Mapping[str, Sequence[Json]]] = {}
        for policy in spec.policies:
            for resource in policy.resources:
                key = (policy.name, resource.name)
                self._by_resource.setdefault(key, {}).update(resource.values)
            for rule in policy.rules:
                # The first entry of a name is the one that counts.
                self._by_rule.setdefault((policy.name, rule.name), rule.values)
                self._foreach.setdefault((policy.name, rule.name), rule.foreach_values)
        # The labels of namespaces, as far as they were given.
        self.namespaces: dict[str, Mapping[str, str]] = {}
        # Whether any request can look different because of these values.
        self.change_requests = bool(self._global or self._by_resource or self._settings)
        self._namespace_objects = {
            str(found["metadata"].get("name")): found
            for found in spec.namespaces
            if isinstance(found, dict) and isinstance(found.get("metadata"), dict)
        }
        # The parent kind of the kind of a subresource, and the name of the subresource.
        self.parents: dict[GroupVersionKind, tuple[GroupVersionKind, str]] = {}
        if values is not None:
            _check_operation(self._global.get(_OPERATION, ""))
            self.namespaces = _read_namespaces(spec)
            self.parents = _read_subresources(spec.subresources)

    @property
    def operation(self) -> Operation:
        """The operation of requests for policies without named rules."""
        given = self._settings.get(_OPERATION, self._global.get(_OPERATION))
        return Operation(given) if given in _CHANGING else Operation.CREATE

    def with_operation(self, operation: str) -> "GivenValues":
        """The same values for requests of one operation."""
        return GivenValues(self._spec, (*self._texts, f"{_OPERATION}={operation}"))

    def of_resource(self, policy: str, resource: str) -> dict[str, Json]:
        """The variables of one policy on one resource; the nearest value wins."""
        given = self._by_resource.get((policy, resource), _NOTHING)
        return {**self._global, **given, **self._settings}

    def of_rule(self, policy: str, rule: str, index: int = 0) -> Mapping[str, Json]:
        """The context entries of one rule, and those of one pass of its foreach.

        Both hold everywhere in the rule; a list with too few values begins anew.
        """
        if not self._by_rule:
            return _NOTHING
        key = self._find_rule(policy, rule)
        listed = self._foreach.get(key)
        if not listed:
            return self._by_rule.get(key, _NOTHING)
        chosen = {
            name: values[index] if index < len(values) else values[0]
            for name, values in listed.items()
            if values
        }
        return {**self._by_rule.get(key, _NOTHING), **chosen}

    def namespace(self, name: str) -> JsonObject | None:
        """Return the object of a namespace; None if it was not given."""
        return self._namespace_objects.get(name)

    def _find_rule(self, policy: str, rule: str) -> tuple[str, str]:
        key = (policy, rule)
        if key in self._by_rule:
            return key
        for prefix in _AUTOGEN_PREFIXES:
            shorter = (policy, rule.removeprefix(prefix))
            if shorter in self._by_rule:
                return shorter
        return key


def _check_operation(value: Json) -> None:
    if value and value not in (*_CHANGING, "CREATE", "CONNECT"):
        raise LoadError(
            f'invalid request.operation value "{value}", must be one of CREATE, UPDATE, DELETE, '
            "CONNECT",
            where="globalValues",
        )


def _read_namespaces(spec: ValuesSpec) -> dict[str, Mapping[str, str]]:
    labels: dict[str, Mapping[str, str]] = {
        given.name: given.labels for given in spec.namespace_selector
    }
    for namespace in spec.namespaces:
        metadata = namespace.get("metadata") if isinstance(namespace, dict) else None
        if isinstance(metadata, dict):
            labels[str(metadata.get("name"))] = metadata.get("labels") or {}
    return labels


def _read_subresources(
    given: Sequence[Subresource],
) -> dict[GroupVersionKind, tuple[GroupVersionKind, str]]:
    found = {}
    for entry in given:
        child, parent = entry.subresource, entry.parent_resource
        name = child.name.partition("/")[2]
        kind = GroupVersionKind(child.group, child.version, child.kind)
        found[kind] = (GroupVersionKind(parent.group, parent.version, parent.kind), name)
    return found


Adapt = Callable[[PolicyRef, Request], Request]

_OBJECT = "request.object."
_OLD_OBJECT = "request.oldObject."


class RequestFactory(msgspec.Struct, frozen=True):
    """Builds requests of resources: the caller, the values and the namespaces."""

    values: GivenValues = msgspec.field(default_factory=GivenValues)
    caller: Caller | None = None
    # Labels of namespaces that are themselves among the given cluster resources.
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)

    def make_request(self, resource: JsonObject) -> Request:
        """Return the request that creates a resource."""
        kind = GroupVersionKind.of(str(resource.get("apiVersion")), str(resource.get("kind")))
        # A plain kind is its own parent.
        kind, subresource = self.values.parents.get(kind, (kind, ""))
        namespace = _metadata(resource, "namespace")
        labels = self.values.namespaces.get(namespace) or self.namespaces.get(namespace, {})
        return Request(
            kind=kind,
            object=resource,
            subresource=subresource,
            caller=self.caller,
            namespace_labels=labels,
        )

    @property
    def adapt(self) -> Adapt | None:
        """Return the function that changes a request for one policy; None without values."""
        return self._adapt if self.values.change_requests else None

    def _adapt(self, policy: PolicyRef, request: Request) -> Request:
        if not registry().of(policy).has_named_rules:
            return self._change_operation(request)
        variables = self.values.of_resource(policy.name, _metadata(request.resource, "name"))
        if not variables:
            return request
        operation = _read_operation(variables.get(_OPERATION))
        new, old = _choose_objects(request.resource, operation)
        return replace(
            request,
            object=_merge(new, variables, _OBJECT),
            old_object=_merge(old, variables, _OLD_OBJECT),
            operation=operation,
            variables=_leave_variables(variables, new, old, operation),
        )

    def _change_operation(self, request: Request) -> Request:
        """CEL reads the operation only; all other values are those of context entries."""
        operation = self.values.operation
        if operation is Operation.CREATE or request.operation is not Operation.CREATE:
            return request
        new, old = _choose_objects(request.resource, operation)
        return replace(request, object=new, old_object=old, operation=operation)


def _choose_objects(
    resource: JsonObject, operation: Operation
) -> tuple[JsonObject | None, JsonObject | None]:
    """The object and the old object of a request."""
    new = None if operation is Operation.DELETE else resource
    return new, None if operation is Operation.CREATE else resource


def _metadata(resource: JsonObject, name: str) -> str:
    metadata = resource.get("metadata")
    found = metadata.get(name) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""


def _read_operation(value: Json) -> Operation:
    # Any other word is only a variable: the request stays the creation of the resource.
    return Operation(value) if value in _CHANGING else Operation.CREATE


def _leave_variables(
    variables: Mapping[str, Json],
    new: JsonObject | None,
    old: JsonObject | None,
    operation: Operation,
) -> dict[str, Json]:
    """Return the variables that are not part of the request."""
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
    """Return the resource with the given values merged into it."""
    if resource is None:
        return None
    whole = variables.get(prefix.removesuffix("."))
    if isinstance(whole, dict):
        resource = merge_objects(resource, whole)
    given = {n.removeprefix(prefix): v for n, v in variables.items() if n.startswith(prefix)}
    return merge_dotted(resource, given) if given else resource


def parse_settings(texts: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Values given as `key=value,key=value`, and what was given but cannot be used.

    Of two values for one key the first holds. A value cannot hold `=`, nor can one be given for a
    part of the resource itself: both as in Kyverno, which drops them without a word.
    """
    values: dict[str, str] = {}
    ignored: list[str] = []
    for entry in _split_settings(texts):
        parts = [part.strip() for part in entry.split("=")]
        usable = len(parts) == 2 and all(parts) and "request.object." not in parts[0]
        if usable and parts[0] not in values:
            values[parts[0]] = parts[1]
        else:
            ignored.append(entry)
    return values, ignored


def _split_settings(texts: Iterable[str]) -> Iterator[str]:
    try:
        for row in csv.reader(texts, strict=True):
            yield from (entry.strip() for entry in row)
    except csv.Error as error:
        raise LoadError(f"not of the form key=value,key=value: {error}", where="--set") from error
