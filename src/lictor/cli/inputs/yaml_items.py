"""Where does each item of a large `v1` List in YAML lie? Found by its lines; nothing is parsed.

Only what kubectl and people write is taken apart: a mapping whose `items:` holds a block sequence,
each item begun by a dash at the same depth. Lines of an item stand deeper than its dash.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lictor.cli.inputs.inputs import COPY_BYTES, Input
from lictor.cli.inputs.resources import DocumentSpan
from lictor.core.errors import LoadError
from lictor.core.load.yaml import Document, iter_documents

_HEAD_BYTES: Final = 64 << 10
_MAX_LINE: Final = 64 << 20
_ITEMS = re.compile(rb"^items:[ \t]*(?:#[^\n]*|\r)?\n(?:[ \t]*(?:#[^\n]*|\r)?\n)*(?=( *)-\s)", re.M)


# What ends a line for YAML, and not here: what stands behind it could be anything. What a byte
# order mark means depends on where in the document it stands.
OTHER_BREAK = re.compile(rb"\r(?!\n)|\xc2\x85|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf")


class ItemList(msgspec.Struct, frozen=True):
    """The head of a list that may be taken apart."""

    # Where the head begins, and where the first item does.
    start: int
    first: int
    indent: int


def find_item_list(given: Input, start: int, end: int) -> ItemList | None:
    """The head of a list; None where the document is something else."""
    head = given.read(start, min(start + _HEAD_BYTES, end))
    found = _ITEMS.search(head)
    return None if found is None else ItemList(start, start + found.end(), len(found[1]))


def _compile_line(indent: int) -> re.Pattern[bytes]:
    """A line that stands no deeper than the dashes, and is no comment; with or without a dash."""
    # re: linear - one repetition with a bound
    return re.compile(rb"^( {0,%d})(?=[^\s#])(-(?=\s))?" % indent, re.MULTILINE)


class ItemWalk:
    """Goes through the items of a list; knows afterwards whether it was one."""

    def __init__(self, given: Input, head: ItemList, end: int) -> None:
        self._given = given
        self._head = head
        self._end = end
        # Where what comes after the items begins.
        self._tail = end
        self._has_other_breaks = False

    def list_items(self) -> Iterator[DocumentSpan]:
        """Where each item lies, its dash included."""
        start = -1
        for offset, is_item in self._list_lines():
            if start >= 0:
                yield DocumentSpan(start, offset)
            start = offset
            if not is_item:
                self._tail = offset
                return
        if start >= 0:
            yield DocumentSpan(start, self._end)

    def _list_lines(self) -> Iterator[tuple[int, bool]]:
        line, indent = _compile_line(self._head.indent), self._head.indent
        position, rest = self._head.first, b""
        while position < self._end:
            part = self._given.read(position, min(position + COPY_BYTES, self._end))
            position += len(part)
            text = rest + part
            begin = position - len(text)
            # The last line may go on in the next part.
            whole = len(text) if position == self._end else text.rfind(b"\n") + 1
            self._has_other_breaks |= OTHER_BREAK.search(text, 0, whole) is not None
            for found in line.finditer(text, 0, whole):
                yield begin + found.start(), found[2] is not None and len(found[1]) == indent
            rest = text[whole:]
            if len(rest) > _MAX_LINE:
                raise LoadError(f"a line of more than {_MAX_LINE} bytes", where=self._given.path)

    def is_list(self) -> bool:
        """Whether what stands around the items says that this is a `v1` List."""
        if self._has_other_breaks or self._end - self._tail > _HEAD_BYTES:
            return False
        head = self._given.read(self._head.start, self._head.first)
        around = head + b"- {}\n" + self._given.read(self._tail, self._end)
        try:
            documents = list(iter_documents(around, self._given.path))
        except LoadError:
            return False
        return len(documents) == 1 and is_list(documents[0].body) and _holds_one(documents[0])


def _holds_one(document: Document) -> bool:
    """Whether the item that was put in is all: other `items` would count instead of these."""
    is_repeated = any(key == "items" for key, _, _ in document.duplicates)
    return document.body["items"] == [{}] and not is_repeated


def is_list(body: object) -> bool:
    """Whether an object is a `v1` List."""
    return isinstance(body, dict) and (body.get("apiVersion"), body.get("kind")) == ("v1", "List")


def split_items(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The items in a stretch of a list: where each begins, and its text without the dash."""
    indent = len(content) - len(content.lstrip(b" "))
    starts = [found.start() for found in _compile_line(indent).finditer(content) if found[2]]
    for start, end in zip(starts, (*starts[1:], len(content)), strict=True):
        dash = start + indent
        # Blanks in its place: every line and column stays what it is.
        yield start, b"%b %b" % (content[start:dash], content[dash + 1 : end])
