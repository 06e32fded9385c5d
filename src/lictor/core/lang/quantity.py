"""Resource quantities such as `1500m` or `2Gi`, parsed and formatted exactly as in Kubernetes."""

from decimal import Decimal
from enum import StrEnum
from functools import lru_cache, total_ordering
from typing import Self

import msgspec

_NANO_SCALE = 9
_INT64_MAX = (1 << 63) - 1
_INT64_DIGITS = 18
_BINARY_DIGITS = 14
# Kubernetes has no limit; a larger exponent would only fill memory with zeros.
_MAX_EXPONENT = 4096
_MAX_TEXT = 4096

_SUFFIX_LETTERS = frozenset("eEinumkKMGTP")
_DIGITS = frozenset("0123456789")
_DECIMAL_SUFFIXES = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()} | {0: ""}

_WRONG_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class Notation(StrEnum):
    """The suffixes a quantity was written with, used again to format it."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    EXPONENT = "DecimalExponent"


@total_ordering
class Quantity(msgspec.Struct, frozen=True, eq=False):
    """The exact number `mantissa * 10 ** -scale` and its notation."""

    mantissa: int
    scale: int = 0
    notation: Notation = Notation.DECIMAL_SI

    @property
    def value(self) -> Decimal:
        return Decimal(f"{self.mantissa}E{-self.scale}")

    def add(self, other: "Quantity") -> "Quantity":
        return self._combine(other, 1)

    def subtract(self, other: "Quantity") -> "Quantity":
        return self._combine(other, -1)

    def multiply(self, factor: "Quantity") -> "Quantity":
        return Quantity(self.mantissa * factor.mantissa, self.scale + factor.scale, self.notation)

    def divide(self, divisor: "Quantity") -> "Quantity":
        """Keep as many decimals as the more precise operand; the rest is truncated."""
        scale = max(self.scale, divisor.scale)
        shift = scale - self.scale + divisor.scale
        dividend = self.mantissa * 10 ** max(shift, 0)
        by = divisor.mantissa * 10 ** max(-shift, 0)
        result = abs(dividend) // abs(by)
        return Quantity(-result if (dividend < 0) != (by < 0) else result, scale, self.notation)

    def approximate(self) -> float:
        """The nearest float as Kubernetes computes it, or infinity."""
        try:
            return float(self.mantissa) * float(f"1e{-self.scale}")
        except OverflowError:
            return float("inf") if self.mantissa > 0 else float("-inf")

    def _combine(self, other: "Quantity", sign: int) -> "Quantity":
        notation = self.notation if self.mantissa else other.notation
        left, right = _align(self, other)
        return Quantity(left + sign * right, max(self.scale, other.scale), notation)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        left, right = _align(self, other)
        return left == right

    def __lt__(self, other: Self) -> bool:
        left, right = _align(self, other)
        return left < right

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        if not self.mantissa:
            return "0"
        if self.notation is Notation.BINARY_SI:
            whole = _whole_number(self)
            # Small and fractional quantities would lose precision in binary units.
            if whole is not None and abs(whole) >= 1024:
                return _write_binary(whole)
        return _write_decimal(self)


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Parse a quantity; raises ValueError if Kubernetes would reject it."""
    if not text or len(text) > _MAX_TEXT:
        raise ValueError(_WRONG_FORMAT)
    sign, whole, fraction, suffix = _split(text)
    base, exponent, notation = _read_suffix(suffix)
    if base == 2:
        return _read_binary(sign, whole, fraction, exponent)
    scale = len(fraction) - exponent
    mantissa = int(whole + fraction)
    if scale <= _NANO_SCALE and len(whole) + len(fraction) <= _INT64_DIGITS:
        return Quantity(sign * mantissa, scale, notation)
    return Quantity(sign * _round_to_nano(mantissa, scale), _NANO_SCALE, notation)


