"""Rego's values in Python, and their text forms in OPA and in its Wasm.

Null, booleans, texts, arrays and objects with string keys are those of JSON; integers are int,
other numbers RegoFloat, which keeps its notation. Sets and objects with other keys have separate
types.
"""

import json
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, TypeAlias

from lictor.core.lang.go_number import quote_go, replace_surrogates

RegoValue: TypeAlias = Any

# Longer integers are slow to parse, and no policy has them.
_MOST_DIGITS = 4_000


class RegoFloat(float):
    """A number that is not written as an integer; it keeps its notation."""

    text: str

    def __new__(cls, text: str) -> "RegoFloat":
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __reduce__(self) -> tuple[type["RegoFloat"], tuple[str]]:
        return RegoFloat, (self.text,)


class RegoSet:
    """A set: elements in Rego's order, without duplicates."""

    __slots__ = ("elements",)

    def __init__(self, elements: Iterable[RegoValue]) -> None:
        keyed = {sort_key(element): element for element in elements}
        self.elements = [keyed[key] for key in sorted(keyed)]

    def __iter__(self) -> Iterator[RegoValue]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegoSet) and sort_key(self) == sort_key(other)

    def __hash__(self) -> int:
        return hash(sort_key(self))


class RegoObject:
    """An object with at least one key that is no text."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[RegoValue, RegoValue]]) -> None:
        keyed = {sort_key(key): (key, value) for key, value in pairs}
        self.pairs = [keyed[key] for key in sorted(keyed)]


def make_object(pairs: Iterable[tuple[RegoValue, RegoValue]]) -> RegoValue:
    """An object, plain if all keys are texts."""
    listed = list(pairs)
    if all(isinstance(key, str) for key, _ in listed):
        return dict(listed)
    return RegoObject(listed)


def list_pairs(value: RegoValue) -> list[tuple[RegoValue, RegoValue]]:
    """Keys and values of an object of either type."""
    return value.pairs if isinstance(value, RegoObject) else list(value.items())


def is_object(value: RegoValue) -> bool:
    """Whether the value is an object of either type."""
    return isinstance(value, (dict, RegoObject))


def sort_key(value: RegoValue) -> tuple[int, Any]:
    """Rego's order: null, booleans, numbers, texts, arrays, objects, sets."""
    if value is None:
        return (0, 0)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, (int, float)):
        return (2, value)
    if isinstance(value, str):
        return (3, value)
    if isinstance(value, (list, tuple)):
        return (4, tuple([sort_key(element) for element in value]))
    if isinstance(value, RegoSet):
        return (6, tuple([sort_key(element) for element in value.elements]))
    pairs = [(sort_key(key), sort_key(item)) for key, item in list_pairs(value)]
    pairs.sort()
    return (5, tuple(pairs))


def to_json(value: RegoValue) -> RegoValue:
    """The value as JSON: sets become arrays, keys that are no texts their JSON text."""
    if isinstance(value, RegoFloat):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    if isinstance(value, RegoSet):
        return [to_json(each) for each in value.elements]
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, RegoObject):
        return {
            key if isinstance(key, str) else dump_value(to_json(key)).decode(): to_json(each)
            for key, each in value.pairs
        }
    return value


def from_json(text: str) -> RegoValue:
    """Parse external JSON; raises ValueError if it is invalid. Numbers keep their notation."""
    try:
        return replace_surrogates(_STRICT_DECODER.decode(text))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def is_equal(left: RegoValue, right: RegoValue) -> bool:
    """Whether two values are equal in Rego."""
    return sort_key(left) == sort_key(right)


def write_value(value: RegoValue) -> str:
    """The value as OPA prints it: sets and objects sorted, a space after each comma and colon."""
    return _write(value, ", ", ": ", quote_go)


def dump_value(value: RegoValue) -> bytes:
    """The value as Rego's Wasm reads it."""
    if type(value) is str:
        return _encode_text(value).encode()
    return _write(value, ",", ":", _encode_text).encode()


def _encode_text(text: str) -> str:
    return (
        encode_basestring(text) if text.isascii() else encode_basestring(replace_surrogates(text))
    )


def _write(value: RegoValue, comma: str, colon: str, quote: Any) -> str:
    if isinstance(value, str):
        return str(quote(value))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return write_number(value)
    if isinstance(value, (list, tuple)):
        return f"[{comma.join([_write(each, comma, colon, quote) for each in value])}]"
    if isinstance(value, RegoSet):
        inside = comma.join([_write(each, comma, colon, quote) for each in value.elements])
        return f"{{{inside}}}" if inside else "set()"
    pairs = sorted(value.items(), key=itemgetter(0)) if isinstance(value, dict) else value.pairs
    written = [
        _write(key, comma, colon, quote) + colon + _write(item, comma, colon, quote)
        for key, item in pairs
    ]
    return f"{{{comma.join(written)}}}"


def write_number(value: float) -> str:
    """A number in Rego's notation."""
    if isinstance(value, RegoFloat):
        return value.text
    if isinstance(value, int):
        return str(value)
    from lictor.core.lang.go_number import format_number

    return format_number(value)


def _read_whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number is too long")
    return int(text)


_DECODER = json.JSONDecoder(parse_float=RegoFloat, parse_int=_read_whole)
_decode = _DECODER.decode


def _refuse(text: str) -> RegoValue:
    raise ValueError(f"{text} is not JSON")


_STRICT_DECODER = json.JSONDecoder(
    parse_float=RegoFloat, parse_int=_read_whole, parse_constant=_refuse
)


def parse_value(text: str) -> RegoValue:
    """Parse output of Rego's Wasm; raises ValueError if it is no value."""
    try:
        return _decode(text)
    except ValueError:
        # Sets and keys that are no texts are not JSON.
        return _Reader(text).read_all()
    except RecursionError as error:
        raise ValueError("a value is nested too deeply") from error


class _Reader:
    """Parses values of which some are no JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read_all(self) -> RegoValue:
        value = self._read()
        if self._at != len(self._text):
            raise ValueError("text after a value")
        return value

    def _skip(self) -> str:
        text, at = self._text, self._at
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        self._at = at
        return text[at : at + 1]

    def _take(self, word: str) -> bool:
        self._skip()
        if self._text.startswith(word, self._at):
            self._at += len(word)
            self._skip()
            return True
        return False

    def _read(self) -> RegoValue:
        first = self._skip()
        if first == "[":
            self._at += 1
            return self._read_elements("]")
        if first == "{":
            self._at += 1
            return self._read_braces()
        if self._take("set()"):
            return RegoSet([])
        if first in ("", ",", "]", "}", ":"):
            raise ValueError("a value is missing")
        return self._read_scalar()

    def _read_scalar(self) -> RegoValue:
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        self._skip()
        return value

    def _read_elements(self, end: str) -> list[RegoValue]:
        elements: list[RegoValue] = []
        if self._take(end):
            return elements
        while True:
            elements.append(self._read())
            if self._take(end):
                return elements
            if not self._take(","):
                raise ValueError("a comma is missing")

    def _read_braces(self) -> RegoValue:
        if self._take("}"):
            return {}
        first = self._read()
        if not self._take(":"):
            rest = self._read_elements("}") if self._take(",") else self._close()
            return RegoSet([first, *rest])
        pairs = [(first, self._read())]
        while self._take(","):
            key = self._read()
            if not self._take(":"):
                raise ValueError("a colon is missing")
            pairs.append((key, self._read()))
        self._close()
        return make_object(pairs)

    def _close(self) -> list[RegoValue]:
        if not self._take("}"):
            raise ValueError("a brace is missing")
        return []
