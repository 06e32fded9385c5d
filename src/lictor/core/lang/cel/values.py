"""Values that JSON lacks, equality and order of all values, and the keys of maps."""

import math
from collections.abc import Hashable
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec.structs import astuple

from lictor.core.lang.cel.faults import CelError, no_overload

# What an expression computes with: plain JSON, and the classes of this module.
Value: TypeAlias = Any

INT_MIN, INT_MAX, UINT_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
NANOSECONDS = 1_000_000_000
# 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999999Z.
MIN_TIME = -62135596800 * NANOSECONDS
MAX_TIME = 253402300800 * NANOSECONDS - 1


class UInt(int):
    """An unsigned integer; JSON has none."""

    __slots__ = ()


class Opaque(msgspec.Struct, eq=False):
    """A value without JSON counterpart; subclasses compare themselves."""

    type_name: ClassVar[str] = "opaque"

    def equals(self, other: Value) -> bool:
        """As `==` of CEL; CelError where CEL has no such comparison."""
        return self is other

    def get_field(self, key: Value, missing: Any) -> Value:  # noqa: ARG002 - for subclasses
        return missing

    def get_default(self, key: Value, missing: Any) -> Value:  # noqa: ARG002 - for subclasses
        """The value of a field that is not set."""
        return missing

    @property
    def is_zero(self) -> bool:
        return False


class StrictOpaque(Opaque):
    """A value of a library; there is no comparison with values of other types."""

    def equals(self, other: Value) -> bool:
        if type(other) is not type(self):
            raise no_overload()
        return astuple(self) == astuple(other)


class Timestamp(Opaque):
    """A moment, in nanoseconds since 1970, and the offset in seconds it was written with."""

    nanoseconds: int
    offset: int = 0
    type_name: ClassVar[str] = "google.protobuf.Timestamp"

    def __post_init__(self) -> None:
        if not MIN_TIME <= self.nanoseconds <= MAX_TIME:
            raise CelError("timestamp overflow")

    def equals(self, other: Value) -> bool:
        return type(other) is Timestamp and self.nanoseconds == other.nanoseconds


class Duration(Opaque):
    """A length of time, in nanoseconds."""

    nanoseconds: int
    type_name: ClassVar[str] = "google.protobuf.Duration"

    def __post_init__(self) -> None:
        if not INT_MIN <= self.nanoseconds <= INT_MAX:
            raise CelError("duration overflow")

    def equals(self, other: Value) -> bool:
        return type(other) is Duration and self.nanoseconds == other.nanoseconds


class Optional(Opaque):
    """A value that may be missing."""

    content: tuple[Any, ...] = ()
    type_name: ClassVar[str] = "optional_type"

    @property
    def has_value(self) -> bool:
        return bool(self.content)

    @property
    def value(self) -> Value:
        if not self.content:
            raise CelError("optional.none() dereference")
        return self.content[0]

    def equals(self, other: Value) -> bool:
        if type(other) is not Optional:
            return False
        if not self.content or not other.content:
            return self.has_value == other.has_value
        return equal(self.content[0], other.content[0])


NONE = Optional()


class TypeValue(Opaque):
    """A type as a value, by its name."""

    name: str
    type_name: ClassVar[str] = "type"

    def equals(self, other: Value) -> bool:
        return type(other) is TypeValue and self.name == other.name


class OtherKey:
    """A key that is neither a string nor an integer; a dict would mistake `true` for 1."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def _identity(self) -> Value:
        value = self.value
        if type(value) in (bool, UInt, float, type(None)):
            return value
        return value.nanoseconds if isinstance(value, Timestamp | Duration) else id(value)

    def __hash__(self) -> int:
        return hash((type(self.value), self._identity()))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is OtherKey
            and type(other.value) is type(self.value)
            and other._identity() == self._identity()
        )


_TYPE_NAMES: dict[type, str] = {
    bool: "bool", int: "int", UInt: "uint", float: "double", str: "string", bytes: "bytes",
    list: "list", dict: "map", type(None): "null_type",
}  # fmt: skip


def type_name(value: Value) -> str:
    """The name of a value's type, as type() shows it."""
    name = _TYPE_NAMES.get(type(value))
    return name if name is not None else str(value.type_name)


def equal(left: Value, right: Value, seen: set[tuple[int, int]] | None = None) -> bool:
    """`==`: numbers by value, lists and maps by content, other types never across.

    `seen` has the compared pairs: shared parts that are compared each time take exponential time.
    """
    kind, other = type(left), type(right)
    if kind is str or other is str:
        return bool(kind is other and left == right)
    if left is None or right is None or kind is bool or other is bool:
        return left is right
    if kind is list or kind is dict:
        return other is kind and len(left) == len(right) and _equal_parts(left, right, seen)
    if isinstance(left, int | float):
        if kind is float or other is float:
            # As cel-go, which compares doubles even where that loses digits.
            return isinstance(right, int | float) and float(left) == float(right)
        return isinstance(right, int) and left == right
    if kind is bytes:
        return other is bytes and bool(left == right)
    return bool(left.equals(right))


