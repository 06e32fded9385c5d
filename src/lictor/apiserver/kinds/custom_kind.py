"""How objects of custom kinds are read, completed and checked: by their own schema."""

from functools import cached_property

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
from lictor.kubernetes.custom_schemas import read_custom_form
from lictor.kubernetes.schemas import Form
from lictor.raw import JsonObject


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
        return read_custom_form(self.openapi)

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
