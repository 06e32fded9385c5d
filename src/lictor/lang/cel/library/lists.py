"""Kubernetes' functions of lists: order, sum, smallest, greatest, positions."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import Overload, member
from lictor.raw import Json

_SUMMABLE = ("int", "uint", "double", "duration")
_COMPARABLE = (*_SUMMABLE, "bool", "timestamp", "string", "bytes")
_INT64 = range(-(2**63), 2**63)


def is_equal(left: Json, right: Json) -> bool:
    """CEL's equality: 1 equals 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            is_equal(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_equal, left, right))
    return bool(left == right)


def _is_sorted(values: list[Json]) -> bool:
    _check(values, "isSorted")
    return all(left <= right for left, right in pairwise(values))


def _sum(values: list[Json]) -> Json:
    _check(values, "sum")
    if values and isinstance(values[0], timedelta):
        return sum(values, timedelta())
    if any(isinstance(value, str | bool | bytearray) or hasattr(value, "year") for value in values):
        raise FunctionError("no such overload: sum")
    total = sum(values)
    if isinstance(total, int) and total not in _INT64:
        raise FunctionError("integer overflow")
    return total


def _extreme(name: str, choose: Callable[[list[Json]], Json]) -> Callable[[list[Json]], Json]:
    def extreme(values: list[Json]) -> Json:
        _check(values, name)
        if not values:
            raise FunctionError(f"{name} called on empty list")
        return choose(values)

    return extreme


def _check(values: list[Json], name: str) -> None:
    kinds = {_family(value) for value in values}
    if len(kinds) > 1 or kinds & {"dict", "list", "NoneType"}:
        raise FunctionError(f"no such overload: {name}")


def _family(value: Json) -> str:
    return "number" if type(value) in {int, float} else type(value).__name__


def _index_of(values: list[Json], item: Json) -> int:
    return next((index for index, value in enumerate(values) if is_equal(value, item)), -1)


def _last_index_of(values: list[Json], item: Json) -> int:
    found = _index_of(values[::-1], item)
    return len(values) - 1 - found if found >= 0 else -1


_min, _max = _extreme("min", min), _extreme("max", max)


def _each(kinds: tuple[str, ...], make: Callable[[str], Overload]) -> tuple[Overload, ...]:
    return tuple(make(kind) for kind in kinds)


OVERLOADS = (
    *_each(_COMPARABLE, lambda kind: member("isSorted", f"list<{kind}> -> bool", _is_sorted)),
    *_each(_SUMMABLE, lambda kind: member("sum", f"list<{kind}> -> {kind}", _sum)),
    *_each(_COMPARABLE, lambda kind: member("min", f"list<{kind}> -> {kind}", _min)),
    *_each(_COMPARABLE, lambda kind: member("max", f"list<{kind}> -> {kind}", _max)),
    member("indexOf", "list<~T>, ~T -> int", _index_of),
    member("lastIndexOf", "list<~T>, ~T -> int", _last_index_of),
)
