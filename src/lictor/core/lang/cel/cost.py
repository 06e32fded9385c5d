"""Kubernetes' cost model: what a call costs, and an evaluation that counts every step.

The ordinary evaluation only counts an upper bound, which is cheap. Where that exceeds the limit,
the expression is evaluated again by closures that count as Kubernetes does.
"""

from collections.abc import Sequence
from math import ceil
from typing import TypeAlias

from lictor.core.lang.cel import calls
from lictor.core.lang.cel.calls import Frame, Run
from lictor.core.lang.cel.compiler import CelCompiler
from lictor.core.lang.cel.functions import Cost, find_implementation, read_constant
from lictor.core.lang.cel.syntax import (
    Call,
    CelNode,
    Fold,
    Ident,
    ListNode,
    MapNode,
    Select,
    StructNode,
)
from lictor.core.lang.cel.values import Opaque, Optional, Value

_TEXT, _REGEX = 0.1, 0.25
_LIST, _MAP, _STRUCT = 10, 30, 40
_AUTHORIZATION = 350_000
Args: TypeAlias = Sequence[Value]


def _size(value: Value) -> int:
    if type(value) in (str, bytes, list, dict):
        return len(value)
    return _size(value.value) if type(value) is Optional and value.has_value else 1


def _walk(value: Value) -> int:
    """The cost to go through a value with all its parts."""
    if type(value) in (str, bytes):
        return int(len(value) * _TEXT)
    if type(value) is list:
        return sum(map(_walk, value))
    if type(value) is dict:
        return sum(_walk(key) + _walk(item) for key, item in value.items())
    return 1


def _traverse(argument: int, times: int = 1) -> Cost:
    return lambda args: ceil(_size(args[argument]) * times * _TEXT)


def _search(args: Args) -> int:
    return ceil((1 + _size(args[0])) * _TEXT) * ceil(_size(args[1]) * _REGEX)


def _validate(args: Args) -> int:
    return ceil((1 + _size(args[1])) * _TEXT) * ceil(int(args[0].pattern_size) * _REGEX)


def _compare(args: Args) -> int:
    if isinstance(args[0], Opaque):
        return 1
    return ceil(min(_size(args[0]), _size(args[1])) * _TEXT)


def _order(args: Args) -> int:
    return _compare(args) if type(args[0]) in (str, bytes) else 1


def _add(args: Args) -> int:
    if type(args[0]) not in (str, bytes):
        return 1
    return ceil((_size(args[0]) + _size(args[1])) * _TEXT)


def _in(args: Args) -> int:
    return _size(args[1]) if type(args[1]) is list else 1


def _join(args: Args) -> int:
    between = _size(args[1]) * len(args[0]) if len(args) > 1 else 0
    return ceil((sum(map(_size, args[0])) + between) * 2 * _TEXT) if type(args[0]) is list else 1


def _contains_cidr(args: Args) -> int:
    return 3 + (ceil(_size(args[1]) * _TEXT) if type(args[1]) is str else 0)


def _select(args: Args) -> int:
    return _LIST + ceil(_size(args[1]) * _TEXT) + ceil(_size(args[1]) * 0.5 * (_LIST + _STRUCT))


def _pairs(argument: int) -> Cost:
    def cost(args: Args) -> int:
        values = args[argument]
        is_text = type(values) is list and values and type(values[0]) in (str, bytes)
        return int(_size(values) ** 2 * (2.1 if is_text else 2)) + 1 + _LIST

    return cost


def _product(factor: int) -> Cost:
    return lambda args: 1 + factor * _size(args[0]) * _size(args[1])


def _copy(args: Args) -> int:
    count = args[0] if type(args[0]) is int else _size(args[0])
    return 1 + _LIST + max(count, 0)


def _flatten(args: Args) -> int:
    return 1 + _LIST + _size(args[0]) * (args[1] if len(args) > 1 else 1)


def _extract(args: Args) -> int:
    found = (1 + _size(args[0])) * _TEXT * (1 + _size(args[1])) * _REGEX
    return ceil(1 + found) + _size(args[0])


def _same(names: str, cost: Cost) -> dict[str, Cost]:
    return dict.fromkeys(names.split(), cost)


