"""string.format(): clauses such as `%s` and `%.2f`, as Kubernetes' version of it writes them."""

import math
import re
from collections.abc import Callable, Sequence

from lictor.core.lang.cel.faults import CelError, Issue
from lictor.core.lang.cel.library.conversions import (
    format_double,
    format_seconds,
    format_timestamp,
    parse_double,
)
from lictor.core.lang.cel.syntax import Call, CelNode, ListNode, Literal, MapNode
from lictor.core.lang.cel.types import CelType
from lictor.core.lang.cel.values import (
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    Value,
    decode_key,
    type_name,
)
from lictor.core.lang.go_number import quote_go

_CLAUSE = re.compile(r"%(?:%|(\.([0-9]*))?(.)?)", re.DOTALL)
_SUPERSCRIPT = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_DEFAULT_PRECISION = 6
_MAX_PRECISION = 1_000


def _fail(clause: str, allowed: str, value: Value) -> CelError:
    return CelError(
        f"error during formatting: {clause} can only be used on {allowed},"
        f" was given {type_name(value)}"
    )


def _show(value: Value) -> str:
    """A value inside a list or a map."""
    kind = type(value)
    if kind is float:
        if math.isfinite(value):
            return f"{value:.6f}"
        return quote_go(format_double(value))
    if kind is str:
        return quote_go(value)
    if kind is bytes:
        return "b" + quote_go(_text_of_bytes(value))
    if kind is Timestamp:
        return f'timestamp("{format_timestamp(value)}")'
    if kind is Duration:
        return f'duration("{format_seconds(value)}")'
    return _string(value)


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("could not convert argument to string") from None


def _string(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(int(value))
        case None:
            return "null"
        case list():
            return f"[{', '.join(map(_show, value))}]"
        case dict():
            pairs = sorted((_show(decode_key(key)), _show(item)) for key, item in value.items())
            return f"{{{', '.join(f'{key}:{item}' for key, item in pairs)}}}"
        case bytes():
            return _text_of_bytes(value)
    return _string_of_special(value)


def _string_of_special(value: Value) -> str:
    kind = type(value)
    if kind is float:
        return format_double(value)
    if kind is Timestamp:
        return format_timestamp(value)
    if kind is Duration:
        return format_seconds(value)
    if kind is TypeValue:
        return str(value.name)
    allowed = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
    raise _fail("string clause", allowed, value)


def _decimal(value: Value) -> str:
    if type(value) not in (int, UInt):
        raise _fail("decimal clause", "integers", value)
    return str(int(value))


def _read_double(value: Value, clause: str) -> float:
    if value in ("NaN", "Infinity", "-Infinity"):
        return parse_double(value)
    if type(value) is not float:
        raise _fail(clause, "doubles", value)
    return value


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: Value, precision: int) -> str:
    number = _read_double(value, "fixed-point clause")
    return f"{number:,.{precision}f}" if math.isfinite(number) else _not_finite(number)


def _scientific(value: Value, precision: int) -> str:
    """Kubernetes takes the precision for a width; the number of decimals is always six."""
    number = _read_double(value, "scientific clause")
    if not math.isfinite(number):
        return _not_finite(number).rjust(precision)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    sign = "⁻" if exponent.startswith("-") else ""
    digits = exponent.lstrip("+-").translate(_SUPERSCRIPT)
    return f"{mantissa}\u00d710{sign}{digits}".rjust(precision)


def _binary(value: Value) -> str:
    if type(value) not in (int, UInt, bool):
        raise _fail("binary clause", "integers and bools", value)
    return f"{int(value):b}"


def _octal(value: Value) -> str:
    if type(value) not in (int, UInt):
        raise _fail("octal clause", "integers", value)
    return f"{int(value):o}"


def _hex(value: Value) -> str:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass").hex()
    if type(value) is bytes:
        return value.hex()
    if type(value) not in (int, UInt):
        raise _fail("hex clause", "integers, byte buffers, and strings", value)
    return f"{int(value):x}"


