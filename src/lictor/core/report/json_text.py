"""JSON text as Kyverno's commands print it: sorted keys, HTML escaped, numbers as doubles."""

import math
import re
from decimal import Decimal

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip
_TRANSLATION = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **{code: "\\ufffd" for code in range(0xD800, 0xE000)},
    **{ord(char): escape for char, escape in _ESCAPES.items()},
}
# Everything else is written as it is. To translate a text costs several times as much.
_SPECIAL = re.compile(r"[^ !#-%'-;=?-\[\]-~]")
_EXACT = 2**53
_MAX_DEPTH = 400


def render_json(value: Json, *, indent: bool = False) -> str:
    """Write `value`; with `indent`, two blanks for each level. No newline at the end."""
    parts: list[str] = []
    _write(value, parts, "\n" if indent else "", 0)
    return "".join(parts)


def render_number(value: float) -> str:
    """A number as a double prints: 1 for 1.0, 1e+21 for large, 1e-7 for small ones."""
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        return str(value)
    try:
        number = float(value)
    except OverflowError as error:
        raise EvaluationError("a number is too large for JSON") from error
    if not math.isfinite(number):
        raise EvaluationError(f"{number} is not a JSON number")
    if number == 0 or 1e-6 <= abs(number) < 1e21:
        text = format(Decimal(repr(number)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, power = repr(number).partition("e")
    return f"{mantissa.removesuffix('.0')}e{power[0]}{power[1:].lstrip('0')}"


def quote_text(text: str) -> str:
    """One JSON string."""
    return f'"{text.translate(_TRANSLATION) if _SPECIAL.search(text) else text}"'


def _write(value: Json, parts: list[str], newline: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise EvaluationError("the value is nested too deeply to be printed")
    if isinstance(value, str):
        parts.append(quote_text(value))
    elif value is None:
        parts.append("null")
    elif isinstance(value, bool):
        parts.append("true" if value else "false")
    elif isinstance(value, (int, float)):
        parts.append(render_number(value))
    elif isinstance(value, dict):
        colon = ": " if newline else ":"
        pairs = [(quote_text(str(key)) + colon, value[key]) for key in sorted(value, key=str)]
        _write_all(pairs, "{}", parts, newline, depth)
    elif isinstance(value, (list, tuple)):
        _write_all([("", item) for item in value], "[]", parts, newline, depth)
    else:
        raise EvaluationError(f"{type(value).__name__} is not JSON")


def _write_all(
    pairs: list[tuple[str, Json]], brackets: str, parts: list[str], newline: str, depth: int
) -> None:
    if not pairs:
        parts.append(brackets)
        return
    inner = newline and newline + "  " * (depth + 1)
    parts.append(brackets[0])
    for index, (prefix, item) in enumerate(pairs):
        parts.append(f",{inner}{prefix}" if index else f"{inner}{prefix}")
        _write(item, parts, newline, depth + 1)
    parts.append((newline and newline + "  " * depth) + brackets[1])
