"""A checked expression as a tree with types and places, decoded from the engine's bytes."""

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from lictor.core.lang.cel.types import DYN, CelType
from lictor.core.lang.cel.wire import fields, read_varints
from lictor.core.raw import Json

_PRIMITIVES = ("dyn", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("dyn", "dyn", "timestamp", "duration")


class CelNode(msgspec.Struct, frozen=True):
    """One part of an expression.

    `kind` is constant, ident, select, call, list, map or comprehension; `name` the identifier, the
    field or the function; `parts` what it is made of, of a comprehension: range, start, condition,
    step, result; `names` its variables: the element's, the second one's, the result's.
    """

    number: int
    kind: str
    name: str = ""
    parts: tuple["CelNode", ...] = ()
    value: Json = None
    is_test: bool = False
    names: tuple[str, ...] = ()


class Tree(msgspec.Struct, frozen=True):
    """The root, and the type and the place of each part by its number."""

    root: CelNode
    kinds: dict[int, CelType] = {}
    places: dict[int, int] = {}


# As many as an editor's file may hold: with each edit all but one are as they were.
@lru_cache(maxsize=512)
def read_tree(checked: bytes) -> Tree:
    """Decode a serialized checked expression."""
    message = _message(dict(fields(checked)).get(2, b""))
    root = CelNode(0, "constant")
    kinds: dict[int, CelType] = {}
    places: dict[int, int] = {}
    for number, value in fields(message):
        if number == 3:
            entry = dict(fields(_message(value)))
            kinds[_integer(entry.get(1, 0))] = _read_kind(_message(entry.get(2, b"")))
        elif number == 4:
            root = _read_node(_message(value))
        elif number == 5:
            places = _read_places(_message(value))
    return Tree(root, kinds, places)


def read_expression(code: bytes) -> CelNode:
    """Decode an expression without types and places."""
    return _read_node(code)


def _message(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else b""


def _integer(value: bytes | int) -> int:
    return value if isinstance(value, int) else 0


def _text(value: bytes | int) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _read_places(source: bytes) -> dict[int, int]:
    entries = (dict(fields(_message(value))) for number, value in fields(source) if number == 4)
    return {_integer(entry.get(1, 0)): _integer(entry.get(2, 0)) for entry in entries}


def _read_kind(message: bytes) -> CelType:
    for number, value in fields(message):
        if number in {3, 4}:
            return CelType(_PRIMITIVES[min(_integer(value), 6)])
        if number == 5:
            return CelType(_WELL_KNOWN[min(_integer(value), 3)])
        if number in {6, 7}:
            inner = tuple(_read_kind(_message(part)) for _, part in fields(_message(value)))
            return CelType("list" if number == 6 else "map", inner)
        if number in {9, 10}:
            return CelType(_text(value))
        if number in {2, 11}:
            return CelType("null_type" if number == 2 else "type")
        if number == 14:
            return _read_opaque(_message(value))
    return DYN


def _read_opaque(message: bytes) -> CelType:
    parts = list(fields(message))
    name = next((_text(value) for number, value in parts if number == 1), "")
    inner = tuple(_read_kind(_message(value)) for number, value in parts if number == 2)
    return CelType(name, inner)


def _read_node(message: bytes) -> CelNode:
    number = 0
    for key, value in fields(message):
        if key == 2:
            number = _integer(value)
        elif key in _READERS:
            return _READERS[key](number, _message(value))
    return CelNode(number, "constant")


def _read_constant(number: int, message: bytes) -> CelNode:
    for key, value in fields(message):
        return CelNode(number, "constant", value=_text(value) if key == 6 else value)
    return CelNode(number, "constant")


def _read_ident(number: int, message: bytes) -> CelNode:
    return CelNode(number, "ident", _text(dict(fields(message)).get(1, b"")))


def _read_select(number: int, message: bytes) -> CelNode:
    parts = dict(fields(message))
    operand = _read_node(_message(parts.get(1, b"")))
    return CelNode(
        number, "select", _text(parts.get(2, b"")), (operand,), is_test=bool(parts.get(3, 0))
    )


def _read_call(number: int, message: bytes) -> CelNode:
    parts = list(fields(message))
    name = next((_text(value) for key, value in parts if key == 2), "")
    inner = tuple(_read_node(_message(value)) for key, value in parts if key in {1, 3})
    return CelNode(number, "call", name, inner)


def _read_list(number: int, message: bytes) -> CelNode:
    items = tuple(_read_node(_message(value)) for key, value in fields(message) if key == 1)
    # Which parts are optional: their type is not that of the list's elements or the map's values.
    optional = tuple(_varints(value for key, value in fields(message) if key == 2))
    return CelNode(number, "list", parts=items, value=optional)


def _varints(values: Iterable[bytes | int]) -> Iterable[int]:
    for value in values:
        if isinstance(value, bytes):
            yield from read_varints(value)
        else:
            yield value


def _read_map(number: int, message: bytes) -> CelNode:
    parts: list[CelNode] = []
    optional: list[int] = []
    for key, value in fields(message):
        if key == 2:
            entry = dict(fields(_message(value)))
            if entry.get(5):
                optional.append(len(parts) + 1)
            parts += [
                _read_node(_message(entry.get(3, b""))),
                _read_node(_message(entry.get(4, b""))),
            ]
    return CelNode(number, "map", parts=tuple(parts), value=tuple(optional))


def _read_comprehension(number: int, message: bytes) -> CelNode:
    parts = dict(fields(message))
    inner = tuple(_read_node(_message(parts.get(key, b""))) for key in (2, 4, 5, 6, 7))
    names = tuple(_text(parts.get(key, b"")) for key in (1, 8, 3))
    return CelNode(number, "comprehension", parts=inner, names=names)


_READERS: dict[int, Callable[[int, bytes], CelNode]] = {
    3: _read_constant,
    4: _read_ident,
    5: _read_select,
    6: _read_call,
    7: _read_list,
    8: _read_map,
    9: _read_comprehension,
}
