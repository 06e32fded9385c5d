"""How many times as large as what it is asked about can the answer of a JMESPath query be?

`[@, @] | [@, @] | ...` doubles its answer with every step: sixty of them fill any memory. Such a
query is known from its text alone.
"""

from collections.abc import Callable
from typing import Final

from lictor.errors import CompileError
from lictor.lang.jmespath import parse_query
from lictor.raw import Json, JsonObject

MAX_GROWTH: Final = 1000
# Only what stands between commas can be given twice, so fewer commas cannot grow beyond the bound.
_HARMLESS_COMMAS = MAX_GROWTH.bit_length() - 1

_CHAINS = frozenset(
    (
        "ASTPipe",
        "ASTSubexpression",
        "ASTIndexExpression",
        "ASTProjection",
        "ASTValueProjection",
        "ASTExpRef",
        "ASTFlatten",
        "ASTKeyValPair",
    )
)
_CHOICES = frozenset(("ASTOrExpression", "ASTAndExpression"))
_SMALL = frozenset(("ASTComparator", "ASTNotExpression", "ASTLiteral"))


def check_growth(text: str) -> None:
    """Raise CompileError for a query whose answer can be beyond all proportion."""
    if text.count(",") >= _HARMLESS_COMMAS:
        _measure(parse_query(text), 1)


def _measure(node: JsonObject, size: int) -> int:
    """How large the answer is, where what it is asked about has this size."""
    grown = _choose_measure(node["type"])(node, size)
    if grown > MAX_GROWTH:
        raise CompileError(f"its answer can be more than {MAX_GROWTH} times what it is asked about")
    return grown


def _choose_measure(kind: str) -> Callable[[JsonObject, int], int]:
    if kind in _CHAINS:
        return _measure_chain
    if kind in _CHOICES:
        return lambda node, size: max(_measure_each(node, size))
    if kind in _SMALL:
        return _measure_small
    return _OTHERS.get(kind, _measure_all)


def _measure_each(node: JsonObject, size: int) -> list[int]:
    return [_measure(child, size) for child in _children(node)]


def _measure_all(node: JsonObject, size: int) -> int:
    """What has parts holds them all; what has none is one of what is there."""
    return sum(_measure_each(node, size)) if _children(node) else size


def _measure_chain(node: JsonObject, size: int) -> int:
    for child in _children(node):
        size = _measure(child, size)
    return size


def _measure_small(node: JsonObject, size: int) -> int:
    """The answer is small, but its parts are looked at all the same."""
    _measure_each(node, size)
    return 1


def _measure_filter(node: JsonObject, size: int) -> int:
    left, right, condition = _children(node)
    size = _measure(left, size)
    _measure(condition, size)
    return _measure(right, size)


def _measure_call(node: JsonObject, size: int) -> int:
    children = _children(node)
    if node["value"] == "map" and len(children) == 2:
        return _measure(children[0], _measure(children[1], size))
    return _measure_all(node, size)


_OTHERS: Final[dict[str, Callable[[JsonObject, int], int]]] = {
    "ASTFilterProjection": _measure_filter,
    "ASTFunctionExpression": _measure_call,
}


def _children(node: JsonObject) -> list[Json]:
    return list(node.get("children", ()))
