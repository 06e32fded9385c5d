"""Kubernetes' functions of values: quantities, versions, lists, ranges, durations.

Quantities and versions have a normal form, so that `==` compares amounts and ignores build data.
"""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from lictor.core.errors import FunctionError, TooLargeError
from lictor.core.lang.cel.rewriting import RANGE, REPLACED_METHODS
from lictor.core.lang.cel.types import Overload, function, member
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.lang.semver import SemVer, parse_version
from lictor.core.raw import Json

_MILLISECONDS = REPLACED_METHODS["getMilliseconds"]


def _of_moment(moment: datetime, _zone: str = "") -> int:
    return moment.microsecond // 1000


def _of_length(length: timedelta) -> int:
    whole = abs(length) // timedelta(milliseconds=1)
    return -whole if length < timedelta() else whole


MILLISECOND_OVERLOADS = (
    member(_MILLISECONDS, "timestamp -> int", _of_moment),
    member(_MILLISECONDS, "timestamp, string -> int", _of_moment),
    member(_MILLISECONDS, "duration -> int", _of_length),
)


_MOST_ELEMENTS = 20_000


# How many elements the evaluation that runs has made so far.
range_elements: ContextVar[int] = ContextVar("range_elements", default=0)


def _make_range(length: int) -> list[int]:
    if length < 0:
        raise FunctionError("lists.range: size must be non-negative")
    made = range_elements.get() + length
    range_elements.set(made)
    if made > _MOST_ELEMENTS:
        raise TooLargeError("operation cancelled: actual cost limit exceeded")
    return list(range(length))


RANGE_OVERLOADS = (function(f"lists.{RANGE}", "int -> list<int>", _make_range),)


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
    _check_comparable(values, "isSorted")
    return all(left <= right for left, right in pairwise(values))


def _sum(values: list[Json]) -> Json:
    _check_comparable(values, "sum")
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
        _check_comparable(values, name)
        if not values:
            raise FunctionError(f"{name} called on empty list")
        return choose(values)

    return extreme


def _check_comparable(values: list[Json], name: str) -> None:
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


LIST_OVERLOADS = (
    *_each(_COMPARABLE, lambda kind: member("isSorted", f"list<{kind}> -> bool", _is_sorted)),
    *_each(_SUMMABLE, lambda kind: member("sum", f"list<{kind}> -> {kind}", _sum)),
    *_each(_COMPARABLE, lambda kind: member("min", f"list<{kind}> -> {kind}", _min)),
    *_each(_COMPARABLE, lambda kind: member("max", f"list<{kind}> -> {kind}", _max)),
    member("indexOf", "list<~T>, ~T -> int", _index_of),
    member("lastIndexOf", "list<~T>, ~T -> int", _last_index_of),
)


_INT64_LIMIT = 1 << 63


def _read_version(text: str) -> SemVer:
    try:
        return parse_version(text)
    except ValueError as error:
        raise FunctionError(str(error)) from None


def _make_version(text: str, normalize: bool = False) -> str:  # noqa: FBT001, FBT002 - CEL has no keywords
    plain = _normalize(text) if normalize else text
    _read_version(plain)
    return plain.partition("+")[0]


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - as above
    try:
        _make_version(text, normalize)
    except FunctionError:
        return False
    return True


def _normalize(text: str) -> str:
    parts = [_trim_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise FunctionError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][: max(3, len(parts))])


def _trim_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    trimmed = part.lstrip("0")
    starts_with_digit = trimmed[:1].isascii() and trimmed[:1].isdigit()
    return trimmed if starts_with_digit else f"0{trimmed}"


def _compare_versions(left: str, right: str) -> int:
    one, other = _read_version(left), _read_version(right)
    return (one > other) - (one < other)


def _version_number(index: int, text: str) -> int:
    number: int = _read_version(text)[index]  # type: ignore[assignment]  # the first three are numbers
    # Go turns an unsigned into a signed number without looking.
    return number if number < _INT64_LIMIT else number - 2 * _INT64_LIMIT


