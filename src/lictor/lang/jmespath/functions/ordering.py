"""Functions that look for the first, the last or the right order."""

from collections.abc import Callable
from typing import TypeVar

from lictor.lang.go_number import is_number
from lictor.lang.jmespath.functions.spec import FunctionSpec, Handler, define
from lictor.lang.jmespath.values import NativeInteger
from lictor.raw import Json

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
        # A lone item is the answer whatever its key is.
        if len(items) < 2:
            return items[0] if items else None
        return items[choose(range(len(items)), key=_rank(items, key).__getitem__)]

    return pick


def _sort_by(items: list[Json], key: Handler) -> list[Json]:
    if len(items) < 2:
        return items
    ranks = _rank(items, key)
    return [items[index] for index in sorted(range(len(items)), key=ranks.__getitem__)]


ORDERING: tuple[FunctionSpec, ...] = (
    define(
        "compare(string, string) number",
        _compare,
        "gives -1, 0 or 1 as the first text comes before, with or after the second",
    ),
    define(
        "max(array[number]|array[string]) any",
        lambda items: max(items, default=None),
        "gives the largest item",
    ),
    define("max_by(array, expref) any", _choose_by(max), "gives the item with the largest key"),
    define(
        "min(array[number]|array[string]) any",
        lambda items: min(items, default=None),
        "gives the smallest item",
    ),
    define("min_by(array, expref) any", _choose_by(min), "gives the item with the smallest key"),
    define("sort(array[string]|array[number]) array", sorted, "puts items in order"),
    define("sort_by(array, expref) array", _sort_by, "puts items in the order of their keys"),
)
