"""Where in a file does a place within a text stand? YAML folds and quotes, so it must be sought."""

import re
from collections.abc import Iterator

import msgspec

from lictor.model.finding import TextOffset

# A key, and what tells that its value is a block on the lines below.
_VALUE = re.compile(r"(?:- +)*[^\s:]+:(?:\s+[|>][-+0-9]*\s*(?:#.*)?$)?")
_WIDTH = 100
_CONTEXT = 40


class _Line(msgspec.Struct, frozen=True):
    """The line of a text in which a spot stands."""

    number: int
    content: str
    offset: int


def _read_line(spot: TextOffset) -> _Line:
    start = spot.text.rfind("\n", 0, spot.offset) + 1
    content = spot.text[start:].split("\n", 1)[0]
    return _Line(spot.text.count("\n", 0, spot.offset), content, spot.offset - start)


def find_offset(lines: list[str], at: tuple[int, int], spot: TextOffset) -> tuple[int, int]:
    """The line and column of a spot, sought from where its field begins; that itself in doubt."""
    line = _read_line(spot)
    if not line.content.strip():
        return at
    for content, offset in _list_spellings(line):
        found = _search(lines, at, content, line.number)
        if found is not None:
            return found[0], found[1] + offset
    return _follow(lines, at, spot) or at


def _list_spellings(line: _Line) -> list[tuple[str, int]]:
    """The content as it is, in single quotes, in double quotes; with the offset in each."""
    before = line.content[: line.offset]
    spellings = [(line.content, line.offset)]
    for quote, escaped in (("'", "''"), ('"', '\\"')):
        written = line.content.replace(quote, escaped)
        spellings.append((written, len(before.replace(quote, escaped))))
    return spellings


def _search(
    lines: list[str], at: tuple[int, int], content: str, number: int
) -> tuple[int, int] | None:
    first, column = at
    # A block may begin one line below its key, after a comment two.
    for index in range(first - 1 + number, min(first + number + 2, len(lines))):
        start = column - 1 if index == first - 1 else 0
        place = lines[index].find(content, start)
        if place >= 0:
            return index + 1, place + 1
    return None


def _follow(lines: list[str], at: tuple[int, int], spot: TextOffset) -> tuple[int, int] | None:
    """Read text and file side by side, without blanks: folding changes nothing else."""
    wanted = [letter for letter in spot.text[: spot.offset + 1] if not letter.isspace()]
    last = None
    for place, letter in _read_value(lines, at):
        if not wanted:
            break
        if letter != wanted[0]:
            # A quote or a backslash that the file needs and the text does not have.
            if letter in "'\"\\":
                continue
            return None
        wanted.pop(0)
        last = place
    return last if not wanted else None


def _read_value(lines: list[str], at: tuple[int, int]) -> Iterator[tuple[tuple[int, int], str]]:
    """The letters of a field's value, with their places; blanks and block marks left out."""
    line, column = at
    head = _VALUE.match(lines[line - 1], column - 1) if line <= len(lines) else None
    start = column - 1 if head is None else head.end()
    for number in range(line, len(lines) + 1):
        content = lines[number - 1]
        begin = start if number == line else 0
        for index in range(begin, len(content)):
            if not content[index].isspace():
                yield (number, index + 1), content[index]


def draw_excerpt(spot: TextOffset) -> str:
    """The line of the text, and below it a mark at the spot."""
    line = _read_line(spot)
    content, offset = line.content, min(line.offset, len(line.content))
    if len(content) > _WIDTH:
        start = max(offset - _CONTEXT, 0)
        content, offset = content[start : start + _WIDTH], offset - start
    shown = content.lstrip()
    return f"{shown}\n{' ' * max(offset - len(content) + len(shown), 0)}^"
