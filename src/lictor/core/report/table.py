"""Outcomes as a table with borders, optionally in colour."""

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec

from lictor.core.report.outcomes import TestOutcome

HEADERS = ("ID", "POLICY", "RULE", "RESOURCE", "RESULT", "REASON")
MESSAGE_HEADER = "MESSAGE"
_WIDEST_CELL = 300
_COUNT_FROM = 10
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
# A resource's name or message must not be able to steer the terminal.
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {ord("\n"): "\n", ord("\t"): "    ", ord("\r"): ""}
_COLORED_CONTROLS = {**_CONTROLS, 0x1B: "\x1b"}

_CYAN, _GREEN, _RED, _YELLOW = "36;1", "32;1", "31;1", "33;1"
_HEADER_COLOR = "40;32"
_RESULT_COLORS = {"Pass": _GREEN, "Fail": _RED, "Error": _RED, "Warn": _YELLOW, "Skip": _CYAN}
_REASON_COLORS = {"Excluded": _YELLOW, "Not found": _YELLOW}


class TableCell(msgspec.Struct, frozen=True):
    """The lines of one field, and the colour they are shown in."""

    lines: tuple[str, ...]
    color: str = ""


def render_table(
    outcomes: Iterable[TestOutcome], *, detailed: bool = False, color: bool = False
) -> str:
    """All outcomes in one table that ends in a newline; nothing where there are none."""
    rows = [_build_row(outcome, detailed=detailed, color=color) for outcome in outcomes]
    if not rows:
        return ""
    headers = list(HEADERS) + ([MESSAGE_HEADER] if detailed else [])
    if len(rows) > _COUNT_FROM:
        headers[0] = f"ID ({len(rows)}) "
    header = [TableCell((text,), _HEADER_COLOR) for text in headers]
    widths = [max(_width(line) for line in column) for column in _collect_columns([header, *rows])]
    border = "│" + "│".join("─" * (width + 2) for width in widths) + "│\n"
    body = "".join(_render_row(row, widths, color=color) for row in rows)
    return f"{border}{_render_row(header, widths, color=color)}{border}{body}{border}"


def paint(text: str, code: str) -> str:
    """Text between the escape sequences of a colour."""
    return f"\x1b[{code}m{text}\x1b[0m" if text and code else text


def _build_row(outcome: TestOutcome, *, detailed: bool, color: bool) -> list[TableCell]:
    fields = [
        (str(outcome.id), ""),
        (outcome.policy, _CYAN),
        (outcome.rule, _CYAN),
        (outcome.resource, _CYAN),
        (outcome.title, _RESULT_COLORS.get(outcome.title, "")),
        (outcome.reason, _REASON_COLORS.get(outcome.reason, "")),
    ]
    if detailed:
        fields.append((outcome.message, _REASON_COLORS.get(outcome.message, "")))
    return [TableCell(_wrap(_clean(text, color=color)), code) for text, code in fields]


def _clean(text: str, *, color: bool) -> str:
    if text.isascii() and text.isprintable():
        return text
    if color:
        return text.translate(_COLORED_CONTROLS)
    return _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROLS)


def _wrap(text: str) -> tuple[str, ...]:
    if len(text) <= _WIDEST_CELL and "\n" not in text:
        return (text,)
    lines: list[str] = []
    for line in text.split("\n"):
        short = len(line) <= _WIDEST_CELL
        lines += [line] if short else textwrap.wrap(line, _WIDEST_CELL, break_long_words=False)
    return tuple(lines)


def _collect_columns(rows: Sequence[Sequence[TableCell]]) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in rows[0]]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.extend(cell.lines)
    return columns


def _width(text: str) -> int:
    if text.isascii() and "\x1b" not in text:
        return len(text)
    visible = _ESCAPE_SEQUENCE.sub("", text)
    return sum(_width_of(char) for char in visible)


def _width_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _render_row(row: Sequence[TableCell], widths: Sequence[int], *, color: bool) -> str:
    height = max(len(cell.lines) for cell in row)
    return "".join(_render_line(row, widths, index, color=color) for index in range(height))


def _render_line(
    row: Sequence[TableCell], widths: Sequence[int], index: int, *, color: bool
) -> str:
    shown = []
    for cell, width in zip(row, widths, strict=True):
        text = cell.lines[index] if index < len(cell.lines) else ""
        padding = " " * (width - _width(text))
        shown.append(f" {paint(text, cell.color) if color else text}{padding} ")
    return "│" + "│".join(shown) + "│\n"
