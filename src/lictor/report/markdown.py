"""Outcomes become a table in Markdown."""

from collections.abc import Iterable

from lictor.report.table import HEADERS, MESSAGE_HEADER
from lictor.report.test_outcome import TestOutcome

# What would end a cell, or hide text as a tag.
_ESCAPES = str.maketrans({"|": "\\|", "\n": "<br>", "\r": "", "<": "&lt;", "`": "\\`", "*": "\\*"})


def render_markdown(outcomes: Iterable[TestOutcome], *, detailed: bool = False) -> str:
    """A table with one line for each outcome; the header is there even when nothing follows."""
    headers = [*HEADERS, MESSAGE_HEADER] if detailed else list(HEADERS)
    lines = [f"| {' | '.join(headers)} | ", "|" + "----|" * len(headers)]
    lines += [_render_line(outcome, detailed=detailed) for outcome in outcomes]
    return "\n".join(lines) + "\n"


def _render_line(outcome: TestOutcome, *, detailed: bool) -> str:
    cells = [
        str(outcome.id),
        outcome.policy,
        outcome.rule,
        outcome.resource,
        outcome.title,
        outcome.reason,
    ]
    if detailed:
        cells.append(outcome.message.rstrip("\n"))
    return "| " + " | ".join(cell.translate(_ESCAPES) for cell in cells) + " |"
