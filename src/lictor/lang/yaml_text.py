"""One YAML document in a text, read into JSON by the rules of the reader that Kubernetes has."""

import math
import re
from base64 import b64decode
from collections.abc import Iterator

import yaml

from lictor.lang.go_number import format_single, is_number, settle_number
from lictor.raw import Json, JsonObject

_WORDS: dict[str, Json] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_UNBOUNDED = re.compile(r"[+-]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
_TAG = "tag:yaml.org,2002:"
_NUMBERS = frozenset(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))
_MAX_NODES = 1_000_000
_MAX_DEPTH = 200


def parse_yaml_text(text: str) -> Json:
    """Read the first document; ValueError where it is none, or none that JSON can hold."""
    reader = _Reader(text)
    try:
        return reader.read_document()
    except yaml.YAMLError as error:
        raise ValueError(f"yaml: {_describe(error)}") from error
    finally:
        reader.close()


def _describe(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(error)


class _Reader:
    """Builds JSON from the parser's events.

    The library's own builder calls itself without bound, in C, and dies of deep nesting. What
    aliases stand for is counted: few lines can mean more than memory holds.
    """

    def __init__(self, text: str) -> None:
        self._parser = yaml.CBaseLoader(text)
        self._left = _MAX_NODES
        self._anchors: dict[str, tuple[Json, int]] = {}

    def close(self) -> None:
        self._parser.dispose()

    def read_document(self) -> Json:
        while True:
            event = self._take()
            if isinstance(event, yaml.StreamEndEvent):
                return None
            if not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent)):
                return _settle(self._read(event, _MAX_DEPTH))

    def _read(self, event: yaml.Event, depth: int) -> Json:
        if isinstance(event, yaml.AliasEvent):
            return self._recall(event.anchor or "")
        before = self._left
        self._spend(1)
        if depth == 0:
            raise ValueError("yaml: the document is nested too deeply")
        value: Json
        if isinstance(event, yaml.ScalarEvent):
            value = _read_scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [_settle(self._read(item, depth - 1)) for item in self._items()]
        else:
            value = self._read_mapping(depth)
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._anchors[event.anchor] = value, before - self._left
        return value

    def _take(self) -> yaml.Event:
        return self._parser.get_event() or yaml.StreamEndEvent()

    def _items(self) -> Iterator[yaml.Event]:
        while not isinstance(event := self._take(), yaml.CollectionEndEvent):
            yield event

    def _recall(self, anchor: str) -> Json:
        if anchor not in self._anchors:
            raise ValueError(f"yaml: unknown anchor {anchor!r} referenced, or within itself")
        value, size = self._anchors[anchor]
        self._spend(size)
        return value

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError("yaml: the document stands for too much")

    def _read_mapping(self, depth: int) -> JsonObject:
        merged: JsonObject = {}
        own: JsonObject = {}
        for key in self._items():
            if isinstance(key, yaml.ScalarEvent) and key.implicit[0] and key.value == "<<":
                merged = {**_merge(self._next(depth)), **merged}
            else:
                name = _write_key(self._read(key, depth - 1))
                own[name] = _settle(self._next(depth))
        return {**merged, **own}

    def _next(self, depth: int) -> Json:
        return self._read(self._take(), depth - 1)


def _merge(value: Json) -> JsonObject:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("yaml: map merge requires map or sequence of maps as the value")
    return {key: item for part in reversed(parts) for key, item in part.items()}


def _write_key(key: Json) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        return format_single(key)
    if isinstance(key, (str, int)):
        return str(key)
    raise ValueError("yaml: a key must be a text, a number or a boolean")


def _settle(value: Json) -> Json:
    """Numbers leave the detour over JSON as Go has them; all else stays."""
    return settle_number(value) if is_number(value) else value


def _read_scalar(event: yaml.ScalarEvent) -> Json:
    text: str = event.value
    if event.tag is None:
        return _read_plain(text) if event.implicit[0] else text
    if event.tag == f"{_TAG}binary":
        return b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    return _read_plain(text) if event.tag in _NUMBERS else text


def _read_plain(text: str) -> Json:
    if text in _WORDS:
        return _WORDS[text]
    if _UNBOUNDED.fullmatch(text):
        return math.nan
    plain = text if text[0] == "." else text.replace("_", "")
    whole = _INTEGER.fullmatch(plain)
    if whole is not None and len(plain) <= 80:
        index = next(i for i in range(4) if whole[i + 2] is not None)
        number = int(whole[index + 2], _BASES[index])
        return -number if whole[1] == "-" else number
    return float(plain) if _FLOAT.fullmatch(plain) else text
