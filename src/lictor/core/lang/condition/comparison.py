"""Equals, GreaterThan and so on, over texts, durations, quantities, numbers and versions.

Some pairs are not comparable; neither Equals nor NotEquals holds for them.
"""

import math
from collections.abc import Callable

from lictor.core.errors import TooLargeError
from lictor.core.lang.duration import NANOSECONDS
from lictor.core.lang.go_number import is_number
from lictor.core.lang.pattern.go_values import parse_float
from lictor.core.lang.pattern.scalar import read_duration, read_quantity
from lictor.core.lang.semver import SemVer, parse_version
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.raw import Json

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
        return quantity is not None and key_quantity == quantity

    return compare


def are_equal(left: Json, right: Json, depth: int = 0) -> bool:
    """Compare values deeply; true is not 1, but 1 is 1.0."""
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


def count_seconds(value: Json) -> int | None:
    """Interpret a number as whole seconds, in nanoseconds; None for anything else."""
    if not is_number(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return int(value) * NANOSECONDS


def read_length(text: str) -> int | None:
    """Parse a duration to nanoseconds; a bare `0` is treated as a number."""
    return None if text == "0" else read_duration(text)


Compare = Callable[[Json, Json], bool]
NumberOrder = Callable[[float], bool]
TextOrder = Callable[[str], bool]


def build_order(compare: Compare, value: Json) -> Callable[[Json], bool]:
    """Build an order operator for one value."""
    order_number = _compile_number_order(compare, value)
    order_text = _compile_text_order(compare, value, order_number)

    def holds(key: Json) -> bool:
        if isinstance(key, str):
            return order_text(key)
        return is_number(key) and order_number(key)

    return holds


def build_duration_order(compare: Compare, value: Json) -> Callable[[Json], bool]:
    """Build one of the old Duration operators for one value."""
    length = _measure(value)

    def holds(key: Json) -> bool:
        key_length = _measure(key)
        return length is not None and key_length is not None and compare(key_length, length)

    return holds


def _measure(value: Json) -> int | None:
    return read_duration(value) if isinstance(value, str) else count_seconds(value)


def _compile_number_order(compare: Compare, value: Json) -> NumberOrder:
    if is_number(value):
        return lambda key: compare(key, value)
    if not isinstance(value, str):
        return _never
    length, number = read_length(value), parse_float(value)
    if length is not None:
        return lambda key: (seconds := count_seconds(key)) is not None and compare(seconds, length)
    return _never if number is None else lambda key: compare(key, number)


def _never(key: float) -> bool:  # noqa: ARG001
    return False


def _compile_text_order(compare: Compare, value: Json, order_number: NumberOrder) -> TextOrder:
    text = value if isinstance(value, str) else ""
    length = read_length(text) if text else count_seconds(value)
    quantity, version = read_quantity(text), _read_version(text)

    def holds(key: str) -> bool:
        if length is not None and (key_length := read_length(key)) is not None:
            return compare(key_length, length)
        if quantity is not None and (key_quantity := read_quantity(key)) is not None:
            return compare(key_quantity, quantity)
        key_number = parse_float(key)
        if key_number is not None:
            return order_number(key_number)
        if version is not None and (key_version := _read_version(key)) is not None:
            return compare(key_version, version)
        return False

    return holds


def _read_version(text: str) -> SemVer | None:
    try:
        return parse_version(text)
    except ValueError:
        return None
