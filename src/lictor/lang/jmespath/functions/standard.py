"""The functions that JMESPath itself defines, apart from those that put things in order."""

import math

from lictor.lang.go_json import dump_go_json
from lictor.lang.go_number import format_number, is_number, parse_number, settle_number
from lictor.lang.jmespath.functions.spec import FunctionSpec, Handler, check_size, define
from lictor.lang.jmespath.values import equals, name_type
from lictor.raw import Json, JsonObject


def _average(numbers: list[float]) -> Json:
    total = 0.0
    for number in numbers:
        total += number
    if not numbers:
        raise ValueError("there is no average of nothing")
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


STANDARD: tuple[FunctionSpec, ...] = (
    define("abs(number) number", abs, "gives a number without its sign"),
    define("avg(array[number]) number", _average, "gives the average of numbers"),
    define("ceil(number) number", math.ceil, "rounds up to a whole number"),
    define(
        "contains(array|string, any) bool",
        _contains,
        "says whether an array has an item, or a text another text",
    ),
    define("ends_with(string, string) bool", str.endswith, "says whether a text ends with another"),
    define("floor(number) number", math.floor, "rounds down to a whole number"),
    define("join(string, array[string]) string", _join, "puts texts together with one in between"),
    define("keys(object) array[string]", list, "lists the keys of an object"),
    define("length(string|array|object) number", len, "counts characters, items or keys"),
    define("map(expref, array) array", _map, "applies an expression to every item"),
    define("merge(object...) object", _merge, "puts objects together; later ones win"),
    define("not_null(any...) any", _not_null, "gives the first argument that is not null"),
    define(
        "reverse(array|string) array|string", lambda value: value[::-1], "turns the order round"
    ),
    define(
        "starts_with(string, string) bool",
        str.startswith,
        "says whether a text begins with another",
    ),
    define(
        "to_array(any) array",
        lambda value: value if isinstance(value, list) else [value],
        "puts what is no array into one",
    ),
    define("to_number(any) number", _to_number, "reads a number from a text, or gives null"),
    define("to_string(any) string", _to_string, "writes what is no text as JSON"),
    define("type(any) string", _type, "names the type of a value"),
    define("values(object) array", lambda value: list(value.values()), "lists an object's values"),
)
