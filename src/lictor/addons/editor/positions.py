"""Places in a text, as findings and edits count them, into ranges of the protocol."""

import re
from bisect import bisect_right
from itertools import accumulate

from lsprotocol.types import Position, Range
from pygls.workspace import PositionCodec, ServerTextPosition

from lictor.core.model.finding import Location

# A key, or a word of an expression.
_WORD = re.compile(r"""[\w./$()+^=<>*-]+|"[^"]*"|'[^']*'|\S+""")


class TextPositions:
    """Counts as the client does: in UTF-16 unless it requested another encoding."""

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.lines = text.split("\n")
        self._starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        self._codec = codec

    def at(self, line: int, column: int) -> Position:
        """Lines and columns from zero; what is behind a line's end is its end."""
        line = min(max(line, 0), len(self.lines) - 1)
        column = min(max(column, 0), len(self.lines[line]))
        return Position(line, self._codec.client_num_units(self.lines[line][:column]))

    def at_offset(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset) - 1
        return self.at(line, offset - self._starts[min(line, len(self._starts) - 1)])

    def between(self, start: int, end: int) -> Range:
        return Range(self.at_offset(start), self.at_offset(end))

    def find_word(self, location: Location) -> Range:
        """The key or word that begins at a location; to the end of the line where none does."""
        line, column = location.line - 1, location.column - 1
        content = self.lines[line] if 0 <= line < len(self.lines) else ""
        found = _WORD.match(content, column)
        end = found.end() if found else len(content)
        return Range(self.at(line, column), self.at(line, end))

    def read(self, position: Position) -> tuple[int, int]:
        """Line and column, from zero, of a place that the client names."""
        line = min(position.line, len(self.lines) - 1)
        given = Position(line, position.character)
        place: ServerTextPosition = self._codec.position_from_client_units(self.lines, given)
        return place.line, min(place.character, len(self.lines[line]))

    def whole(self) -> Range:
        return Range(Position(0, 0), self.at(len(self.lines) - 1, len(self.lines[-1])))
