"""Functions that take objects and arrays apart and put them together."""

from lictor.lang.go_number import format_single, is_number
from lictor.lang.jmespath.functions.spec import FunctionSpec, define
from lictor.lang.jmespath.values import name_type
from lictor.raw import Json, JsonObject


def _items(value: Json, key_name: str, value_name: str) -> list[JsonObject]:
    pairs = sorted(value.items()) if isinstance(value, dict) else enumerate(value)
    # The second name wins where both are the same.
    return [{key_name: key, value_name: item} for key, item in pairs]


def _lookup(value: Json, key: Json) -> Json:
    if isinstance(value, dict):
        if not isinstance(key, str):
            raise ValueError("argument #2 is not of type String")
        return value.get(key)
    if not is_number(key):
        raise ValueError("argument #2 is not of type Number")
    if not float(key).is_integer():
        raise ValueError(f"argument #2: expected an integer number but got: {key}")
    return value[int(key)] if 0 <= key < len(value) else None


def _object_from_lists(keys: list[Json], values: list[Json]) -> JsonObject:
    missing = [None] * (len(keys) - len(values))
    return dict(zip(map(_name_key, keys), values + missing, strict=False))


def _name_key(key: Json) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if is_number(key):
        return format_single(key)
    raise ValueError(
        f"argument #1 is not of type StringArray: it holds a value of {name_type(key)}"
    )


COLLECTION: tuple[FunctionSpec, ...] = (
    define(
        "items(object|array, string, string) array",
        _items,
        "gives an object for each entry, with its key or index and its value under the two names",
    ),
    define(
        "lookup(object|array, string|number) any",
        _lookup,
        "gives the value at a key or index, or null",
    ),
    define(
        "object_from_lists(array, array) object",
        _object_from_lists,
        "makes an object from an array of keys and one of values",
    ),
)
