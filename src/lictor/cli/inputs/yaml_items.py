"""Finds the items of a large `v1` List in YAML by their lines; nothing is parsed.

Only the form that kubectl writes is split: a mapping whose `items:` holds a block sequence, each
item begun by a dash at the same depth. Lines of an item are indented deeper than its dash.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lictor.cli.inputs.inputs import COPY_BYTES, Input
from lictor.cli.inputs.resources import DocumentSpan
from lictor.cli.inputs.shards import Shard, ShardBuilder
from lictor.core.errors import LoadError
from lictor.core.load.yaml import Document, iter_documents

_HEAD_BYTES: Final = 64 << 10
_MAX_LINE: Final = 64 << 20
_ITEMS = re.compile(rb"^items:[ \t]*(?:#[^\n]*|\r)?\n(?:[ \t]*(?:#[^\n]*|\r)?\n)*(?=( *)-\s)", re.M)


# Line ends of YAML that are not `\n`: what follows one could be anything. The meaning of a byte
# order mark depends on its place in the document.
OTHER_BREAK = re.compile(rb"\r(?!\n)|\xc2\x85|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf")


class _ItemList(msgspec.Struct, frozen=True):
    """The head of a list that may be split."""

    # The start of the head, and of the first item.
    start: int
    first: int
    indent: int


def _find_item_list(given: Input, start: int, end: int) -> _ItemList | None:
    """Return the head of a list; None for another document."""
    head = given.read(start, min(start + _HEAD_BYTES, end))
    found = _ITEMS.search(head)
    return None if found is None else _ItemList(start, start + found.end(), len(found[1]))


def _compile_line(indent: int) -> re.Pattern[bytes]:
    """Match a line that is indented no deeper than the dashes, and is no comment."""
    # re: linear - one repetition with a bound
    return re.compile(rb"^( {0,%d})(?=[^\s#])(-(?=\s))?" % indent, re.MULTILINE)


class _ItemWalk:
    """Reads the items of a list; afterwards `is_list` is known."""

    def __init__(self, given: Input, head: _ItemList, end: int) -> None:
        self._given = given
        self._head = head
        self._end = end
        # The end of the items.
        self._tail = end
        self._has_other_breaks = False

    def list_items(self) -> Iterator[DocumentSpan]:
        """Return the span of each item, with its dash."""
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
            # The last line may continue in the next part.
            whole = len(text) if position == self._end else text.rfind(b"\n") + 1
            self._has_other_breaks |= OTHER_BREAK.search(text, 0, whole) is not None
            for found in line.finditer(text, 0, whole):
                yield begin + found.start(), found[2] is not None and len(found[1]) == indent
            rest = text[whole:]
            if len(rest) > _MAX_LINE:
                raise LoadError(f"a line of more than {_MAX_LINE} bytes", where=self._given.path)

    def is_list(self) -> bool:
        """Whether the fields around the items are those of a `v1` List."""
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
    """Whether there is only the inserted item: other `items` would replace these."""
    is_repeated = any(key == "items" for key, _, _ in document.duplicates)
    return document.body["items"] == [{}] and not is_repeated


def is_list(body: object) -> bool:
    """Whether an object is a `v1` List."""
    return isinstance(body, dict) and (body.get("apiVersion"), body.get("kind")) == ("v1", "List")


def split_yaml_list(builder: ShardBuilder, start: int, end: int) -> Iterator[Shard]:
    """Build shards of the items of a list; another document stays whole."""
    position, items = builder.position, _find_item_list(builder.given, start, end)
    if items is not None:
        walk = _ItemWalk(builder.given, items, end)
        shards = list(builder.group(walk.list_items(), is_items=True))
        if walk.is_list():
            yield from shards
            return
        builder.position = position
    yield builder.build_whole(start, end)
