"""A finding as people read it on a terminal: the lines around it, with a mark below the place."""

import re
from collections.abc import Sequence

from lictor.lint.catalog import CHECKS
from lictor.model.finding import Finding, Severity
from lictor.report.table import paint

# What a mark is drawn below: a word, with what belongs to names of fields and functions.
_WORD = re.compile(r"[\w.$/+-]+|\S")
_BEFORE = 2
_AFTER = 1
_WIDTH = 160
_RED, _YELLOW = "31", "33"
_STEERING = re.compile(
    "(?!\x1b\\[(?:31|33|0)m)[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]"
)


def draw_finding(finding: Finding, lines: Sequence[str], *, color: bool) -> str:
    """Headline, code frame and hint, ending in an empty line."""
    shade = "" if not color else _RED if finding.severity is Severity.ERROR else _YELLOW
    head = paint(f"{finding.severity}[{CHECKS[finding.check].code}]", shade)
    where = f" {finding.field}" if finding.path else ""
    parts = [f"{head}{where}: {finding.message}", *_draw_frame(finding, lines, shade)]
    if finding.suggestion:
        parts.append(f'  = did you mean "{finding.suggestion}"?')
    return "\n".join(map(_clean, parts)) + "\n\n"


def _clean(text: str) -> str:
    """Without what would steer the terminal, but for our own colours: files are others' texts."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def _draw_frame(finding: Finding, lines: Sequence[str], shade: str) -> list[str]:
    """`  --> file:line:column`, and the lines; only the place where the file is not at hand."""
    number, column = finding.location.line, finding.location.column
    if not 1 <= number <= len(lines):
        return [f"  --> {finding.location}"]
    first, last = max(number - _BEFORE, 1), min(number + _AFTER, len(lines))
    margin = len(str(last))
    blank = " " * margin
    drawn = [f"{blank}--> {finding.location}", f"{blank} |"]
    for each in range(first, last + 1):
        text = lines[each - 1].rstrip("\r")[:_WIDTH]
        drawn.append(f"{each:{margin}} | {text}".rstrip())
        if each == number and column <= len(text) + 1:
            mark = paint("^" * _measure(text, column), shade)
            drawn.append(f"{blank} | {_indent(text, column)}{mark}")
    return [*drawn, f"{blank} |"]


def _measure(text: str, column: int) -> int:
    found = _WORD.match(text, column - 1)
    return len(found[0]) if found else 1


def _indent(text: str, column: int) -> str:
    """Blanks up to the column; tabs stay tabs, so that the mark stands where it should."""
    return "".join("\t" if letter == "\t" else " " for letter in text[: column - 1])
