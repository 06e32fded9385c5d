"""How are objects of a custom kind merged? The form of a kind, from its structural schema."""

from functools import cache

from lictor.lang.kind_schema import DEDUCED, UNTYPED, Form, ListForm, MapForm, find_form
from lictor.raw import Json, JsonObject

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
