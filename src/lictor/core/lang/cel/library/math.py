"""Functions of numbers, and base64; Kyverno has them, Kubernetes does not."""

import base64
import binascii
import math
import re
from collections.abc import Callable

from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.functions import Implementation, Library
from lictor.core.lang.cel.values import INT_MIN, UINT_MAX, UInt, Value, compare

_KINDS = ("double", "int", "uint")
_MIXED = ("int, uint", "int, double", "double, int", "double, uint", "uint, int", "uint, double")


def _choose(name: str, replaced: int) -> Callable[[Value, Value], Value]:
    def run(first: Value, second: Value) -> Value:
        return second if compare(first, second, name) == replaced else first

    return run


def _choose_in_list(name: str, replaced: int) -> Implementation:
    pair = _choose(name, replaced)

    def run(numbers: list[Value]) -> Value:
        if not numbers:
            raise CelError(f"{name}(list) argument must not be empty")
        found = numbers[0]
        for number in numbers[1:]:
            found = pair(found, number)
        if type(found) not in (int, UInt, float):
            raise no_overload(name)
        return found

    return run


def _extreme(name: str, replaced: int) -> list[tuple[str, Implementation]]:
    pair = _choose(name, replaced)
    return [
        *[(f"{name}({kind}) -> {kind}", lambda value: value) for kind in _KINDS],
        *[(f"{name}({kind}, {kind}) -> {kind}", pair) for kind in _KINDS],
        *[(f"{name}({kinds}) -> dyn", pair) for kinds in _MIXED],
        *[(f"{name}(list({k})) -> {k}", _choose_in_list(name, replaced)) for k in _KINDS],
    ]


def _round(number: float) -> float:
    """To the nearest, halves away from zero."""
    if not math.isfinite(number):
        return number
    whole = math.floor(abs(number))
    rounded = whole + 1 if abs(number) - whole >= 0.5 else whole
    return math.copysign(float(rounded), number)


def _keep_special(read: Callable[[float], int]) -> Implementation:
    def run(number: float) -> float:
        if not math.isfinite(number):
            return number
        return math.copysign(float(read(number)), number)

    return run


def _abs_int(number: int) -> int:
    if number == INT_MIN:
        raise CelError("integer overflow")
    return abs(number)


def _sign_double(number: float) -> float:
    return number if math.isnan(number) else float((number > 0) - (number < 0))


def _sqrt(number: float) -> float:
    value = float(number)
    return math.sqrt(value) if value >= 0 or math.isnan(value) else math.nan


def _to_int(number: int) -> int:
    number &= UINT_MAX
    return number - (1 << 64) if number >> 63 else number


def _shift(name: str, convert: Callable[[int], Value], *, left: bool) -> Implementation:
    def run(value: int, bits: int) -> Value:
        if bits < 0:
            raise CelError(f"math.{name}() negative offset: {bits}")
        if bits > 63:
            return convert(0)
        number = int(value) & UINT_MAX
        return convert((number << bits if left else number >> bits) & UINT_MAX)

    return run


def _bits() -> list[tuple[str, Implementation]]:
    pairs: dict[str, Callable[[int, int], int]] = {
        "bitAnd": lambda a, b: int(a) & int(b),
        "bitOr": lambda a, b: int(a) | int(b),
        "bitXor": lambda a, b: int(a) ^ int(b),
    }
    rows: list[tuple[str, Implementation]] = []
    for name, pair in pairs.items():
        rows.append((f"math.{name}(int, int) -> int", pair))
        rows.append((f"math.{name}(uint, uint) -> uint", lambda a, b, pair=pair: UInt(pair(a, b))))
    rows.append(("math.bitNot(int) -> int", lambda value: ~value))
    rows.append(("math.bitNot(uint) -> uint", lambda value: UInt(UINT_MAX - int(value))))
    for name in ("bitShiftLeft", "bitShiftRight"):
        left = name == "bitShiftLeft"
        rows.append((f"math.{name}(int, int) -> int", _shift(name, _to_int, left=left)))
        rows.append((f"math.{name}(uint, int) -> uint", _shift(name, UInt, left=left)))
    return rows


MATH = Library(
    *_extreme("math.@min", 1),
    *_extreme("math.@max", -1),
    ("math.ceil(double) -> double", _keep_special(math.ceil)),
    ("math.floor(double) -> double", _keep_special(math.floor)),
    ("math.round(double) -> double", _round),
    ("math.trunc(double) -> double", _keep_special(math.trunc)),
    ("math.isInf(double) -> bool", math.isinf),
    ("math.isNaN(double) -> bool", math.isnan),
    ("math.isFinite(double) -> bool", math.isfinite),
    ("math.abs(double) -> double", abs),
    ("math.abs(int) -> int", _abs_int),
    ("math.abs(uint) -> uint", lambda number: number),
    ("math.sign(double) -> double", _sign_double),
    ("math.sign(int) -> int", lambda number: (number > 0) - (number < 0)),
    ("math.sign(uint) -> uint", lambda number: UInt(number > 0)),
    *_bits(),
    *[(f"math.sqrt({kind}) -> double", _sqrt) for kind in _KINDS],
)


def _round_to(number: float, digits: int) -> float:
    try:
        shift = 10.0**digits
    except OverflowError:
        shift = math.inf
    shifted = _round(number * shift)
    if shift == 0:
        return math.nan if shifted == 0 or math.isnan(shifted) else math.copysign(math.inf, shifted)
    return shifted / shift


ROUND = Library(("math.round(double, int) -> double", _round_to))

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _decode(text: str) -> bytes:
    """With padding or without; line breaks do not count."""
    plain = text.replace("\r", "").replace("\n", "")
    bare = plain.rstrip("=")
    padding = len(plain) - len(bare)
    needed = -len(bare) % 4
    if not _BASE64.fullmatch(plain) or needed == 3 or padding not in (0, needed):
        raise CelError("illegal base64 data at input byte 0")
    try:
        return base64.b64decode(bare + "=" * needed)
    except (binascii.Error, ValueError):
        raise CelError("illegal base64 data at input byte 0") from None


ENCODERS = Library(
    ("base64.decode(string) -> bytes", _decode),
    ("base64.encode(bytes) -> string", lambda data: base64.b64encode(data).decode()),
)
