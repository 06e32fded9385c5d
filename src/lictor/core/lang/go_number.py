"""Numbers, quoted texts and JSON as Go reads and writes them."""

import json
import math
import re
import struct
from decimal import Decimal

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.raw import Json

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip
_TRANSLATION = {ord(c): e for c, e in _ESCAPES.items()}
_TRANSLATION.update({c: f"\\u{c:04x}" for c in range(0x20) if c not in _TRANSLATION})
_MAX_DEPTH = 500
# Values may share parts, so that a small one can represent endless text.
_MAX_PARTS = 2_000_000
_EXACT = 1 << 53


def dump_go_json(value: Json) -> str:
    """Write `value` compactly; raise EvaluationError for what is not JSON."""
    parts: list[str] = []
    _write(value, parts, _MAX_DEPTH)
    return "".join(parts)


def _write(value: Json, parts: list[str], depth: int) -> None:
    if depth == 0 or len(parts) > _MAX_PARTS:
        raise TooLargeError("the value is nested too deeply or too large")
    if isinstance(value, str):
        parts.append(f'"{value.translate(_TRANSLATION)}"')
    elif value is None:
        parts.append("null")
    elif value is True or value is False:
        parts.append("true" if value else "false")
    elif isinstance(value, (int, float)):
        parts.append(_write_number(value))
    elif isinstance(value, dict):
        _write_object(value, parts, depth)
    elif isinstance(value, (list, tuple)):
        parts.append("[")
        for index, item in enumerate(value):
            if index:
                parts.append(",")
            _write(item, parts, depth - 1)
        parts.append("]")
    else:
        raise EvaluationError(f"{type(value).__name__} is not JSON")


def _write_object(value: dict[str, Json], parts: list[str], depth: int) -> None:
    parts.append("{")
    for index, key in enumerate(sorted(value, key=str)):
        if index:
            parts.append(",")
        parts.append(f'"{str(key).translate(_TRANSLATION)}":')
        _write(value[key], parts, depth - 1)
    parts.append("}")


def _write_number(value: float) -> str:
    if type(value) is int and abs(value) < _EXACT:
        return str(value)
    try:
        return format_number(value)
    except ValueError as error:
        raise EvaluationError(str(error)) from error


GO_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def quote_go(text: str) -> str:
    """A text in double quotes, as strconv.Quote and `%q` of Go write it."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    short = GO_ESCAPES.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_LARGEST_PLAIN = 1e21
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_FLOAT = re.compile(
    r"[+-]?(?:[0-9](?:_?[0-9])*(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9](?:_?[0-9])*)"
    r"(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)
_HEX_FLOAT = re.compile(
    r"[+-]?0[xX]_?(?=[0-9a-fA-F.])(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?(?:\.(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?)?"
    r"[pP][+-]?[0-9](?:_?[0-9])*"
)
_SINGLE_LIMIT = 1 << 24


NUMBERS = frozenset((int, float))


def is_number(value: Json) -> bool:
    """Whether the value is a JSON number; booleans are not."""
    return type(value) in NUMBERS


def settle_number(number: float) -> int | float:
    """Convert to int if Go would print no exponent; raises ValueError for NaN and infinity."""
    if isinstance(number, int):
        return number if -_EXACT <= number <= _EXACT else settle_number(_to_float(number))
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a JSON number")
    if number.is_integer() and abs(number) < _LARGEST_PLAIN:
        # Beyond 2^53 Go pads the shortest digits with zeros instead of writing all exact ones.
        return int(number) if abs(number) <= _EXACT else int(Decimal(repr(number)))
    return number


def _to_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError as error:
        raise ValueError("the number is out of range") from error


def decode_json(text: str) -> Json:
    """Decode JSON strictly; raises ValueError for anything else, also NaN and overflows."""
    try:
        value = json.loads(
            text, parse_int=_read_int, parse_float=_read_float, parse_constant=_refuse
        )
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    return replace_surrogates(value)


def replace_surrogates(value: Json) -> Json:
    """Replace lone surrogates with U+FFFD, as Go does."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(k): replace_surrogates(v) for k, v in value.items()}
    return value


def parse_number(text: str) -> int | float | None:
    """Parse a number as strconv.ParseFloat does; None if it would fail."""
    plain = text.replace("_", "")
    try:
        if _FLOAT.fullmatch(text):
            # Underscores pass this test only to be checked: Go allows them between digits.
            return _in_range(float(plain))
        if _HEX_FLOAT.fullmatch(text):
            return _in_range(float.fromhex(plain))
    except (ValueError, OverflowError):
        return None
    if text.lstrip("+-").lower() in ("inf", "infinity", "nan"):
        raise ValueError(f"{text} is not a JSON number")
    return None


def format_number(number: float) -> str:
    """Write a number as Go's JSON does: an exponent only below 1e-6 and from 1e21 on."""
    settled = settle_number(number)
    if isinstance(settled, int) or 1e-6 <= abs(settled) < _LARGEST_PLAIN:
        return f"{Decimal(repr(settled)):f}"
    mantissa, _, exponent = f"{Decimal(repr(settled)):e}".partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def format_general(number: float) -> str:
    """Write a number as Go's `%v`: the fewest digits, with an exponent from a million on."""
    exact = Decimal(repr(number)).normalize()
    if exact == 0 or -4 <= exact.adjusted() < 6:
        return f"{exact:f}"
    mantissa, _, exponent = f"{exact:e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


def format_single(number: float) -> str:
    """Format as a 32-bit float without exponent: for patterns and expressions."""
    if isinstance(number, int) and -_SINGLE_LIMIT <= number <= _SINGLE_LIMIT:
        return str(number)
    try:
        packed = struct.pack("f", float(number))
    except OverflowError:
        return "+Inf" if number > 0 else "-Inf"
    single: float = struct.unpack("f", packed)[0]
    for digits in range(1, 10):
        text = f"{single:.{digits}g}"
        if struct.pack("f", float(text)) == packed:
            return f"{Decimal(text):f}"
    return f"{Decimal(repr(single)):f}"


def _in_range(number: float) -> int | float | None:
    return settle_number(number) if math.isfinite(number) else None


def _read_int(text: str) -> int | float:
    # Longer than any float before the exponent: out of range, and slow to parse.
    if len(text) > 400:
        raise ValueError("the number is out of range")
    return settle_number(int(text))


def _read_float(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is out of range")
    return settle_number(number)


def _refuse(text: str) -> Json:
    raise ValueError(f"invalid character {text[0]!r} looking for beginning of value")
