"""Finds JSON values in an input that is too large to be held, and the items of large lists.

Python's own reader decides where each value ends; the values are thrown away. The text is decoded
as Latin-1, so that offsets count bytes: the structure of JSON is ASCII.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from lictor.cli.inputs.inputs import COPY_BYTES, Input
from lictor.cli.inputs.resources import DocumentSpan
from lictor.cli.inputs.shards import Shard, ShardBuilder
from lictor.cli.inputs.yaml_items import OTHER_BREAK, is_list
from lictor.core.raw import Json

_WINDOW: Final = 1 << 18
# Python's reader counts the lines before each fault: text that was read already costs each time.
_MAX_BEHIND: Final = 1 << 14
_SPACE = re.compile(r"[ \t\r\n]*")
_TOO_LARGE = "a value of more than %d bytes"
_LONGEST_WORD: Final = 16
_OPEN = "Unterminated string"
_CUT_OFF = "the JSON is cut off"
_NO_JSON: Final = "expected a JSON value"
_READER = json.JSONDecoder()
# Limits the bytes that are read in vain: each invalid value could be read to the end of what is
# held, and the next one begin in the line after. A valid list is read twice.
_MAX_WASTED: Final = 64 << 20
_WASTE_PER_BYTE: Final = 4
_FIRST_WINDOW: Final = 1 << 10


class JsonFault(Exception):  # noqa: N818  (a fault of the text, not an error)
    """The text at an offset is not JSON, or ends too early."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class JsonCursor:
    """Reads a range of an input from start to end, and holds one value and a window."""

    def __init__(self, given: Input, start: int, end: int) -> None:
        self._given = given
        self._end = end
        self._text = ""
        # Where the held text begins in the input, and the position in it.
        self._begin = start
        self._index = 0
        # The bytes that were read of invalid values.
        self.wasted = 0

    @property
    def offset(self) -> int:
        return self._begin + self._index

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        if not self._begin <= offset <= self._begin + len(self._text):
            self._begin, self._text = offset, ""
        self._index = offset - self._begin
        if self._index > _MAX_BEHIND:
            self._text, self._begin, self._index = self._text[self._index :], offset, 0

    def peek(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._index)
            self._index = found.end() if found else self._index
            if self._index < len(self._text):
                return self._text[self._index]
            if not self._read_on():
                return ""

    def take(self, wanted: str) -> None:
        """Skip a character that must come next."""
        if self.peek() != wanted:
            self._fail(f"expected {wanted!r}")
        self._index += 1

    def read_value(self, limit: int) -> Json:
        """Return the next value and skip it. Raises JsonFault if it is invalid or too large."""
        self.peek()
        while True:
            try:
                value, end = _READER.raw_decode(self._text, self._index)
                length = end - self._index
                # A number at the end of the window may continue beyond it.
                if end < len(self._text) or not self._read_on():
                    self._pass(length, limit)
                    return value
            except json.JSONDecodeError as error:
                self._go_on(error, limit)
            except (RecursionError, ValueError) as error:
                # A ValueError is raised for a number of thousands of digits.
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
        """Read more of an incomplete value. Raises JsonFault if the value is invalid."""
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
            raise JsonFault(_CUT_OFF, where) from error

    def _read_on(self) -> bool:
        """Read more text; False at the end."""
        position = self._begin + len(self._text)
        # Doubled each time, so that a long value is not parsed too often.
        wanted = max(len(self._text) - self._index, _WINDOW)
        part = self._given.read(position, min(position + wanted, self._end))
        self._text = self._text[self._index :] + part.decode("latin-1")
        self._begin += self._index
        self._index = 0
        return bool(part)

    def _fail(self, message: str) -> None:
        if not self.peek():
            message = _CUT_OFF
        raise JsonFault(message, self.offset)

    def list_members(self) -> Iterator[str]:
        """Return the names in the next object; the caller reads the value of each."""
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
        """Return the span of each item of the next array."""
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


