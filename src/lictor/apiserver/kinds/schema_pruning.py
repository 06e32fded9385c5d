"""Objects of custom kinds without what their schema does not know, and with its defaults."""

from lictor.apiserver.kinds.builtin_forms import find_metadata
from lictor.apiserver.kinds.copies import copy_json
from lictor.apiserver.kinds.fields import Pruner, list_unknown_fields
from lictor.apiserver.kinds.structural import Schema
from lictor.lang.kind_schema import Form, find_form
from lictor.raw import Json, JsonObject

_TYPE_FIELDS = frozenset(("apiVersion", "kind"))


def metadata_form() -> Form:
    """The form of the metadata of every object."""
    found = find_form("v1", "ConfigMap")
    if found is None or found.map is None:
        raise LookupError("the table of kinds is not complete")
    return found.map.fields["metadata"]


def prune_value(schema: Schema, value: Json) -> Json:
    """Without unknown fields; the very same value where there are none."""
    if isinstance(value, dict):
        return _prune_map(schema, value)
    if isinstance(value, list) and schema.items is not None:
        items = schema.items
        pruned = [prune_value(items, each) for each in value]
        changed = any(new is not old for new, old in zip(pruned, value, strict=True))
        return pruned if changed else value
    return value


def _prune_map(schema: Schema, value: JsonObject) -> JsonObject:
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


def _prune_field(schema: Schema, key: str, value: Json) -> Json:
    if schema.is_object and key in _TYPE_FIELDS:
        return value
    if schema.is_object and key == "metadata":
        return Pruner().prune(value, find_metadata())
    known = schema.find(key)
    if known is None:
        return value if schema.keeps_unknown else _GONE
    return prune_value(known, value) if isinstance(value, (dict, list)) else value


def list_unknown_values(schema: Schema, value: Json) -> list[str]:
    """Paths of fields that the schema does not know."""
    found: list[str] = []
    _search(schema, value, "", found)
    return found


def _search(schema: Schema, value: Json, path: str, found: list[str]) -> None:
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


def complete_value(schema: Schema, value: Json) -> Json:
    """With defaults where nothing was said, and without nulls that may not be there."""
    if isinstance(value, dict):
        return _complete_map(schema, value)
    if isinstance(value, list) and schema.items is not None:
        items = schema.items
        return [complete_value(items, each) for each in value]
    return value


def _complete_map(schema: Schema, value: JsonObject) -> JsonObject:
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


def _is_strict(schema: Schema) -> bool:
    """Does it say what it is? A place for anything takes nulls too."""
    return bool(schema.type) or schema.is_int_or_string