_PLAIN: dict[str, Callable[[Value], str]] = {
    "s": _string, "d": _decimal, "b": _binary, "o": _octal, "x": _hex,
    "X": lambda value: _hex(value).upper(),
}  # fmt: skip
_PRECISE: dict[str, Callable[[Value, int], str]] = {"f": _fixed, "e": _scientific}


def _read_clauses(template: str) -> list[str | tuple[str, int]]:
    """Texts, and clauses as letter and precision; CelError for what is none."""
    parts: list[str | tuple[str, int]] = []
    end = 0
    for found in _CLAUSE.finditer(template):
        parts.append(template[end : found.start()])
        end = found.end()
        if found[0] == "%%":
            parts.append("%")
            continue
        parts.append(_read_clause(found))
    parts.append(template[end:])
    return parts


def _read_clause(found: re.Match[str]) -> tuple[str, int]:
    letter = found[3]
    if letter is None:
        words = (
            "could not find end of precision specifier" if found[1] else "unexpected end of string"
        )
        return f"!{words}", 0
    if found[1] and (not found[2] or len(found[2]) > 18):
        return "!error while parsing precision", 0
    if letter not in _PLAIN and letter not in _PRECISE:
        return f'!could not parse formatting clause: unrecognized formatting clause "{letter}"', 0
    return letter, int(found[2]) if found[1] else _DEFAULT_PRECISION


def format_text(template: str, values: Sequence[Value]) -> str:
    """`template.format(values)`."""
    made: list[str] = []
    index = 0
    for part in _read_clauses(template):
        if isinstance(part, str):
            made.append(part)
            continue
        letter, precision = part
        if index >= len(values):
            raise CelError(f"index {index} out of range")
        if letter.startswith("!"):
            raise CelError(letter[1:])
        made.append(_apply(letter, precision, values[index]))
        index += 1
    return "".join(made)


def _apply(letter: str, precision: int, value: Value) -> str:
    if letter in _PLAIN:
        return _PLAIN[letter](value)
    if precision > _MAX_PRECISION:
        raise CelError("the precision is too large")
    return _PRECISE[letter](value, precision)


# -- the check of literal templates at compile time

_ALLOWED = {
    "s": ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes",
          "duration", "type", "null"),
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "x": ("int", "uint", "string", "bytes"),
    "X": ("int", "uint", "string", "bytes"),
    "o": ("int", "uint"),
}  # fmt: skip


def check_format(call: Call) -> Issue | None:
    """The problem of `'literal'.format([...])`, if it has one."""
    template, values = call.target, call.args[0]
    if not isinstance(template, Literal) or not isinstance(values, ListNode):
        return None
    index = 0
    for part in _read_clauses(template.value):
        if isinstance(part, str):
            continue
        if part[0] == "!unexpected end of string" or part[0].startswith("!could not find"):
            return Issue(call.position, part[0][1:])
        if index >= len(values.elements):
            return Issue(call.position, f"index {index} out of range")
        if part[0].startswith("!"):
            return Issue(call.position, part[0][1:])
        wrong = _find_wrong(values.elements[index], part[0])
        if wrong is not None:
            message = f"error during formatting: clause %{part[0]} cannot be used on {wrong.type}"
            return Issue(wrong.position, message)
        index += 1
    if len(values.elements) > index:
        message = (
            "too many arguments supplied to string.format"
            f" (expected {index}, got {len(values.elements)})"
        )
        return Issue(call.position, message)
    return None


def _find_wrong(node: CelNode, letter: str) -> CelNode | None:
    of: CelType = node.type
    if of.kind not in ("dyn", *_ALLOWED[letter]):
        return node
    if letter != "s":
        return None
    children: list[CelNode] = []
    if isinstance(node, ListNode):
        children = node.elements
    elif isinstance(node, MapNode):
        for entry in node.entries:
            children += [part for part in (entry.key, entry.value) if part is not None]
    return next((wrong for child in children if (wrong := _find_wrong(child, letter))), None)