def split_values(builder: ShardBuilder, start: int, end: int) -> Iterator[Shard]:
    """Build shards of JSON values that follow each other; a large one may be a list."""
    cursor = JsonCursor(builder.given, start, end)
    run: list[DocumentSpan] = []
    while following := cursor.peek():
        begin = cursor.offset
        if following == "#":
            yield from builder.group(run)
            run = []
            yield _pass_comments(builder, cursor, end)
            continue
        try:
            if cursor.read_value(builder.limits.split) is None:
                # A null alone is an empty document, but here it follows content.
                raise JsonFault(_NO_JSON, begin)
        except JsonFault:
            yield from builder.group(run)
            run = []
            if cursor.wasted > _MAX_WASTED + _WASTE_PER_BYTE * (begin - start):
                yield builder.build_fault(
                    begin, end, "too many invalid values: the rest is not read"
                )
                return
            cursor.seek(begin)
            yield from _split_list(builder, cursor, end)
            continue
        run.append(DocumentSpan(begin, cursor.offset))
        if cursor.offset - run[0].start >= builder.shard_bytes:
            yield from builder.group(run)
            run = []
    yield from builder.group(run)


def _split_list(builder: ShardBuilder, cursor: JsonCursor, end: int) -> Iterator[Shard]:
    """Build shards of a large JSON value and skip it; an invalid one ends where the next begins."""
    starts, start, position = cursor.peek(), cursor.offset, builder.position
    around, shards = dict[str, Json](), list[Shard]()
    is_clear = True
    try:
        for name in cursor.list_members():
            # The last of two members with one name counts: such an object is not split.
            is_clear = is_clear and name not in around
            if name == "items" and cursor.peek() == "[":
                around[name] = []
                items = _SoundItems(cursor, builder.limits.document)
                shards += builder.group(items.read())
                items.check()
            else:
                value = cursor.read_value(builder.limits.document)
                # All of them together could be as large as the input.
                around[name] = value if isinstance(value, str) else None
    except JsonFault as fault:
        is_clear = False
        resumed = _find_next_value(builder.given, max(start, fault.offset - 1), end)
        cursor.seek(resumed)
        if shards:
            yield from shards
            yield builder.build_fault(fault.offset, resumed, fault.message)
            return
    if is_clear and is_list(around) and around.get("items") == []:
        yield from shards
        return
    builder.position = position
    if starts == "{":
        yield builder.build_whole(start, cursor.offset)
    else:
        yield builder.build_fault(start, cursor.offset, _NO_JSON)


def _pass_comments(builder: ShardBuilder, cursor: JsonCursor, end: int) -> Shard:
    """Return comments between JSON values as a shard without resources, and skip them."""
    start, is_sound = cursor.offset, True
    while cursor.peek() == "#" and is_sound:
        begin = cursor.offset
        after = min(_find(builder.given, begin, end, b"\n") + 1, end)
        line = builder.given.read(begin, min(after, begin + builder.limits.document))
        # For YAML, what follows another line end is content.
        is_sound = OTHER_BREAK.search(line) is None
        cursor.seek(after)
    if is_sound:
        return builder.build_whole(start, cursor.offset)
    return builder.build_fault(start, cursor.offset, _NO_JSON)


class _SoundItems:
    """The items before a fault are kept."""

    def __init__(self, cursor: JsonCursor, limit: int) -> None:
        self._items = cursor.list_items(limit)
        self._fault: JsonFault | None = None

    def read(self) -> Iterator[DocumentSpan]:
        try:
            yield from self._items
        except JsonFault as fault:
            self._fault = fault

    def check(self) -> None:
        """Raise the fault."""
        if self._fault is not None:
            raise self._fault


def _find_next_value(given: Input, start: int, end: int) -> int:
    """Return the start of the next line that begins with a brace, or the end."""
    return min(_find(given, start, end, b"\n{") + 1, end)


def _find(given: Input, start: int, end: int, wanted: bytes) -> int:
    """Return the next offset of one or two characters, or the end."""
    position, window = start, _FIRST_WINDOW
    while position < end:
        after = min(position + window, end)
        found = given.read(position, min(after + 1, end)).find(wanted)
        if found >= 0:
            return position + found
        # Small at first: mostly it is the next line, and there may be many of them.
        position, window = after, min(window * 2, COPY_BYTES)
    return end
