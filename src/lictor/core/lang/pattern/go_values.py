"""How Go parses and prints plain values, which decides what Kyverno treats as equal."""

import math
import re

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json, JsonObject

_MAX_DEPTH = 100
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_DECIMAL = re.compile(
    rf"[+-]?(?:(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
    r"|(?i:inf|infinity))|(?i:nan)"
)
_HEX_DIGITS = r"[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_HEXADECIMAL = re.compile(
    rf"[+-]?0[xX]_?(?:{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}"
)
_TYPES = {
    type(None): "<nil>",
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def name_type(value: Json) -> str:
    """Name the type as Go's `%T` does."""
    return _TYPES.get(type(value), type(value).__name__)


def print_value(value: Json, depth: int = 0) -> str:
    """Print a value as Go's `%v` does; raises EvaluationError if it is nested too deeply."""
    if depth > _MAX_DEPTH:
        raise EvaluationError("a value is nested too deeply to be compared")
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{' '.join(print_value(item, depth + 1) for item in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(_print_item(item, depth) for item in _sort_items(value))}]"
    return _print_scalar(value)


def _sort_items(value: JsonObject) -> list[tuple[str, Json]]:
    return sorted(value.items(), key=lambda item: str(item[0]))


def _print_item(item: tuple[str, Json], depth: int) -> str:
    return f"{item[0]}:{print_value(item[1], depth + 1)}"


def _print_scalar(value: Json) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return print_float(value)
    return print_integer(value) if isinstance(value, int) else str(value)


def print_integer(number: int) -> str:
    """Print all digits; beyond 64 bits JSON numbers are floats to Go."""
    if -(1 << 63) <= number < (1 << 63):
        return str(number)
    return print_float(to_float(number))


def to_float(number: float) -> float:
    """Convert a number of any size to a float, possibly infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def print_float(number: float) -> str:
    """Print a float as Go's `%v`: shortest digits, with an exponent from 1e+06 on."""
    if not math.isfinite(number):
        return _print_infinite(number)
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    sign, digits, exponent = _shortest(number)
    if -4 <= exponent < 6:
        return sign + _place_point(digits, exponent)
    return sign + _print_exponent(digits, exponent, "e")


def print_scientific(number: float) -> str:
    """Print a float as Go's `strconv.FormatFloat(number, 'E', -1, 64)`: `1.5E+00`."""
    if not math.isfinite(number):
        return _print_infinite(number)
    sign, digits, exponent = _shortest(number)
    return sign + _print_exponent(digits, exponent, "E")


def _print_infinite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "+Inf" if number > 0 else "-Inf"


def _shortest(number: float) -> tuple[str, str, int]:
    """Split into sign, shortest digits, and the exponent of the first digit."""
    sign = "-" if math.copysign(1, number) < 0 else ""
    mantissa, _, power = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) - 1 + int(power or "0")
    if whole == "0":
        exponent = int(power or "0") - (len(fraction) - len(fraction.lstrip("0"))) - 1
    digits = digits.rstrip("0")
    return (sign, digits, exponent) if digits else (sign, "0", 0)


def _place_point(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole


def _print_exponent(digits: str, exponent: int, letter: str) -> str:
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{digits[0]}{fraction}{letter}{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def print_comparable(value: Json) -> str | None:
    """Print a value for comparison with a text pattern: text, number, boolean; otherwise None."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    # Integers are floats in Kyverno's command line, too: 10 is `1E+01` to a wildcard.
    return print_scientific(to_float(value)) if isinstance(value, (int, float)) else None


def parse_float(text: str) -> float | None:
    """Parse a number as Go's `strconv.ParseFloat` does; None if it fails."""
    try:
        if _DECIMAL.fullmatch(text):
            number = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            number = float.fromhex(text.replace("_", ""))
        else:
            return None
    except (OverflowError, ValueError):
        return None
    if math.isinf(number) and "i" not in text.lower():
        return None
    return number
