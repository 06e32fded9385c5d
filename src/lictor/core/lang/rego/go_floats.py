"""Digits of numbers with a fraction, as Go's strconv.FormatFloat writes them."""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext


def _round_exponent(number: float, digits: int) -> tuple[str, int]:
    """A number of digits, rounded, and the power of ten of the first."""
    with localcontext(prec=1200, rounding=ROUND_HALF_EVEN):
        exact = Decimal(number)
        if exact == 0:
            return "0" * digits, 0
        text = f"{exact:.{digits - 1}e}"
    mantissa, _, exponent = text.partition("e")
    return mantissa.replace(".", ""), int(exponent)


def _write_exponent(digits: str, exponent: int, letter: str) -> str:
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}{letter}{exponent:+03d}"


def _shortest(number: float) -> tuple[str, int]:
    exact = Decimal(repr(number))
    if exact == 0:
        return "0", 0
    digits = "".join(str(digit) for digit in exact.normalize().as_tuple().digits)
    return digits, exact.adjusted()


def _write_e(number: float, precision: int, form: str) -> str:
    digits, exponent = (
        _shortest(number) if precision < 0 else _round_exponent(number, precision + 1)
    )
    return _write_exponent(digits, exponent, form)


def _write_f(number: float, precision: int, _form: str) -> str:
    if precision < 0:
        return f"{Decimal(repr(number)):f}"
    with localcontext(prec=1200 + precision):
        return f"{Decimal(number):.{precision}f}"


def _write_g(number: float, precision: int, form: str) -> str:
    if precision < 0:
        digits, exponent = _shortest(number)
        limit = 6
    else:
        limit = precision or 1
        digits, exponent = _round_exponent(number, limit)
        digits = digits.rstrip("0") or "0"
        if limit > len(digits) > exponent:
            limit = len(digits)
    if exponent < -4 or exponent >= limit:
        return _write_exponent(digits, exponent, "E" if form == "G" else "e")
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    rest = digits[exponent + 1 :]
    return f"{whole}.{rest}" if rest else whole


def _write_b(number: float, _precision: int, _form: str) -> str:
    mantissa, exponent = math.frexp(number)
    if number == 0:
        return "0p-1074"
    return f"{int(mantissa * (1 << 53))}p{exponent - 53:+d}"


def _write_hex(number: float, precision: int, form: str) -> str:
    fraction, exponent = math.frexp(number)
    mantissa = int(fraction * (1 << 53))
    exponent = exponent - 1 if number else 0
    digits = 13
    if 0 <= precision < digits:
        digits = precision
        size = 1 << (52 - 4 * precision)
        whole, rest = divmod(mantissa, size)
        # Round half to even.
        whole += rest * 2 > size or (rest * 2 == size and whole % 2 == 1)
        mantissa = whole
    lead, tail = divmod(mantissa, 1 << (4 * digits))
    if lead > 1:
        lead, tail, exponent = 1, 0, exponent + 1
    written = f"{tail:0{digits}x}" if digits else ""
    written = written.rstrip("0") if precision < 0 else written.ljust(precision, "0")
    text = f"0x{lead}{'.' if written else ''}{written}p{exponent:+03d}"
    return text.upper() if form == "X" else text


FLOAT_FORMS: dict[str, Callable[[float, int, str], str]] = {
    "e": _write_e, "E": _write_e, "f": _write_f, "g": _write_g, "G": _write_g, "b": _write_b,
    "x": _write_hex, "X": _write_hex,
}  # fmt: skip


def write_float(number: float, form: str, precision: int | None, *, sharp: bool) -> str:
    """The digits of a number in one of these formats; `sharp`: with the flag #."""
    if precision is None:
        precision = 6 if form in "feE" else -1
    digits = FLOAT_FORMS[form](number, precision, form)
    return _force_point(digits, form, precision) if sharp and form != "b" else digits


def _force_point(digits: str, form: str, precision: int) -> str:
    """A point, and the zeros that `g` omits."""
    marks = "pP" if form in "xX" else "eE"
    cut = next((at for at, each in enumerate(digits) if each in marks), len(digits))
    number, tail = digits[:cut], digits[cut:]
    missing = (6 if precision < 0 else precision) if form in "gGx" else 0
    significant = number.replace(".", "").lstrip("0")
    missing -= len(significant)
    if "." not in number:
        if number == "0":
            missing -= 1
        number += "."
    return number + "0" * max(missing, 0) + tail
