"""Structural schemas of custom kinds, read once: what stands where, and what is known of it.

Parts are read when an object first leads there: most objects touch little of a large schema.
"""

from collections.abc import KeysView
from functools import cached_property

from lictor.addons.apiserver.decoding import Pruner, list_unknown_fields
from lictor.addons.apiserver.json_fields import copy_json
from lictor.core.facts.field_types import find_metadata
from lictor.core.facts.schemas import Form, find_form
from lictor.core.raw import Json, JsonObject

_VALIDATIONS = "x-kubernetes-validations"
# Schemas that only validate: they do not define fields.
_COMPOSITES = ("allOf", "anyOf", "oneOf")


class StructuralSchema:
    """One place of a schema."""

    def __init__(self, raw: JsonObject, *, is_root: bool = False) -> None:
        self.raw = raw
        self.type: str = raw.get("type") or ""
        self.is_nullable: bool = raw.get("nullable") is True
        self.keeps_unknown: bool = raw.get("x-kubernetes-preserve-unknown-fields") is True
        self.is_embedded: bool = raw.get("x-kubernetes-embedded-resource") is True
        self.is_int_or_string: bool = raw.get("x-kubernetes-int-or-string") is True
        # An object itself is no embedded one, but its metadata is no more the author's affair.
        self.is_object: bool = is_root or self.is_embedded
        self.list_type: str = raw.get("x-kubernetes-list-type") or "atomic"
        self.list_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
        self.has_default: bool = "default" in raw
        self._properties: JsonObject = raw.get("properties") or {}
        self._children: dict[str, StructuralSchema] = {}

    @property
    def names(self) -> KeysView[str]:
        """The names of the fields."""
        return self._properties.keys()

    def find(self, field: str) -> "StructuralSchema | None":
        """What is known of a field: by name, or as one of a map."""
        found = self._children.get(field)
        if found is None:
            raw = self._properties.get(field)
            if raw is None:
                return self.others
            found = self._children[field] = StructuralSchema(raw)
        return found

    @cached_property
    def others(self) -> "StructuralSchema | None":
        """What a map holds."""
        raw = self.raw.get("additionalProperties")
        return (
            StructuralSchema(raw)
            if isinstance(raw, dict)
            else StructuralSchema({})
            if raw is True
            else None
        )

    @cached_property
    def items(self) -> "StructuralSchema | None":
        """What a list holds."""
        raw = self.raw.get("items")
        return StructuralSchema(raw) if isinstance(raw, dict) else None

    @cached_property
    def rules(self) -> tuple[JsonObject, ...]:
        """Rules in CEL about this place."""
        return tuple(self.raw.get(_VALIDATIONS) or ())

    @cached_property
    def has_rules(self) -> bool:
        """Are there rules here or further inside?"""
        return _mentions(self.raw, _VALIDATIONS)

    def subschemas(self, word: str) -> tuple["StructuralSchema", ...]:
        """The schemas under `allOf`, `anyOf` or `oneOf`."""
        return self._subschemas[word]

    @cached_property
    def _subschemas(self) -> dict[str, tuple["StructuralSchema", ...]]:
        return {
            word: tuple(map(StructuralSchema, self.raw.get(word) or ())) for word in _COMPOSITES
        }

    @cached_property
    def forbidden(self) -> "StructuralSchema | None":
        """The schema under `not`."""
        raw = self.raw.get("not")
        return StructuralSchema(raw) if isinstance(raw, dict) else None


def _mentions(schema: Json, word: str) -> bool:
    if not isinstance(schema, dict):
        return False
    if word in schema:
        return True
    inside = (*(schema.get("properties") or {}).values(), schema.get("items"))
    return any(_mentions(part, word) for part in (*inside, schema.get("additionalProperties")))


_TYPE_FIELDS = frozenset(("apiVersion", "kind"))


def metadata_form() -> Form:
    """The form of the metadata of every object."""
    found = find_form("v1", "ConfigMap")
    if found is None or found.map is None:
        raise LookupError("the table of kinds is not complete")
    return found.map.fields["metadata"]


def prune_value(schema: StructuralSchema, value: Json) -> Json:
    """Without unknown fields; the very same value where there are none."""
    if isinstance(value, dict):
        return _prune_map(schema, value)
    if isinstance(value, list) and schema.items is not None:
        items = schema.items
        pruned = [prune_value(items, each) for each in value]
        changed = any(new is not old for new, old in zip(pruned, value, strict=True))
        return pruned if changed else value
    return value


def _prune_map(schema: StructuralSchema, value: JsonObject) -> JsonObject:
    kept: JsonObject | None = None
    for key, inner in value.items():
        pruned = _prune_field(schema, key, inner)
        if pruned is not inner:
            kept = dict(value) if kept is None else kept
            if pruned is _GONE:
                del kept[key]
            else:
                kept[key] = pruned
    return value if kept is None else kept


_GONE = object()


def _prune_field(schema: StructuralSchema, key: str, value: Json) -> Json:
    if schema.is_object and key in _TYPE_FIELDS:
        return value
    if schema.is_object and key == "metadata":
        return Pruner().prune(value, find_metadata())
    known = schema.find(key)
    if known is None:
        return value if schema.keeps_unknown else _GONE
    return prune_value(known, value) if isinstance(value, (dict, list)) else value


def list_unknown_values(schema: StructuralSchema, value: Json) -> list[str]:
    """Paths of fields that the schema does not know."""
    found: list[str] = []
    _search(schema, value, "", found)
    return found


def _search(schema: StructuralSchema, value: Json, path: str, found: list[str]) -> None:
    if isinstance(value, list) and schema.items is not None:
        for index, each in enumerate(value):
            _search(schema.items, each, f"{path}[{index}]", found)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        place = f"{path}.{key}" if path else key
        if schema.is_object and key == "metadata":
            found.extend(f"{place}.{each}" for each in list_unknown_fields(inner, metadata_form()))
        elif not (schema.is_object and key in _TYPE_FIELDS):
            known = schema.find(key)
            if known is not None:
                _search(known, inner, place, found)
            elif not schema.keeps_unknown:
                found.append(place)


def complete_value(schema: StructuralSchema, value: Json) -> Json:
    """With defaults for missing fields, and without nulls that are not allowed."""
    if isinstance(value, dict):
        return _complete_map(schema, value)
    if isinstance(value, list) and schema.items is not None:
        items = schema.items
        return [complete_value(items, each) for each in value]
    return value


def _complete_map(schema: StructuralSchema, value: JsonObject) -> JsonObject:
    completed = {}
    for key, inner in value.items():
        known = None if schema.is_object and key == "metadata" else schema.find(key)
        if known is None:
            completed[key] = inner
        elif inner is not None:
            completed[key] = complete_value(known, inner)
        elif known.is_nullable or not _is_strict(known):
            completed[key] = None
    for name in schema.names:
        known = schema.find(name)
        if name not in completed and known is not None and known.has_default:
            completed[name] = complete_value(known, copy_json(known.raw["default"]))
    return completed


def _is_strict(schema: StructuralSchema) -> bool:
    """Does the schema have a type? Untyped values may be null."""
    return bool(schema.type) or schema.is_int_or_string
