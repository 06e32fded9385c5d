"""How objects of custom kinds are read, completed and checked: by their own schema."""

from functools import cache, cached_property

from lictor.apiserver.field_errors import NOWHERE, Cause
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.custom_columns import read_columns
from lictor.apiserver.kinds.decoding import explain_metadata
from lictor.apiserver.kinds.schema_validation import ABSENT, check_lists, check_value
from lictor.apiserver.kinds.structural_schema import (
    StructuralSchema,
    complete_value,
    list_unknown_values,
    prune_value,
)
from lictor.apiserver.resources.registry import BuiltinResource
from lictor.apiserver.resources.validation import validate_metadata
from lictor.errors import UndecodableObjectError
from lictor.kubernetes.schemas import DEDUCED, UNTYPED, Form, ListForm, MapForm, find_form
from lictor.raw import Json, JsonObject


def read_kinds(crd: JsonObject) -> tuple[ServedKind, ...]:
    """One kind for each version that is served."""
    versions = crd["spec"]["versions"]
    return tuple(_read_kind(crd, version) for version in versions if version.get("served"))


def read_storage_version(crd: JsonObject) -> str:
    """The version in which objects are kept."""
    versions = crd["spec"]["versions"]
    kept: list[str] = [each["name"] for each in versions if each.get("storage")]
    return kept[0] if kept else str(versions[0]["name"])


def _read_kind(crd: JsonObject, version: JsonObject) -> ServedKind:
    spec = crd["spec"]
    names = spec["names"]
    schema = CustomSchema(version, names["kind"])
    traits = BuiltinResource(
        spec["group"],
        names["kind"],
        columns=read_columns(version.get("additionalPrinterColumns") or []),
        counts_generations=True,
        needs_version=True,
    )
    return ServedKind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec.get("scope") == "Namespaced",
        schema=schema,
        traits=traits,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(version.get("subresources") or ()),
        is_custom=True,
    )


_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_TEXT = Form(scalar="string")


def read_form(schema: JsonObject) -> Form:
    """The form of objects with this schema; metadata is that of all kinds."""
    form = _read(schema)
    inner = form.map or MapForm({}, DEDUCED)
    return Form(map=MapForm({**inner.fields, **_list_identity()}, inner.others))


def _read(schema: Json) -> Form:
    if not isinstance(schema, dict):
        return DEDUCED
    if schema.get("x-kubernetes-int-or-string") is True:
        return Form(scalar="scalar")
    match schema.get("type"):
        case "object":
            return Form(map=_read_map(schema))
        case "array":
            return Form(list=_read_list(schema))
        case str() as name if name in _SCALARS:
            return Form(scalar=_SCALARS[name])
        case _:
            return DEDUCED


def _read_map(schema: JsonObject) -> MapForm:
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    properties = schema.get("properties")
    fields = properties.items() if isinstance(properties, dict) else ()
    forms = {name: _read(inner) for name, inner in fields}
    if schema.get("x-kubernetes-embedded-resource") is True:
        forms |= _list_identity()
    return MapForm(forms, _read_others(schema), is_atomic=is_atomic)


def _read_others(schema: JsonObject) -> Form | None:
    """What may stand under other names than those of the properties."""
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        return _read(others)
    if others is True or schema.get("x-kubernetes-preserve-unknown-fields") is True:
        return DEDUCED
    return None if schema.get("properties") else DEDUCED


def _read_list(schema: JsonObject) -> ListForm:
    items = schema.get("items")
    element = _read(items)
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys") or []
            return ListForm(element, is_atomic=False, keys=_read_keys(keys, items))
        case "set":
            return ListForm(element, is_atomic=False)
        case _:
            return ListForm(UNTYPED if items is None else element)


def _read_keys(keys: list[str], items: Json) -> dict[str, Json]:
    """Keys with what they count as where an element leaves them out."""
    properties = items.get("properties") if isinstance(items, dict) else None
    known = properties if isinstance(properties, dict) else {}
    return {key: known.get(key, {}).get("default") for key in keys}


@cache
def _list_identity() -> dict[str, Form]:
    # Any kind will do: they all have the same metadata.
    some = find_form("v1", "ConfigMap") or DEDUCED
    metadata = some.map.fields["metadata"] if some.map is not None else DEDUCED
    return {"apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata}


# Faults after which rules could stumble over what they look at.
_BLOCKING = frozenset((
    "FieldValueTypeInvalid", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
    "FieldValueNotSupported",
))  # fmt: skip
_NOT_ASKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    NOWHERE,
)


class CustomSchema:
    """One version of a custom kind."""

    def __init__(self, version: JsonObject, kind: str) -> None:
        self.openapi: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        # Where replicas and the selector are found, for those that can be scaled.
        self.scale: JsonObject = (version.get("subresources") or {}).get("scale") or {}
        self._version: str = version["name"]
        self._kind = kind

    @cached_property
    def _schema(self) -> StructuralSchema:
        return StructuralSchema(self.openapi, is_root=True)

    @cached_property
    def form(self) -> Form:
        return read_form(self.openapi)

    def list_unknown(self, document: JsonObject) -> list[str]:
        return list_unknown_values(self._schema, document)

    def prune(self, document: JsonObject) -> JsonObject:
        why = explain_metadata(document.get("metadata"))
        if why:
            raise UndecodableObjectError(self._kind, self._version, why)
        pruned: JsonObject = prune_value(self._schema, document)
        return pruned

    def apply_defaults(self, document: JsonObject) -> JsonObject:
        completed: JsonObject = complete_value(self._schema, document)
        return completed

    def validate(self, document: JsonObject, old: JsonObject | None) -> list[Cause]:
        found = validate_metadata(document, old, takes_any_finalizer=True)
        before = ABSENT if old is None else old
        faults: list[Cause] = []
        check_value(self._schema, document, before, "", faults.append)
        check_lists(self._schema, document, before, "", faults.append)
        if not self._schema.has_rules:
            return found + faults
        if any(fault.reason in _BLOCKING for fault in faults):
            return [*found, *faults, _NOT_ASKED]
        # The engine of rules takes a while to load: only who has rules needs it.
        from lictor.apiserver.kinds.cel_rules import check_rules

        check_rules(self._schema, document, before, "", faults.append)
        return found + faults
