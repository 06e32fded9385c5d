"""Equals and NotEquals: texts may be durations, quantities or (the value) a wildcard pattern.

Some pairs cannot be compared at all; neither operator holds for them, and the answer here is None.
"""

from collections.abc import Callable

from lictor.errors import TooLargeError
from lictor.lang.condition.ordering import count_seconds, read_length
from lictor.lang.go_number import is_number
from lictor.lang.pattern.go_values import parse_float
from lictor.lang.pattern.scalar import read_quantity
from lictor.lang.wildcard import compile_wildcard
from lictor.raw import Json

Verdict = Callable[[Json], bool | None]
TextVerdict = Callable[[str], bool | None]

_MAX_DEPTH = 100


def build_equality(value: Json) -> Callable[[Json], bool]:
    """Build Equals for one value."""
    compare = _compile_comparison(value)
    return lambda key: compare(key) is True


def build_inequality(value: Json) -> Callable[[Json], bool]:
    """Build NotEquals for one value."""
    compare = _compile_comparison(value)
    return lambda key: compare(key) is False


def _compile_comparison(value: Json) -> Verdict:
    compare_text = _compile_text_comparison(value)
    number = parse_float(value) if isinstance(value, str) else value
    is_numeric = is_number(number)

    def compare(key: Json) -> bool | None:
        if isinstance(key, str):
            return compare_text(key)
        if isinstance(key, bool):
            return key is value
        if isinstance(key, (int, float)):
            return is_numeric and bool(key == number)
        if isinstance(key, (dict, list)):
            return are_equal(key, value)
        return None

    return compare


def _compile_text_comparison(value: Json) -> TextVerdict:
    if isinstance(value, str):
        return _compile_two_texts(value)
    seconds = count_seconds(value)
    if seconds is None:
        return lambda _: False

    def compare(key: str) -> bool:
        length = read_length(key)
        return length is not None and length == seconds

    return compare


def _compile_two_texts(value: str) -> TextVerdict:
    length, quantity, matches = read_length(value), read_quantity(value), compile_wildcard(value)

    def compare(key: str) -> bool | None:
        if length is not None:
            key_length = read_length(key)
            if key_length is not None:
                return key_length == length
        key_quantity = read_quantity(key)
        if key_quantity is None:
            return matches(key)
        if quantity is None:
            return None if value else False
        return key_quantity == quantity

    return compare


def are_equal(left: Json, right: Json, depth: int = 0) -> bool:
    """Compare values in depth; true is not 1, but 1 is 1.0."""
    if depth > _MAX_DEPTH:
        raise TooLargeError("a value is nested too deeply to be compared")
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(are_equal(item, right[key], depth + 1) for key, item in left.items())
        )
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(
                are_equal(one, other, depth + 1) for one, other in zip(left, right, strict=True)
            )
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)
