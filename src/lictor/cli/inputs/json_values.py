"""Where do JSON values begin and end in an input that is too large to be held?

Values are read by Python's own reader, which says where each one ends; what it read is thrown away.
The text is taken as Latin-1, so that offsets count bytes: nothing that shapes JSON is beyond ASCII.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from lictor.cli.inputs.inputs import Input
from lictor.cli.inputs.resources import DocumentSpan
from lictor.core.raw import Json

_WINDOW: Final = 1 << 18
# Python's reader counts the lines before each fault: text that was gone through costs with each.
_MAX_BEHIND: Final = 1 << 14
_SPACE = re.compile(r"[ \t\r\n]*")
_TOO_LARGE = "a value of more than %d bytes"
_LONGEST_WORD: Final = 16
_OPEN = "Unterminated string"
_READER = json.JSONDecoder()


class JsonFault(Exception):  # noqa: N818  (a fault of the text, not of ours)
    """What stands at an offset is no JSON, or ends too early."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class JsonCursor:
    """Reads on through a range of an input, and holds no more than one value and a window."""

    def __init__(self, given: Input, start: int, end: int) -> None:
        self._given = given
        self._end = end
        self._text = ""
        # Where the held text begins in the input, and where in it we are.
        self._begin = start
        self._index = 0
        # The bytes that were read of values which then turned out to be broken.
        self.wasted = 0

    @property
    def offset(self) -> int:
        return self._begin + self._index

    def seek(self, offset: int) -> None:
        """Go on from somewhere else."""
        if not self._begin <= offset <= self._begin + len(self._text):
            self._begin, self._text = offset, ""
        self._index = offset - self._begin
        if self._index > _MAX_BEHIND:
            self._text, self._begin, self._index = self._text[self._index :], offset, 0

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._index)
            self._index = found.end() if found else self._index
            if self._index < len(self._text):
                return self._text[self._index]
            if not self._read_on():
                return ""

    def take(self, wanted: str) -> None:
        """Go past a character that must come next."""
        if self.peek() != wanted:
            self._fail(f"expected {wanted!r}")
        self._index += 1

    def read_value(self, limit: int) -> Json:
        """The value that comes next, and go past it. Raises JsonFault for one that is too large."""
        self.peek()
        while True:
            try:
                value, end = _READER.raw_decode(self._text, self._index)
                length = end - self._index
                # A number at the end of the window may go on beyond it.
                if end < len(self._text) or not self._read_on():
                    self._pass(length, limit)
                    return value
            except json.JSONDecodeError as error:
                self._go_on(error, limit)
            except (RecursionError, ValueError) as error:
                # A ValueError is about a number of thousands of digits.
                self._waste()
                raise JsonFault("nested too deep, or a number too long", self.offset) from error

    def _waste(self) -> None:
        self.wasted += len(self._text) - self._index

    def _pass(self, length: int, limit: int) -> None:
        if length > limit:
            self._waste()
            raise JsonFault(_TOO_LARGE % limit, self.offset)
        self._index += length

    def _go_on(self, error: json.JSONDecodeError, limit: int) -> None:
        """Hold more of a value that could not be read; JsonFault where that does not help."""
        where, held = self._begin + error.pos, self._begin + len(self._text)
        is_open = error.msg.startswith(_OPEN)
        # An unfinished value fails where the text ends, or in the word before.
        if not is_open and where < held - _LONGEST_WORD:
            self.wasted += where - self.offset
            raise JsonFault(error.msg, where) from error
        if held - self.offset > limit:
            self._waste()
            raise JsonFault(_TOO_LARGE % limit, self.offset) from error
        if not self._read_on():
            self._waste()
            raise JsonFault("the JSON is cut off", where) from error

    def _read_on(self) -> bool:
        """Hold more text; False where there is none."""
        position = self._begin + len(self._text)
        # As much again as a value is long already: a long one is not read too often.
        wanted = max(len(self._text) - self._index, _WINDOW)
        part = self._given.read(position, min(position + wanted, self._end))
        self._text = self._text[self._index :] + part.decode("latin-1")
        self._begin += self._index
        self._index = 0
        return bool(part)

    def _fail(self, message: str) -> None:
        if not self.peek():
            message = "the JSON is cut off"
        raise JsonFault(message, self.offset)

    def list_members(self) -> Iterator[str]:
        """The names in the object that comes next; the caller reads the value of each."""
        self.take("{")
        if self.peek() == "}":
            self._index += 1
            return
        while True:
            name = self.read_value(_WINDOW) if self.peek() == '"' else None
            if not isinstance(name, str):
                self._fail("expected a name")
            self.take(":")
            yield str(name)
            if self.peek() != ",":
                break
            self._index += 1
        self.take("}")

    def list_items(self, limit: int) -> Iterator[DocumentSpan]:
        """Where each item of the array lies that comes next."""
        self.take("[")
        if self.peek() == "]":
            self._index += 1
            return
        while True:
            self.peek()
            start = self.offset
            self.read_value(limit)
            yield DocumentSpan(start, self.offset)
            if self.peek() != ",":
                break
            self._index += 1
        self.take("]")