SEMVER_OVERLOADS = (
    function("semver", "string -> Semver", _make_version),
    function("semver", "string, bool -> Semver", _make_version),
    function("isSemver", "string -> bool", _is_semver),
    function("isSemver", "string, bool -> bool", _is_semver),
    member("major", "Semver -> int", lambda version: _version_number(0, version)),
    member("minor", "Semver -> int", lambda version: _version_number(1, version)),
    member("patch", "Semver -> int", lambda version: _version_number(2, version)),
    member("isGreaterThan", "Semver, Semver -> bool", lambda a, b: _compare_versions(a, b) > 0),
    member("isLessThan", "Semver, Semver -> bool", lambda a, b: _compare_versions(a, b) < 0),
    member("compareTo", "Semver, Semver -> int", _compare_versions),
)


@lru_cache(maxsize=4096)
def _read_quantity(payload: str) -> Quantity:
    mantissa, _, scale = payload.partition("e")
    try:
        return Quantity(int(mantissa), -int(scale))
    except ValueError:
        raise FunctionError("no such overload: not a quantity") from None


def _write_quantity(quantity: Quantity) -> str:
    mantissa, scale = quantity.mantissa, quantity.scale
    if not mantissa:
        return "0e0"
    while mantissa % 10 == 0:
        mantissa //= 10
        scale -= 1
    return f"{mantissa}e{-scale}"


@lru_cache(maxsize=4096)
def _make_quantity(text: str) -> str:
    try:
        return _write_quantity(parse_quantity(text))
    except ValueError as error:
        raise FunctionError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def _whole(payload: str) -> int | None:
    quantity = _read_quantity(payload)
    # A scale above zero means decimals, as the normal form has no trailing zeros.
    if quantity.scale > 0 or quantity.scale < -18:
        return None
    number = quantity.mantissa * int(10**-quantity.scale)
    return number if number in _INT64 else None


def _as_integer(payload: str) -> int:
    number = _whole(payload)
    if number is None:
        raise FunctionError("cannot convert value to integer")
    return number


def _compare_quantities(left: str, right: str) -> int:
    one, other = _read_quantity(left), _read_quantity(right)
    return (one > other) - (one < other)


def _sign(payload: str) -> int:
    mantissa = _read_quantity(payload).mantissa
    return (mantissa > 0) - (mantissa < 0)


def _add(payload: str, other: Quantity) -> str:
    return _write_quantity(_read_quantity(payload).add(other))


def _subtract(payload: str, other: Quantity) -> str:
    return _write_quantity(_read_quantity(payload).subtract(other))


QUANTITY_OVERLOADS = (
    function("quantity", "string -> Quantity", _make_quantity),
    function("isQuantity", "string -> bool", _is_quantity),
    # Declared by Kubernetes as a function, not as a member: sign(q).
    function("sign", "Quantity -> int", _sign),
    member("isInteger", "Quantity -> bool", lambda q: _whole(q) is not None),
    member("asInteger", "Quantity -> int", _as_integer),
    member("asApproximateFloat", "Quantity -> double", lambda q: _read_quantity(q).approximate()),
    member(
        "isGreaterThan", "Quantity, Quantity -> bool", lambda a, b: _compare_quantities(a, b) > 0
    ),
    member("isLessThan", "Quantity, Quantity -> bool", lambda a, b: _compare_quantities(a, b) < 0),
    member("compareTo", "Quantity, Quantity -> int", _compare_quantities),
    member("add", "Quantity, Quantity -> Quantity", lambda a, b: _add(a, _read_quantity(b))),
    member("add", "Quantity, int -> Quantity", lambda a, n: _add(a, Quantity(n))),
    member("sub", "Quantity, Quantity -> Quantity", lambda a, b: _subtract(a, _read_quantity(b))),
    member("sub", "Quantity, int -> Quantity", lambda a, n: _subtract(a, Quantity(n))),
)  # fmt: skip
