"""Functions without imports: JMESPath's standard ones, and those of texts and collections."""

import math
import posixpath
from collections.abc import Callable
from typing import TypeVar

from lictor.core.lang.go_number import (
    dump_go_json,
    format_number,
    format_single,
    is_number,
    parse_number,
    settle_number,
)
from lictor.core.lang.jmespath.functions.spec import (
    FunctionSpec,
    Handler,
    NativeInteger,
    check_size,
    define,
    equals,
    name_type,
)
from lictor.core.raw import Json, JsonObject

_MAX_COUNT = 1 << 62
_INT64 = 1 << 63


def _equal_fold(left: str, right: str) -> bool:
    if left == right:
        return True
    return len(left) == len(right) and all(
        a == b or a.casefold() == b.casefold() for a, b in zip(left, right, strict=True)
    )


def _replace_all(text: str, old: str, new: str) -> str:
    check_size(len(text) + (text.count(old) * len(new)))
    return text.replace(old, new)


def _replace(text: str, old: str, new: str, count: float) -> str:
    if count < 0 or count > _MAX_COUNT:
        return _replace_all(text, old, new)
    times = int(count)
    check_size(len(text) + min(text.count(old), times) * len(new))
    return text.replace(old, new, times)


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _to_lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    # One letter stays one letter, as in Go's mapping.
    return "".join(letter.lower()[0] for letter in text)


def _to_upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(map(_raise_letter, text))


def _raise_letter(letter: str) -> str:
    return next((form for form in (letter.upper(), letter.title()) if len(form) == 1), letter)


def _truncate(text: str, length: float) -> str:
    # A number beyond 64 bits becomes negative in Go, and the result is empty.
    return text[: int(length)] if 1 <= length < _INT64 else ""


def _canonicalize(path: str) -> str:
    if not path:
        return ""
    clean = posixpath.normpath(path)
    return "/" + clean.lstrip("/") if clean.startswith("//") else clean


_TEXT: tuple[FunctionSpec, ...] = (
    define(
        "equal_fold(string, string) bool",
        _equal_fold,
        "returns whether two texts are equal, ignoring case",
    ),
    define(
        "path_canonicalize(string) string",
        _canonicalize,
        "cleans a path of double slashes, `.` and `..`",
    ),
    define(
        "replace(string, string, string, number) string",
        _replace,
        "replaces a number of occurrences of the second text by the third; all, if negative",
    ),
    define(
        "replace_all(string, string, string) string",
        _replace_all,
        "replaces every occurrence of the second text by the third",
    ),
    define("split(string, string) array[string]", _split, "splits a text at a separator"),
    define("to_lower(string) string", _to_lower, "converts to lower case"),
    define("to_upper(string) string", _to_upper, "converts to upper case"),
    define(
        "trim(string, string) string",
        str.strip,
        "removes the characters of the second text from both ends of the first",
    ),
    define(
        "trim_prefix(string, string) string",
        str.removeprefix,
        "removes the second text from the start of the first",
    ),
    define("truncate(string, number) string", _truncate, "keeps a number of leading characters"),
)


Choice = TypeVar("Choice")


def _compare(left: str, right: str) -> NativeInteger:
    return NativeInteger((left > right) - (left < right))


def _rank(items: list[Json], key: Handler) -> list[Json]:
    """Compute the key of each item; all must be numbers, or all texts."""
    ranks = [key(item) for item in items]
    if all(map(is_number, ranks)) or all(isinstance(rank, str) for rank in ranks):
        return ranks
    raise ValueError("invalid type, must be number or string")


def _choose_by(choose: Callable[..., int]) -> Handler:
    def pick(items: list[Json], key: Handler) -> Json:
        # A single item is the result, with any key.
        if len(items) < 2:
            return items[0] if items else None
        return items[choose(range(len(items)), key=_rank(items, key).__getitem__)]

    return pick


def _sort_by(items: list[Json], key: Handler) -> list[Json]:
    if len(items) < 2:
        return items
    ranks = _rank(items, key)
    return [items[index] for index in sorted(range(len(items)), key=ranks.__getitem__)]