def _split(text: str) -> tuple[int, str, str, str]:
    """Split into sign, integer digits, fraction digits and suffix; `.` counts as zero."""
    sign = -1 if text[0] == "-" else 1
    start = 1 if text[0] in "+-" else 0
    while start < len(text) and text[start] == "0":
        start += 1
    end = _skip(text, start, _DIGITS)
    whole, fraction = text[start:end] or "0", ""
    if text[end : end + 1] == ".":
        start = end + 1
        end = _skip(text, start, _DIGITS)
        fraction = text[start:end]
    suffix = text[end:]
    tail = _skip(suffix, 0, _SUFFIX_LETTERS)
    if suffix[tail : tail + 1] in ("+", "-"):
        tail += 1
    if _skip(suffix, tail, _DIGITS) != len(suffix):
        raise ValueError(_WRONG_FORMAT)
    return sign, whole, fraction, suffix


def _skip(text: str, start: int, members: frozenset[str]) -> int:
    while start < len(text) and text[start] in members:
        start += 1
    return start


def _read_suffix(suffix: str) -> tuple[int, int, Notation]:
    exponent = _DECIMAL_SUFFIXES.get(suffix)
    if exponent is not None:
        return 10, exponent, Notation.DECIMAL_SI
    exponent = _BINARY_SUFFIXES.get(suffix)
    if exponent is not None:
        return 2, exponent, Notation.BINARY_SI
    digits = suffix[1:]
    if suffix[0] not in "eE" or not digits.lstrip("+-") or digits.strip("+-0123456789"):
        raise ValueError("unable to parse quantity's suffix")
    exponent = int(digits)
    if abs(exponent) > _MAX_EXPONENT:
        raise ValueError("the exponent of the quantity is too large")
    return 10, exponent, Notation.EXPONENT


def _read_binary(sign: int, whole: str, fraction: str, exponent: int) -> Quantity:
    mantissa = int(whole + fraction) << exponent
    short = len(whole) + int(exponent * 3 / 10) <= _BINARY_DIGITS
    if not fraction and short and mantissa <= _INT64_MAX:
        return Quantity(sign * mantissa, 0, Notation.BINARY_SI)
    unit = 10**_NANO_SCALE
    nano = min(_round_to_nano(mantissa, len(fraction)), _INT64_MAX * unit)
    notation = Notation.DECIMAL_SI if 0 < nano < unit else Notation.BINARY_SI
    return Quantity(sign * nano, _NANO_SCALE, notation)


def _round_to_nano(mantissa: int, scale: int) -> int:
    """Round away from zero beyond nano, so that a nonzero amount never becomes zero."""
    if scale <= _NANO_SCALE:
        return mantissa * int(10 ** (_NANO_SCALE - scale))
    return -(-mantissa // int(10 ** (scale - _NANO_SCALE)))


def _align(left: Quantity, right: Quantity) -> tuple[int, int]:
    if left.scale == right.scale:
        return left.mantissa, right.mantissa
    if left.scale < right.scale:
        return left.mantissa * 10 ** (right.scale - left.scale), right.mantissa
    return left.mantissa, right.mantissa * 10 ** (left.scale - right.scale)


def _whole_number(quantity: Quantity) -> int | None:
    if quantity.scale <= 0:
        return quantity.mantissa * int(10**-quantity.scale)
    whole, rest = divmod(quantity.mantissa, 10**quantity.scale)
    return None if rest else whole


def _write_binary(whole: int) -> str:
    exponent = 0
    while whole % 1024 == 0:
        whole //= 1024
        exponent += 10
    return f"{whole}{_BINARY_NAMES.get(exponent, '')}"


def _write_decimal(quantity: Quantity) -> str:
    mantissa, exponent = quantity.mantissa, -quantity.scale
    while mantissa % 10 == 0:
        mantissa //= 10
        exponent += 1
    while exponent % 3:
        mantissa *= 10
        exponent -= 1
    if quantity.notation is Notation.EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    # Beyond the named suffixes Kubernetes writes none at all.
    return f"{mantissa}{_DECIMAL_NAMES.get(exponent, '')}"
