"""Kubernetes' `quantity("2Gi")`: exact amounts, in a normal form so that `==` compares amounts."""

from functools import lru_cache

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function, member
from lictor.lang.quantity import Quantity, parse_quantity

_INT64 = range(-(2**63), 2**63)


@lru_cache(maxsize=4096)
def _read(payload: str) -> Quantity:
    mantissa, _, scale = payload.partition("e")
    try:
        return Quantity(int(mantissa), -int(scale))
    except ValueError:
        raise FunctionError("no such overload: not a quantity") from None


def _write(quantity: Quantity) -> str:
    mantissa, scale = quantity.mantissa, quantity.scale
    if not mantissa:
        return "0e0"
    while mantissa % 10 == 0:
        mantissa //= 10
        scale -= 1
    return f"{mantissa}e{-scale}"


@lru_cache(maxsize=4096)
def _make(text: str) -> str:
    try:
        return _write(parse_quantity(text))
    except ValueError as error:
        raise FunctionError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def _whole(payload: str) -> int | None:
    quantity = _read(payload)
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


def _compare(left: str, right: str) -> int:
    one, other = _read(left), _read(right)
    return (one > other) - (one < other)


def _sign(payload: str) -> int:
    mantissa = _read(payload).mantissa
    return (mantissa > 0) - (mantissa < 0)


def _add(payload: str, other: Quantity) -> str:
    return _write(_read(payload).add(other))


def _subtract(payload: str, other: Quantity) -> str:
    return _write(_read(payload).subtract(other))


OVERLOADS = (
    function("quantity", "string -> Quantity", _make),
    function("isQuantity", "string -> bool", _is_quantity),
    # Declared by Kubernetes as a function, not as a member: sign(q).
    function("sign", "Quantity -> int", _sign),
    member("isInteger", "Quantity -> bool", lambda q: _whole(q) is not None),
    member("asInteger", "Quantity -> int", _as_integer),
    member("asApproximateFloat", "Quantity -> double", lambda q: _read(q).approximate()),
    member("isGreaterThan", "Quantity, Quantity -> bool", lambda a, b: _read(a) > _read(b)),
    member("isLessThan", "Quantity, Quantity -> bool", lambda a, b: _read(a) < _read(b)),
    member("compareTo", "Quantity, Quantity -> int", _compare),
    member("add", "Quantity, Quantity -> Quantity", lambda a, b: _add(a, _read(b))),
    member("add", "Quantity, int -> Quantity", lambda a, n: _add(a, Quantity(n))),
    member("sub", "Quantity, Quantity -> Quantity", lambda a, b: _subtract(a, _read(b))),
    member("sub", "Quantity, int -> Quantity", lambda a, n: _subtract(a, Quantity(n))),
)  # fmt: skip