_ORDERING: tuple[FunctionSpec, ...] = (
    define(
        "compare(string, string) number",
        _compare,
        "returns -1, 0 or 1 if the first text is less than, equal to or greater than the second",
    ),
    define(
        "max(array[number]|array[string]) any",
        lambda items: max(items, default=None),
        "returns the largest item",
    ),
    define("max_by(array, expref) any", _choose_by(max), "returns the item with the largest key"),
    define(
        "min(array[number]|array[string]) any",
        lambda items: min(items, default=None),
        "returns the smallest item",
    ),
    define("min_by(array, expref) any", _choose_by(min), "returns the item with the smallest key"),
    define("sort(array[string]|array[number]) array", sorted, "sorts items"),
    define("sort_by(array, expref) array", _sort_by, "sorts items by their keys"),
)


def _items(value: Json, key_name: str, value_name: str) -> list[JsonObject]:
    pairs = sorted(value.items()) if isinstance(value, dict) else enumerate(value)
    # The second name wins if both are equal.
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


_COLLECTION: tuple[FunctionSpec, ...] = (
    define(
        "items(object|array, string, string) array",
        _items,
        "returns an object for each entry, with its key or index and its value under the two names",
    ),
    define(
        "lookup(object|array, string|number) any",
        _lookup,
        "returns the value at a key or index, or null",
    ),
    define(
        "object_from_lists(array, array) object",
        _object_from_lists,
        "creates an object from an array of keys and one of values",
    ),
)


def _average(numbers: list[float]) -> Json:
    total = 0.0
    for number in numbers:
        total += number
    if not numbers:
        raise ValueError("the average of an empty array is undefined")
    return settle_number(total / len(numbers))


def _contains(subject: Json, wanted: Json) -> bool:
    if isinstance(subject, str):
        return isinstance(wanted, str) and wanted in subject
    return any(equals(item, wanted) for item in subject)


def _join(glue: str, pieces: list[str]) -> str:
    check_size(len(glue) * len(pieces) + sum(map(len, pieces)))
    return glue.join(pieces)


def _map(apply: Handler, items: list[Json]) -> list[Json]:
    return [apply(item) for item in items]


def _merge(*objects: Json) -> JsonObject:
    merged: JsonObject = {}
    for value in objects:
        if not isinstance(value, dict):
            raise ValueError(f"cannot merge a value of type {name_type(value)}")
        merged.update(value)
    return merged


def _not_null(*values: Json) -> Json:
    return next((value for value in values if value is not None), None)


def _to_number(value: Json) -> Json:
    if is_number(value):
        return value
    return parse_number(value) if isinstance(value, str) else None


def _to_string(value: Json) -> str:
    if isinstance(value, str):
        return value
    return format_number(value) if is_number(value) else dump_go_json(value)


def _type(value: Json) -> str:
    name = name_type(value)
    if name == "unknown":
        raise ValueError("unknown type")
    return name


_BASIC: tuple[FunctionSpec, ...] = (
    define("abs(number) number", abs, "returns the absolute value"),
    define("avg(array[number]) number", _average, "returns the average of numbers"),
    define("ceil(number) number", math.ceil, "rounds up to an integer"),
    define(
        "contains(array|string, any) bool",
        _contains,
        "returns whether an array contains an item, or a text another text",
    ),
    define(
        "ends_with(string, string) bool", str.endswith, "returns whether a text ends with another"
    ),
    define("floor(number) number", math.floor, "rounds down to an integer"),
    define("join(string, array[string]) string", _join, "joins texts with a separator"),
    define("keys(object) array[string]", list, "lists the keys of an object"),
    define("length(string|array|object) number", len, "counts characters, items or keys"),
    define("map(expref, array) array", _map, "applies an expression to every item"),
    define("merge(object...) object", _merge, "merges objects; later ones win"),
    define("not_null(any...) any", _not_null, "returns the first argument that is not null"),
    define("reverse(array|string) array|string", lambda value: value[::-1], "reverses the order"),
    define(
        "starts_with(string, string) bool",
        str.startswith,
        "returns whether a text starts with another",
    ),
    define(
        "to_array(any) array",
        lambda value: value if isinstance(value, list) else [value],
        "wraps a value that is no array in one",
    ),
    define("to_number(any) number", _to_number, "parses a number, or returns null"),
    define("to_string(any) string", _to_string, "converts to a text; encodes other values as JSON"),
    define("type(any) string", _type, "returns the type of a value"),
    define("values(object) array", lambda value: list(value.values()), "lists an object's values"),
)

STANDARD = (*_BASIC, *_TEXT, *_COLLECTION, *_ORDERING)
