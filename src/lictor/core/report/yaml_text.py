"""YAML text in the shape of kubectl's: sorted keys, lists not indented, text quoted where needed.

The emitter is written by hand, because reports have 100,000s of entries and PyYAML needs
milliseconds for each.
"""

import re
from functools import cache, lru_cache

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json
from lictor.core.report.json_text import quote_text, render_number

_MAX_DEPTH = 400
# Words that some YAML reader takes for a boolean, a null, a merge key or a default value.
_WORDS = frozenset([
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<", ".nan", ".inf",
    "+.inf", "-.inf",
])  # fmt: skip
# Text that YAML 1.1 or 1.2 could read as a number, a date or a time; quoting is generous.
_NUMBER = re.compile(r"[-+.0-9][-+.,:_0-9a-fA-FxXoOeEtTzZ ]*")
_SIMPLE = re.compile(r"[A-Za-z/_][A-Za-z0-9/_.-]*")
_PLAIN_START = re.compile(r"[^-?:,\[\]{}#&*!|>'\"%@` ]")
_NOT_PLAIN = re.compile(r":\s|\s#|[: ]$|^(---|\.\.\.)")
# Printable to every YAML reader; no line break but \n, no byte order mark, no half character.
_PRINTABLE = (
    "[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*"
)
_UNPRINTABLE = {
    **{code: f"\\x{code:02x}" for code in (0x7F, *range(0x80, 0xA0))},
    0xFEFF: "\\ufeff",
    0xFFFE: "\\ufffe",
    0xFFFF: "\\uffff",
}


@cache
def _compile_printable() -> re.Pattern[str]:
    """Compiled on first use: it takes milliseconds, and most text needs it not."""
    return re.compile(_PRINTABLE)


def _is_printable(text: str) -> bool:
    return _compile_printable().fullmatch(text) is not None


def render_yaml(value: Json) -> str:
    """One document, ending in a newline."""
    parts: list[str] = []
    _write(value, parts, "", 0)
    text = "".join(parts)
    return text[1:] if text.startswith(("\n", " ")) else text


def render_scalar(text: str, indent: str = "") -> str:
    """Text as the value of a key in a mapping that is indented by `indent`."""
    if "\n" in text:
        return _render_lines(text, indent)
    return _render_line(text)


@lru_cache(maxsize=4096)
def _render_line(text: str) -> str:
    if _SIMPLE.fullmatch(text):
        return f'"{text}"' if text.lower() in _WORDS else text
    if not _is_printable(text) or "\t" in text:
        return quote_line(text)
    if not text or text.lower() in _WORDS or _NUMBER.fullmatch(text):
        return f'"{text}"'
    if _PLAIN_START.match(text) and not _NOT_PLAIN.search(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def quote_line(text: str) -> str:
    """Text in double quotes, on one line, with any content escaped."""
    return quote_text(text).translate(_UNPRINTABLE)


def _render_lines(text: str, indent: str) -> str:
    body = text.rstrip("\n")
    # A block that starts with blanks would need an indentation hint; readers stumble over tabs.
    if not body or body[0] in " \t\n" or "\n\t" in body or not _is_printable(text):
        return quote_line(text)
    ending = len(text) - len(body)
    mark = "|-" if ending == 0 else "|" if ending == 1 else "|+"
    lines = [f"{indent}  {line}" if line else "" for line in body.split("\n")]
    return "\n".join([mark, *lines]) + "\n" * max(ending - 1, 0)


def _write(value: Json, parts: list[str], indent: str, depth: int) -> None:
    """Write what follows `key:` or `-`, with the blank or newline before it."""
    if isinstance(value, dict) and value:
        parts.append("\n")
        _write_mapping(value, parts, indent, depth)
    elif isinstance(value, (list, tuple)) and value:
        parts.append("\n")
        # Lists stand at the level of their key.
        _write_list(value, parts, indent[:-2], depth)
    else:
        parts.append(f" {_render_leaf(value, indent[:-2])}\n")


def _write_mapping(value: dict[str, Json], parts: list[str], indent: str, depth: int) -> None:
    _guard(depth)
    for index, key in enumerate(sorted(value, key=str)):
        # The first key of a list's item stands on the line of its dash.
        start = "" if index == 0 and parts and parts[-1].endswith("- ") else indent
        parts.append(f"{start}{_render_key(str(key))}:")
        _write(value[key], parts, indent + "  ", depth + 1)


def _write_list(
    value: list[Json] | tuple[Json, ...], parts: list[str], indent: str, depth: int
) -> None:
    _guard(depth)
    for item in value:
        if isinstance(item, dict) and item:
            parts.append(f"{indent}- ")
            _write_mapping(item, parts, indent + "  ", depth + 1)
        elif isinstance(item, (list, tuple)) and item:
            parts.append(f"{indent}-\n")
            _write_list(item, parts, indent + "  ", depth + 1)
        else:
            parts.append(f"{indent}- {_render_leaf(item, indent)}\n")


def _guard(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise EvaluationError("the value is nested too deeply to be printed")


def _render_key(key: str) -> str:
    return quote_line(key) if "\n" in key or len(key) > 100 else _render_line(key)


def _render_leaf(value: Json, indent: str) -> str:
    if isinstance(value, str):
        return render_scalar(value, indent)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _render_yaml_number(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    raise EvaluationError(f"{type(value).__name__} is not JSON")


def _render_yaml_number(value: float) -> str:
    """Whole numbers stay exact: a manifest is written for readers that know 64 bits."""
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return str(value)
    text = render_number(value)
    # YAML 1.1 takes 1e+21 for text: it wants a dot in the mantissa.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
