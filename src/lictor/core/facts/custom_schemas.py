"""The schemas of CRDs as field types and merge forms of custom kinds."""

from collections.abc import Iterator
from functools import cache

from lictor.core.facts.field_types import ANYTHING, FieldType, find_metadata
from lictor.core.facts.schemas import DEDUCED, UNTYPED, Form, ListForm, MapForm, find_form
from lictor.core.raw import Json, JsonObject

# --- types: how things are written

_SCALARS = {
    "string": frozenset((str,)),
    "integer": frozenset((int,)),
    "number": frozenset((int, float)),
    "boolean": frozenset((bool,)),
}
_INT_OR_STRING = frozenset((int, float, str))
# CRD generators write quantities as int-or-string with a pattern of these units.
_AMOUNT_MARK = "[KMGTPE]i"


def read_custom_type(schema: JsonObject) -> FieldType:
    """The type of objects with this schema; metadata is the same for all kinds."""
    place = _read_schema(schema)
    if place.fields:
        text = FieldType()
        text.scalar = _SCALARS["string"]
        place.fields = {"apiVersion": text, "kind": text} | place.fields
        place.fields["metadata"] = find_metadata()
    return place


def _read_schema(schema: Json) -> FieldType:
    if not isinstance(schema, dict):
        return ANYTHING
    place = FieldType()
    description = schema.get("description")
    place.description = description if isinstance(description, str) else ""
    if schema.get("x-kubernetes-embedded-resource"):
        return place
    if schema.get("x-kubernetes-int-or-string"):
        place.scalar = _INT_OR_STRING
        place.is_quantity = _AMOUNT_MARK in str(schema.get("pattern"))
        return place
    match schema.get("type"):
        case "array":
            place.element = _read_schema(schema.get("items"))
        case "object":
            _read_properties(place, schema)
        case str() as word if word in _SCALARS:
            place.scalar = _SCALARS[word]
    return place


def _read_properties(place: FieldType, schema: JsonObject) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        place.fields = {name: _read_schema(inner) for name, inner in properties.items()}
        place.enums = {name: tuple(words) for name, words in _list_enums(properties) if words}
    required = schema.get("required")
    names = required if isinstance(required, list) else ()
    place.required = frozenset(name for name in names if isinstance(name, str))
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        place.others = ANYTHING
    elif schema.get("additionalProperties"):
        place.others = _read_schema(schema["additionalProperties"])


def _list_enums(properties: JsonObject) -> Iterator[tuple[str, list[str]]]:
    for name, inner in properties.items():
        # For a list, the words that its elements accept.
        listed = inner.get("items") if isinstance(inner, dict) else None
        for place in (inner, listed):
            enum = place.get("enum") if isinstance(place, dict) else None
            if isinstance(enum, list):
                yield name, [each for each in enum if isinstance(each, str) and each]


# --- forms: how things are merged

_WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_TEXT = Form(scalar="string")


def read_custom_form(schema: JsonObject) -> Form:
    """The form of objects with this schema; metadata is the same for all kinds."""
    form = _read_form(schema)
    inner = form.map or MapForm({}, DEDUCED)
    return Form(map=MapForm({**inner.fields, **_list_identity()}, inner.others))


def _read_form(schema: Json) -> Form:
    if not isinstance(schema, dict):
        return DEDUCED
    if schema.get("x-kubernetes-int-or-string") is True:
        return Form(scalar="scalar")
    match schema.get("type"):
        case "object":
            return Form(map=_read_map(schema))
        case "array":
            return Form(list=_read_list(schema))
        case str() as name if name in _WORDS:
            return Form(scalar=_WORDS[name])
        case _:
            return DEDUCED


def _read_map(schema: JsonObject) -> MapForm:
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    properties = schema.get("properties")
    fields = properties.items() if isinstance(properties, dict) else ()
    forms = {name: _read_form(inner) for name, inner in fields}
    if schema.get("x-kubernetes-embedded-resource") is True:
        forms |= _list_identity()
    return MapForm(forms, _read_others(schema), is_atomic=is_atomic)


def _read_others(schema: JsonObject) -> Form | None:
    """What is allowed under names other than those of the properties."""
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        return _read_form(others)
    if others is True or schema.get("x-kubernetes-preserve-unknown-fields") is True:
        return DEDUCED
    return None if schema.get("properties") else DEDUCED


def _read_list(schema: JsonObject) -> ListForm:
    items = schema.get("items")
    element = _read_form(items)
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys")
            return ListForm(element, is_atomic=False, keys=_read_keys(keys, items))
        case "set":
            return ListForm(element, is_atomic=False)
        case _:
            return ListForm(UNTYPED if items is None else element)


def _read_keys(keys: Json, items: Json) -> dict[str, Json]:
    """Keys with their defaults for elements that omit them."""
    properties = items.get("properties") if isinstance(items, dict) else None
    known = properties if isinstance(properties, dict) else {}
    names = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
    return {name: _read_default(known.get(name)) for name in names}


def _read_default(schema: Json) -> Json:
    return schema.get("default") if isinstance(schema, dict) else None


@cache
def _list_identity() -> dict[str, Form]:
    # Any kind: they all have the same metadata.
    some = find_form("v1", "ConfigMap") or DEDUCED
    metadata = some.map.fields["metadata"] if some.map is not None else DEDUCED
    return {"apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata}
