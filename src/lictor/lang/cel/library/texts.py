"""Kyverno's `json.marshal`, `json.unmarshal`, `yaml.parse`; every number read is a double."""

from datetime import datetime, timedelta

import orjson

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.values import emit
from lictor.lang.go_json import dump_go_json
from lictor.lang.json_type import name_cel_type
from lictor.lang.yaml.text import parse_yaml_text
from lictor.raw import Json


def _marshal(value: Json) -> str:
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1) * 1000)
    return dump_go_json(
        emit(value) if isinstance(value, dict | list | bytearray | datetime) else value
    )


def _unmarshal(text: Json) -> Json:
    if not isinstance(text, str):
        raise FunctionError(f"unsupported type conversion from '{name_cel_type(text)}' to string")
    try:
        return with_doubles(orjson.loads(text))
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise FunctionError("unexpected end of JSON input") from None
        raise FunctionError(f"invalid JSON: {error}") from None


def _parse_yaml(text: str) -> Json:
    try:
        return with_doubles(parse_yaml_text(text))
    except ValueError as error:
        raise FunctionError(f"error converting YAML to JSON: {error}") from None


def with_doubles(value: Json) -> Json:
    """The value with all its numbers as doubles, as Go's decoder reads JSON."""
    if isinstance(value, dict):
        return {key: with_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


OVERLOADS = (
    # The spelling of policies on web requests.
    function("json.Unmarshal", "dyn -> dyn", _unmarshal),
    function("json.marshal", "dyn -> string", _marshal),
    function("json.unmarshal", "dyn -> dyn", _unmarshal),
    function("yaml.parse", "string -> dyn", _parse_yaml),
)
