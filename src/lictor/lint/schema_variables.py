"""The types of a rule's variables: request, element, target, context entries."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, TypeAlias

import msgspec

from lictor.core.facts.field_types import ANYTHING, FieldType, find_metadata
from lictor.core.lang.template import VARIABLE
from lictor.core.model.finding import FieldPath
from lictor.lint.expressions import entry_names
from lictor.lint.field import Field
from lictor.lint.schema_kinds import FieldTypes, KnownSchemas, RuleSubject
from lictor.lint.schema_paths import (
    infer_types,
    list_elements,
    make_list,
    type_literal,
    unite_types,
)

# By name; a variable without types may be anything.
VariableTypes: TypeAlias = Mapping[str, FieldTypes]
_BODIES: Final = ("validate", "mutate", "generate")


class VariableScope(msgspec.Struct, frozen=True):
    """A part of a rule, and its variables."""

    part: Field
    variables: VariableTypes
    # Fields of the part that use the outer scope.
    outside: tuple[str, ...] = ()
    is_loop: bool = False

    def holds(self, path: FieldPath) -> bool:
        """Is the path within the part?"""
        depth = len(self.part.path)
        is_outside = len(path) > depth and path[depth] in self.outside
        return path[:depth] == self.part.path and not is_outside

    @property
    def elements(self) -> FieldTypes:
        """The elements of a foreach."""
        return self.variables.get("element") or (ANYTHING,)


def find_roots(path: FieldPath, scopes: Iterable[VariableScope]) -> FieldTypes:
    """The types of the variables for an expression at a path."""
    inner = [scope.variables for scope in scopes if scope.holds(path)]
    return _make_roots(inner[-1]) if inner else ()


def _make_roots(variables: VariableTypes) -> FieldTypes:
    """One root for each type of each variable."""
    return tuple(_make_root(name, each) for name, types in variables.items() for each in types)


def _make_root(name: str, each: FieldType) -> FieldType:
    root = FieldType()
    root.fields = {name: each}
    return root


def read_target_subject(targets: Iterable[Field], schemas: KnownSchemas) -> RuleSubject:
    """The targets with apiVersion and kind, of mutations and generate rules."""
    kinds = dict.fromkeys((each["apiVersion"].text, each["kind"].text) for each in targets)
    types = tuple(schemas.of_kind(*kind) for kind in kinds)
    return RuleSubject(" or ".join(dict.fromkeys(kind for _, kind in kinds)), types)


def list_scopes(rule: Field, subject: RuleSubject, schemas: KnownSchemas) -> list[VariableScope]:
    """Every part of a rule with variables; inner ones come later."""
    request = {"request": tuple(map(_make_request, subject.types))}
    variables = {**request, **_read_entries(rule["context"], request, schemas)}
    scopes = [VariableScope(rule, variables)]
    targets = list(rule["mutate"]["targets"].each())
    if targets:
        scopes += _open_targets(rule["mutate"], targets, variables, schemas)
    for body in _BODIES:
        around = scopes[1].variables if targets and body == "mutate" else variables
        for loop in rule[body]["foreach"].each():
            scopes += _open_loop(loop, around, schemas)
    return scopes


def list_cleanup_scopes(
    spec: Field, subject: RuleSubject, schemas: KnownSchemas
) -> list[VariableScope]:
    """The same for a cleanup policy: its target is the object to delete."""
    target = {"target": subject.types}
    return [VariableScope(spec, {**target, **_read_entries(spec["context"], target, schemas)})]


def _make_request(each: FieldType) -> FieldType:
    request = FieldType()
    request.fields, request.others = {"object": each, "oldObject": each}, ANYTHING
    return request


def _open_targets(
    mutate: Field, targets: list[Field], variables: VariableTypes, schemas: KnownSchemas
) -> Iterator[VariableScope]:
    """Patches see all targets; the fields of a target see that one."""
    whole = {**variables, "target": read_target_subject(targets, schemas).types}
    for target in targets:
        whole |= dict.fromkeys(entry_names(target["context"]), ())
    yield VariableScope(mutate, whole, ("targets",))
    for target in targets:
        own = {**variables, "target": read_target_subject([target], schemas).types}
        own |= _read_entries(target["context"], own, schemas)
        yield VariableScope(target, own)


def _open_loop(
    loop: Field, variables: VariableTypes, schemas: KnownSchemas
) -> Iterator[VariableScope]:
    elements = list_elements(_infer(loop["list"], _make_roots(variables)))
    inner: VariableTypes = {**variables, "element": elements}
    inner = {**inner, **_read_entries(loop["context"], inner, schemas)}
    yield VariableScope(loop, inner, ("list",), is_loop=True)
    for nested in loop["foreach"].each():
        yield from _open_loop(nested, inner, schemas)


# --- context entries


def _read_entries(
    context: Field, variables: VariableTypes, schemas: KnownSchemas
) -> dict[str, FieldTypes]:
    """The types of the variables of context entries; each sees those before it."""
    names = [entry["name"].text for entry in context.each()]
    # Until it is defined, a variable may be anything, also an outer one of the same name.
    found: dict[str, FieldTypes] = dict.fromkeys(entry_names(context), ())
    for entry in context.each():
        name = entry["name"].text
        # Of two entries of one name, or with a dot, it is ambiguous which one is meant.
        if names.count(name) == 1 and "." not in name:
            roots = _make_roots({**variables, **found})
            found[name] = _read_entry(entry, roots, schemas)
    return found


def _read_entry(entry: Field, roots: FieldTypes, schemas: KnownSchemas) -> FieldTypes:
    if entry["configMap"]:
        return (_config_map(),)
    variable, call = entry["variable"], entry["apiCall"]
    if variable["value"]:
        found = _narrow((type_literal(variable["value"].value),), variable["jmesPath"])
    elif variable:
        found = _infer(variable["jmesPath"], roots)
    else:
        answer = find_answer(call, schemas)
        found = _narrow(answer.types, call["jmesPath"]) if answer is not None else ()
    default = variable["default"] if variable else call["default"]
    return unite_types((found, (type_literal(default.value),))) if default else found


def _infer(query: Field, roots: FieldTypes) -> FieldTypes:
    return infer_types(query.text, roots, are_variables=True)


def _narrow(types: FieldTypes, query: Field) -> FieldTypes:
    """The result of a query on a value, if there is one."""
    return infer_types(query.text, types) if query else types


@cache
def _config_map() -> FieldType:
    """The variable of a ConfigMap: all its data are strings."""
    entry, data, text = FieldType(), FieldType(), FieldType()
    text.scalar = frozenset((str,))
    data.others = text
    entry.fields = {"data": data, "metadata": find_metadata()}
    return entry


# --- answers of the API server

_FILLED_IN = "{{}}"


class ApiPath(msgspec.Struct, frozen=True):
    """The parts of an API path; names may contain variables."""

    group: str
    version: str
    resource: str
    # Empty for a collection; includes the subresource.
    name: str

    @property
    def is_plain(self) -> bool:
        return not any("{{" in part for part in (self.group, self.version, self.resource))


def parse_api_path(text: str) -> ApiPath | None:
    """`/apis/apps/v1/namespaces/{{ x }}/deployments`; None if it is no path of objects."""
    path = VARIABLE.sub(_FILLED_IN, text).partition("?")[0]
    match path.rstrip("/").split("/"):
        case ["", "api", version, *rest] if rest:
            group = ""
        case ["", "apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return ApiPath(group, version, rest[0], "/".join(rest[1:]))


def find_answer(call: Field, schemas: KnownSchemas) -> RuleSubject | None:
    """The type of the API server's response to a call; None if unknown."""
    path = parse_api_path(call["urlPath"].text)
    if path is None or not path.is_plain or "/" in path.name:
        return None
    kind = schemas.names.of_resource(path.group, path.version, path.resource)
    if kind is None:
        return None
    found = schemas.of_kind(kind.api_version, kind.kind)
    if path.name or call["method"].text == "POST":
        return RuleSubject(kind.kind, (found,))
    return RuleSubject(f"{kind.kind}List", (_make_collection(found),))


def _make_collection(each: FieldType) -> FieldType:
    text, collection = FieldType(), FieldType()
    text.scalar = frozenset((str,))
    collection.fields = {"apiVersion": text, "kind": text}
    collection.fields |= {"metadata": ANYTHING, "items": make_list(each)}
    return collection