def _equal_parts(left: Value, right: Value, seen: set[tuple[int, int]] | None) -> bool:
    pair = id(left), id(right)
    if seen is None:
        seen = set()
    elif pair in seen:
        return True
    seen.add(pair)
    if type(left) is list:
        return all(_equal_inside(*items, seen) for items in zip(left, right, strict=True))
    return _equal_maps(left, right, seen)


def _equal_maps(
    left: dict[Value, Value], right: dict[Value, Value], seen: set[tuple[int, int]]
) -> bool:
    for key, value in left.items():
        other = right.get(key, right)
        if other is right:
            found, other = find_key(right, decode_key(key))
            if not found:
                return False
        if not _equal_inside(value, other, seen):
            return False
    return True


def _equal_inside(left: Value, right: Value, seen: set[tuple[int, int]]) -> bool:
    """Inside lists and maps, what cannot be compared does not make them unequal."""
    try:
        return equal(left, right, seen)
    except CelError:
        return True


def encode_key(key: Value) -> Value:
    """The key of a dict for a key of a map; bytes cannot be one."""
    if type(key) is bytes:
        raise CelError("unsupported key type: bytes")
    return key if type(key) is str or type(key) is int else OtherKey(key)


def decode_key(key: Value) -> Value:
    """The key of a map for a key of its dict."""
    return key.value if type(key) is OtherKey else key


def find_key(container: dict[Value, Value], key: Value) -> tuple[bool, Value]:
    """Whether a map has a key, and its value; numbers are equal across their types."""
    for candidate in _candidates(key):
        if candidate in container:
            return True, container[candidate]
    return False, None


def _candidates(key: Value) -> tuple[Value, ...]:
    kind = type(key)
    if kind is str:
        return (key,)
    if kind is bool:
        return (OtherKey(key),)
    if kind is int:
        return (key, OtherKey(UInt(key))) if key >= 0 else (key,)
    if kind is UInt:
        return (OtherKey(key), int(key)) if key <= INT_MAX else (OtherKey(key),)
    if kind is float and math.isfinite(key) and key == int(key):
        whole = int(key)
        found: tuple[Value, ...] = (whole,) if INT_MIN <= whole <= INT_MAX else ()
        return (
            OtherKey(key),
            *found,
            *((OtherKey(UInt(whole)),) if 0 <= whole <= UINT_MAX else ()),
        )
    return (OtherKey(key),)


def freeze(value: Value) -> Hashable:
    """A key that is the same for equal values; TypeError for values that compare themselves."""
    kind = type(value)
    if kind is list:
        return "list", tuple(map(freeze, value))
    if kind is dict:
        return "map", frozenset((freeze(decode_key(k)), freeze(v)) for k, v in value.items())
    if kind is bool:
        return "bool", value
    if kind is Timestamp or kind is Duration:
        return kind, value.nanoseconds
    if isinstance(value, Opaque):
        raise TypeError(value.type_name)
    # NaN is not even equal to itself.
    return object() if value != value else value  # noqa: PLR0124


_NUMBERS = (int, float, UInt)


def compare(left: Value, right: Value, name: str) -> int:
    """Order of two values: -1, 0 or 1; CelError where they have none."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:  # noqa: PLR0124 - NaN
            raise CelError("NaN values cannot be ordered")
        if kind is float or other is float:
            return _compare_doubles(left, right)
        return int(left > right) - int(left < right)
    if kind is not other:
        raise no_overload(name)
    if kind is str:
        # The order of code points is that of bytes in UTF-8.
        return int(left > right) - int(left < right)
    if kind is bool or kind is bytes:
        return int(left > right) - int(left < right)
    if kind is Timestamp or kind is Duration:
        return int(left.nanoseconds > right.nanoseconds) - int(left.nanoseconds < right.nanoseconds)
    raise no_overload(name)


def _compare_doubles(left: float, right: float) -> int:
    """As cel-go: integers become doubles first, unless the double is out of their range."""
    first, second = float(left), float(right)
    return int(first > second) - int(first < second)


def is_zero(value: Value) -> bool:
    """Whether a value is the zero of its type, for optional.ofNonZeroValue()."""
    if isinstance(value, Timestamp):
        return value.nanoseconds == MIN_TIME
    if isinstance(value, Duration):
        return value.nanoseconds == 0
    if isinstance(value, Opaque):
        return value.is_zero
    return not value