# Calls that do not stand here cost 1.
COSTS: dict[str, Cost] = {
    "check": lambda _: _AUTHORIZATION,
    **_same("fieldSelector labelSelector", _select),
    **_same("isSorted sum max min indexOf lastIndexOf includes", lambda args: _walk(args[0])),
    **_same("url lowerAscii upperAscii substring trim jsonpatch.escapeKey", _traverse(0)),
    **_same("cidr isIP isCIDR quantity isQuantity semver isSemver ip", _traverse(0)),
    **_same("replace split ip.isCanonical", _traverse(0, 2)),
    **_same("find findAll matches", _search),
    "validate": _validate,
    **_same("startsWith endsWith", _traverse(1)),
    **_same("bytes strings.quote format", _traverse(0)),
    "string": lambda args: ceil(_size(args[0]) * _TEXT) if type(args[0]) is bytes else 1,
    "contains": lambda args: _traverse(0)(args) * _traverse(1)(args),
    "join": _join,
    **_same("containsIP", lambda args: 1 + ceil(_size(args[1]) * _TEXT)),
    "containsCIDR": _contains_cidr,
    **_same("_==_ _!=_", _compare),
    **_same("_<_ _<=_ _>_ _>=_", _order),
    "_+_": _add,
    "@in": _in,
    **_same("distinct sort", _pairs(0)),
    "@sortByAssociatedKeys": _pairs(1),
    **_same("slice reverse lists.range", _copy),
    "flatten": _flatten,
    **_same("sets.contains sets.intersects", _product(1)),
    "sets.equivalent": _product(2),
    **_same("regex.extract regex.extractAll regex.replace", _extract),
    **_same("base64.encode base64.decode", lambda args: 1 + _traverse(0)(args)),
}
# Only these are measured in the ordinary evaluation: one call of them can take long.
HEAVY = (
    "check", "isSorted", "sum", "max", "min", "includes", "indexOf", "lastIndexOf", "replace",
    "split", "find", "findAll", "matches", "validate", "contains", "join", "format", "distinct",
    "sort", "@sortByAssociatedKeys", "lists.range", "flatten", "sets.contains", "sets.intersects",
    "sets.equivalent", "regex.extract", "regex.extractAll", "regex.replace",
)  # fmt: skip
# What one turn of a macro's loop costs beside the parts that the author wrote.
_TURNS = {"all": 3, "exists": 4, "map": 1, "filter": 1}
_OTHER_TURNS = 2
_NODES: dict[type, int] = {ListNode: _LIST, MapNode: _MAP, StructNode: _STRUCT, Fold: 1}


class MeasuringCompiler(CelCompiler):
    """Compiles to closures that count what Kubernetes counts."""

    is_measuring = True

    def compile(self, node: CelNode) -> Run:
        run = super().compile(node)
        amount = self._static_cost(node)
        return _charge(run, amount) if amount else run

    def _static_cost(self, node: CelNode) -> int:
        if read_constant(node)[0]:
            return 0
        if isinstance(node, Select):
            node = node.resolved or node
        if isinstance(node, Ident):
            return int(node.constant is None)
        if isinstance(node, Select):
            return int(not node.is_test) + _start_cost(node.operand)
        if isinstance(node, Call):
            is_index = node.function in _INDEXES
            return 1 + _start_cost(node.args[0]) if is_index else 0
        return _NODES.get(type(node), 0)

    def finish_parts(self, macro: str, parts: list[Run | None]) -> str:
        transform = parts[1]
        if macro in ("map", "filter") and transform is not None:
            parts[1] = _charge(transform, _LIST + 1)
            return "map"
        return macro

    def loop_cost(self, macro: str, body: int) -> int:  # noqa: ARG002 - counted where it is evaluated
        return _TURNS.get(macro, _OTHER_TURNS)

    def invoke(self, node: Call, parts: list[CelNode], runs: list[Run]) -> Run:
        implementation = find_implementation(self.functions, node, parts)
        if node.function == "@in" and read_constant(parts[1])[0]:
            return calls.call(implementation, runs)
        cost = COSTS.get(node.function, lambda _: 1)
        return calls.call_measured(implementation, runs, cost)


_INDEXES = ("_[_]", "_[?_]")


def _start_cost(node: CelNode) -> int:
    """A selection on something that is no selection itself costs one more."""
    is_chain = isinstance(node, Ident | Select) or (
        isinstance(node, Call) and node.function in (*_INDEXES, "_?_:_")
    )
    return int(not is_chain)


def _charge(run: Run, amount: int) -> Run:
    def charged(frame: Frame) -> Value:
        frame[0].spend(amount)
        return run(frame)

    return charged
