"""JSON text as Go's encoder writes it: sorted keys, HTML escaped, numbers in Go's notation."""

from lictor.errors import EvaluationError, TooLargeError
from lictor.lang.go_number import format_number
from lictor.raw import Json

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip
_TRANSLATION = {ord(c): e for c, e in _ESCAPES.items()}
_TRANSLATION.update({c: f"\\u{c:04x}" for c in range(0x20) if c not in _TRANSLATION})
_MAX_DEPTH = 500
# Values may share parts, so that a small one can stand for text without end.
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
