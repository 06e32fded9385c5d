"""JSON text as Go's encoder writes it: sorted keys, HTML escaped, numbers in Go's notation."""

import math

from lictor.errors import EvaluationError
from lictor.raw import Json

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip
_TRANSLATION = {ord(c): e for c, e in _ESCAPES.items()}
_TRANSLATION.update({c: f"\\u{c:04x}" for c in range(0x20) if c not in _TRANSLATION})
_MAX_DEPTH = 500


def dump_go_json(value: Json) -> str:
    """Write `value` compactly; raise EvaluationError for what is not JSON."""
    parts: list[str] = []
    _write(value, parts, _MAX_DEPTH)
    return "".join(parts)


def format_go_number(value: float) -> str:
    """A JSON number in Go's notation: 1 for 1.0, 1e+21 for large ones."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise EvaluationError(f"{value} is not a JSON number")
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text if abs(value) >= 1e-6 else _exponent(f"{value:e}", value)
    return _exponent(text, value)


def _exponent(text: str, value: float) -> str:
    mantissa, _, power = repr(value).partition("e")
    if not power:
        mantissa, _, power = text.partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
    number = int(power)
    if -7 < number < 0:
        return f"{value:.{17 - number}f}".rstrip("0")
    return f"{mantissa}e{'-' if number < 0 else '+'}{abs(number):02d}"


def _write(value: Json, parts: list[str], depth: int) -> None:
    if depth == 0:
        raise EvaluationError("the value is nested too deeply")
    if isinstance(value, str):
        parts.append(f'"{value.translate(_TRANSLATION)}"')
    elif value is None:
        parts.append("null")
    elif value is True or value is False:
        parts.append("true" if value else "false")
    elif isinstance(value, (int, float)):
        parts.append(format_go_number(value))
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
