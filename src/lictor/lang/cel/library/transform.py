"""Kyverno's `listObjToMap(keys, values, keyField, valueField)`: two lists become a map."""

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.raw import Json, JsonObject


def _to_map(keys: list[Json], values: list[Json], key_field: str, value_field: str) -> JsonObject:
    if len(keys) != len(values):
        raise FunctionError(
            "listObjToMap must take lists of equal length. "
            f"list1: {len(keys)}, list2: {len(values)}"
        )
    return {
        _key(key, key_field): _fields(value).get(value_field)
        for key, value in zip(keys, values, strict=True)
    }


def _key(entry: Json, field: str) -> str:
    key = _fields(entry).get(field)
    if not isinstance(key, str):
        raise FunctionError(
            "the passed key name cannot be handled as a string in the key object list"
        )
    return key


def _fields(entry: Json) -> JsonObject:
    if not isinstance(entry, dict):
        raise FunctionError("object cannot be handled as a map string to any")
    return entry


OVERLOADS = tuple(
    function(name, "list<dyn>, list<dyn>, string, string -> map<dyn,dyn>", _to_map)
    for name in ("listObjToMap", "transform.listObjToMap")
)
