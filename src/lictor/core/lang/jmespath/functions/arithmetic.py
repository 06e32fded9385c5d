"""Arithmetic with numbers, quantities such as `1Gi`, and durations such as `1h`."""

import math
from functools import reduce
from typing import TypeAlias

import msgspec

from lictor.core.lang.duration import NANOSECONDS, format_duration, parse_duration
from lictor.core.lang.go_number import format_general, is_number, settle_number
from lictor.core.lang.jmespath.functions.spec import FunctionSpec, define
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json

_INT64 = 1 << 63


class _Span(msgspec.Struct, frozen=True):
    """A duration in nanoseconds."""

    nanoseconds: int

    @property
    def seconds(self) -> float:
        whole = abs(self.nanoseconds) // NANOSECONDS
        rest = abs(self.nanoseconds) % NANOSECONDS
        return math.copysign(whole + rest / NANOSECONDS, self.nanoseconds)


_Operand: TypeAlias = float | Quantity | _Span


def _read_operand(value: Json) -> _Operand:
    if is_number(value):
        return float(value)
    if isinstance(value, str):
        try:
            return parse_quantity(value)
        except ValueError:
            pass
        try:
            return _Span(parse_duration(value))
        except ValueError:
            pass
    raise ValueError("invalid operand")


def _write(result: _Operand) -> Json:
    if isinstance(result, Quantity):
        return str(result)
    if isinstance(result, _Span):
        return format_duration(result.nanoseconds)
    return settle_number(result)


def _span(nanoseconds: float) -> _Span:
    whole = int(nanoseconds)
    if not -_INT64 <= whole < _INT64:
        raise ValueError("the duration is out of range")
    return _Span(whole)


def _mismatch() -> ValueError:
    return ValueError("Types mismatch")


def _check_divisor(divisor: float) -> None:
    if divisor == 0:
        raise ValueError("Zero divisor passed")


def _add(left_value: Json, right_value: Json) -> Json:
    left, right = _read_operand(left_value), _read_operand(right_value)
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return _write(left.add(right))
    if isinstance(left, _Span) and isinstance(right, _Span):
        return _write(_span(left.nanoseconds + right.nanoseconds))
    if isinstance(left, float) and isinstance(right, float):
        return _write(left + right)
    raise _mismatch()


def _subtract(left_value: Json, right_value: Json) -> Json:
    left, right = _read_operand(left_value), _read_operand(right_value)
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return _write(left.subtract(right))
    if isinstance(left, _Span) and isinstance(right, _Span):
        return _write(_span(left.nanoseconds - right.nanoseconds))
    if isinstance(left, float) and isinstance(right, float):
        return _write(left - right)
    raise _mismatch()


def _multiply(left_value: Json, right_value: Json) -> Json:
    left, right = _read_operand(left_value), _read_operand(right_value)
    if isinstance(left, float) and not isinstance(right, float):
        left, right = right, left
    if not isinstance(right, float):
        raise _mismatch()
    if isinstance(left, Quantity):
        return _write(left.multiply(parse_quantity(format_general(right))))
    if isinstance(left, _Span):
        return _write(_span(left.seconds * right * NANOSECONDS))
    return _write(left * right)


def _divide(left_value: Json, right_value: Json) -> Json:
    left, right = _read_operand(left_value), _read_operand(right_value)
    if isinstance(right, float):
        _check_divisor(right)
        return _divide_by_number(left, right)
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        divisor = right.approximate()
        _check_divisor(divisor)
        return _write(left.approximate() / divisor)
    if isinstance(left, _Span) and isinstance(right, _Span):
        _check_divisor(right.seconds)
        return _write(left.seconds / right.seconds)
    raise _mismatch()


def _divide_by_number(left: _Operand, right: float) -> Json:
    if isinstance(left, Quantity):
        return _write(left.divide(parse_quantity(format_general(right))))
    if isinstance(left, _Span):
        return _write(_span(left.seconds / right * NANOSECONDS))
    return _write(left / right)


def _modulo(left_value: Json, right_value: Json) -> Json:
    left, right = _read_operand(left_value), _read_operand(right_value)
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        rest = _remainder(_whole(left.approximate()), _whole(right.approximate()))
        return _write(Quantity(rest, 0, left.notation))
    if isinstance(left, _Span) and isinstance(right, _Span):
        return _write(_Span(_remainder(left.nanoseconds, right.nanoseconds)))
    if isinstance(left, float) and isinstance(right, float):
        return _remainder(_whole(left), _whole(right))
    raise _mismatch()


def _whole(number: float) -> int:
    if not number.is_integer() or abs(number) >= _INT64:
        raise ValueError("Non-integer argument(s) passed for modulo")
    return int(number)


def _remainder(dividend: int, divisor: int) -> int:
    _check_divisor(divisor)
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _sum(items: list[Json]) -> Json:
    if not items:
        raise ValueError("at least one element in the array is required")
    return reduce(_add, items)


def _round(number: float, digits: float) -> Json:
    if not float(digits).is_integer():
        raise ValueError("Non-integer argument(s) passed for round off")
    if digits < 0:
        raise ValueError("the number of digits is out of bounds")
    shift = 10.0 ** float(digits)
    scaled = number * shift
    if not math.isfinite(scaled):
        raise ValueError("the number of digits is out of bounds")
    whole = math.trunc(scaled)
    # Round half away from zero; Python's round would round half to even.
    if abs(scaled - whole) >= 0.5:
        whole += 1 if scaled > 0 else -1
    return settle_number(whole / shift)


ARITHMETIC: tuple[FunctionSpec, ...] = (
    define("add(any, any) any", _add, "adds two numbers, quantities or durations"),
    define(
        "divide(any, any) any",
        _divide,
        "divides numbers, quantities or durations by one of their kind or by a number, not zero",
    ),
    define(
        "modulo(any, any) any",
        _modulo,
        "returns the remainder of a division of integers, quantities or durations",
    ),
    define(
        "multiply(any, any) any", _multiply, "multiplies a number, quantity or duration by a number"
    ),
    define("round(number, number) number", _round, "rounds to a number of decimals"),
    define("subtract(any, any) any", _subtract, "subtracts the second value from the first"),
    define("sum(array) any", _sum, "adds up an array of numbers, quantities or durations"),
)
