"""How objects of custom kinds are read, completed and checked: by their own schema."""

from functools import cached_property
from http import HTTPStatus

from lictor.apiserver.checks.object_checks import check_metadata
from lictor.apiserver.kind import Cause
from lictor.apiserver.kinds.custom_forms import read_form
from lictor.apiserver.kinds.decoding import explain_metadata
from lictor.apiserver.kinds.schema_checks import ABSENT, check_lists, check_value
from lictor.apiserver.kinds.schema_pruning import complete_value, list_unknown_values, prune_value
from lictor.apiserver.kinds.schema_words import NOWHERE
from lictor.apiserver.kinds.structural import Schema
from lictor.errors import RefusedRequestError
from lictor.lang.kind_schema import Form
from lictor.raw import JsonObject

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


class CustomShape:
    """One version of a custom kind."""

    def __init__(self, version: JsonObject, kind: str) -> None:
        self.schema: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        self.columns: list[JsonObject] = version.get("additionalPrinterColumns") or []
        # Where replicas and the selector are found, for those that can be scaled.
        self.scale: JsonObject = (version.get("subresources") or {}).get("scale") or {}
        self._version: str = version["name"]
        self._kind = kind

    @cached_property
    def _schema(self) -> Schema:
        return Schema(self.schema, is_root=True)

    @cached_property
    def form(self) -> Form:
        return read_form(self.schema)

    def list_unknown(self, document: JsonObject) -> list[str]:
        return list_unknown_values(self._schema, document)

    def prune(self, document: JsonObject) -> JsonObject:
        told = explain_metadata(document.get("metadata"))
        if told:
            start = f'{self._kind} in version "{self._version}" cannot be handled as a {self._kind}'
            raise RefusedRequestError(
                f"{start}: {told}", code=HTTPStatus.BAD_REQUEST, reason="BadRequest"
            )
        pruned: JsonObject = prune_value(self._schema, document)
        return pruned

    def complete(self, document: JsonObject) -> JsonObject:
        completed: JsonObject = complete_value(self._schema, document)
        return completed

    def check(self, document: JsonObject, old: JsonObject | None) -> list[Cause]:
        found = check_metadata(document, old, takes_any_finalizer=True)
        before = ABSENT if old is None else old
        faults: list[Cause] = []
        check_value(self._schema, document, before, "", faults.append)
        check_lists(self._schema, document, before, "", faults.append)
        if not self._schema.has_rules:
            return found + faults
        if any(fault.reason in _BLOCKING for fault in faults):
            return [*found, *faults, _NOT_ASKED]
        # The engine of rules takes a while to load: only who has rules needs it.
        from lictor.apiserver.kinds.schema_rules import check_rules

        check_rules(self._schema, document, before, "", faults.append)
        return found + faults
