"""Operators of the language on values of any type: arithmetic, membership, selection."""

import math
from collections.abc import Sequence
from typing import Any

from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    UInt,
    Value,
    decode_key,
    equal,
    find_key,
    type_name,
)

# Kubernetes has no such limit; a list of this size costs more than any budget allows.
MAX_ITEMS = 1_000_000
MAX_TEXT = 16 * 1024 * 1024


def check_int(number: int) -> int:
    """The number, if 64 bits can hold it."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelError("integer overflow")


def check_uint(number: int) -> UInt:
    """The number as uint, if 64 bits can hold it."""
    if 0 <= number <= UINT_MAX:
        return UInt(number)
    raise CelError("unsigned integer overflow")


def add(left: Value, right: Value) -> Value:
    """`left + right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return check_int(left + right)
        if kind is str or kind is bytes:
            return _join(left, right)
        if kind is float:
            return left + right
        if kind is list:
            return _join(left, right)
        if kind is UInt:
            return check_uint(int(left) + int(right))
        if kind is Duration:
            return Duration(left.nanoseconds + right.nanoseconds)
    if {kind, other} == {Timestamp, Duration}:
        moment = left if kind is Timestamp else right
        return Timestamp(left.nanoseconds + right.nanoseconds, moment.offset)
    raise no_overload("_+_")


def _join(left: Value, right: Value) -> Value:
    if len(left) + len(right) > (MAX_ITEMS if type(left) is list else MAX_TEXT):
        raise CelError("the value is too large")
    return left + right


def subtract(left: Value, right: Value) -> Value:
    """`left - right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return check_int(left - right)
        if kind is float:
            return left - right
        if kind is UInt:
            return check_uint(int(left) - int(right))
        if kind is Duration:
            return Duration(left.nanoseconds - right.nanoseconds)
        if kind is Timestamp:
            return Duration(left.nanoseconds - right.nanoseconds)
    if kind is Timestamp and other is Duration:
        return Timestamp(left.nanoseconds - right.nanoseconds, left.offset)
    raise no_overload("_-_")


def multiply(left: Value, right: Value) -> Value:
    """`left * right`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return check_int(left * right)
        if kind is float:
            return left * right
        if kind is UInt:
            return check_uint(int(left) * int(right))
    raise no_overload("_*_")


def divide(left: Value, right: Value) -> Value:
    """`left / right`: integers towards zero."""
    kind = type(left)
    if kind is not type(right) or kind not in (int, UInt, float):
        raise no_overload("_/_")
    if kind is float:
        return _divide_doubles(left, right)
    if right == 0:
        raise CelError("division by zero")
    if kind is UInt:
        return UInt(int(left) // int(right))
    quotient = abs(left) // abs(right)
    return check_int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Value, right: Value) -> Value:
    """`left % right`, with the sign of the left."""
    kind = type(left)
    if kind is not type(right) or kind not in (int, UInt):
        raise no_overload("_%_")
    if right == 0:
        raise CelError("modulus by zero")
    if kind is UInt:
        return UInt(int(left) % int(right))
    if left == INT_MIN and right == -1:
        raise CelError("integer overflow")
    return int(math.copysign(1, left)) * (abs(left) % abs(right))


def negate(value: Value) -> Value:
    """`-value`."""
    kind = type(value)
    if kind is int:
        return check_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return Duration(-value.nanoseconds)
    raise no_overload("-_")


def invert(value: Value) -> bool:
    """`!value`."""
    if value is True:
        return False
    if value is False:
        return True
    raise no_overload("!_")


def contains(element: Value, container: Value) -> bool:
    """`element in container`."""
    kind = type(container)
    if kind is list:
        return any(is_equal(item, element) for item in container)
    if kind is dict:
        if type(element) is str:
            return element in container
        return find_key(container, element)[0]
    raise no_overload("@in")


def is_equal(left: Value, right: Value) -> bool:
    """Whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(left, right)
    except CelError:
        return False


def size(value: Value) -> int:
    """size(): code points of a text, bytes, elements or entries."""
    if type(value) in (str, list, dict, bytes):
        return len(value)
    raise no_overload("size")


_MISSING: Any = object()


def find(container: Value, key: Value, *, is_test: bool) -> Value:
    """The value at a key or an index; `_MISSING` where a test finds none."""
    if isinstance(container, dict):
        found = _find_entry(container, key)
        if found is not _MISSING or is_test:
            return found
        raise CelError(f"no such key: {format_key(key)}")
    if type(container) is list:
        index = _read_index(key)
        if 0 <= index < len(container):
            return container[index]
        if is_test:
            return _MISSING
        raise CelError(f"index out of bounds: {format_key(key)}")
    found = _MISSING
    if isinstance(container, Opaque):
        found = container.get_field(key, _MISSING)
        if found is _MISSING and not is_test:
            found = container.get_default(key, _MISSING)
    if found is not _MISSING or is_test:
        return found
    raise CelError(f"no such key: {format_key(key)}")


def _find_entry(container: dict[Value, Value], key: Value) -> Value:
    if type(key) is str:
        try:
            return container[key]
        except KeyError:
            return _MISSING
    has, value = find_key(container, key)
    return value if has else _MISSING


def _read_index(key: Value) -> int:
    kind = type(key)
    if kind is int or (kind is UInt and key <= INT_MAX):
        return int(key)
    if kind is float and abs(key) <= INT_MAX and key == int(key):
        return int(key)
    raise CelError(f"unsupported index type '{type_name(key)}' in list")


def format_key(key: Value) -> str:
    """A key as error messages show it."""
    if isinstance(key, bool):
        return str(key).lower()
    return str(key) if isinstance(key, str | int | float) else type_name(key)


_KEYS = (str, int, UInt, float, bool)


def check_key(key: Value) -> Value:
    """The key of an index operation, if it is of a type that can be one."""
    if type(key) in _KEYS:
        return key
    raise CelError(f"invalid qualifier type: {type_name(key)}")


def follow(
    value: Value, steps: Sequence[tuple[Value, bool]], *, is_test: bool, frame: Value = None
) -> Value:
    """Apply keys one after the other, `a.b[0].?c`: a key and whether it is optional for each.

    After an optional step, or on an optional value, missing keys give optional.none(), and the
    result is an optional. With `is_test` the last step is the presence test of has(). With a
    frame, keys may be callables that compute them.
    """
    is_optional = type(value) is Optional
    if is_optional:
        if not value.has_value:
            return False if is_test else value
        value = value.value
    last = len(steps) - 1
    for position, (key, optional) in enumerate(steps):
        is_optional = is_optional or optional
        if frame is not None and callable(key):
            key = check_key(key(frame))  # noqa: PLW2901 - the key itself
        tests = is_test and position == last
        value = find(value, key, is_test=is_optional or tests)
        if value is _MISSING:
            return False if is_test else Optional()
        if tests:
            return True
    return Optional((value,)) if is_optional else value


def iterate(value: Value) -> list[Value]:
    """The elements of a list, or the keys of a map, that a macro goes through."""
    if type(value) is list:
        return value
    if isinstance(value, dict):
        return [decode_key(key) for key in value]
    raise CelError(f"no such overload: {type_name(value)} cannot be iterated")


def iterate_pairs(value: Value) -> list[tuple[Value, Value]]:
    """Indexes and elements of a list, or keys and values of a map."""
    if type(value) is list:
        return list(enumerate(value))
    if isinstance(value, dict):
        return [(decode_key(key), item) for key, item in value.items()]
    raise CelError(f"no such overload: {type_name(value)} cannot be iterated")
