"""A shard: documents of one input that follow each other, small enough for a worker to hold.

A process that has the input and the shard can evaluate its documents without reading anything else.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lictor.cli.inputs.inputs import Input, read_windows
from lictor.cli.inputs.resources import DocumentSpan, DocumentText, may_hide_words
from lictor.core.errors import LoadError

# An input of up to 8 GB has about two to this power of shards.
_SHARDS_POWER: Final = 14
# Documents with these words are looked up before anything is evaluated.
MARKED_WORDS: Final = (b"Namespace", b"CustomResourceDefinition", b"PolicyException")
_READ_ONE_BY_ONE = (
    "only documents between `---`, JSON lines and the items of a v1 List are read one by one"
)


class Shard(msgspec.Struct, frozen=True):
    """Documents of one input."""

    # The number of the input.
    source: int
    span: DocumentSpan
    # The lines of the input before the span, and the characters of its first line before it.
    line: int
    column: int
    # The start and end of each document, relative to the span.
    offsets: "array[int]"
    # Whether documents are items of a YAML list, each with its dash.
    is_items: bool = False
    # Why the documents cannot be read.
    fault: str = ""
    # The marked words that the documents contain.
    words: frozenset[bytes] = frozenset()

    @property
    def size(self) -> int:
        return self.span.end - self.span.start

    @property
    def count(self) -> int:
        """The number of documents."""
        return len(self.offsets) // 2

    def read(self, given: Input) -> Iterator[DocumentText]:
        """Return the documents, in order. Raises LoadError if they cannot be read."""
        path, line, counted = given.path, self.line, 0
        if self.fault:
            raise LoadError(self.fault, where=f"{path}:{line + 1}:{self.column + 1}")
        data = given.read(self.span.start, self.span.end)
        for start, end in zip(self.offsets[::2], self.offsets[1::2], strict=True):
            line += data.count(b"\n", counted, start)
            counted = start
            begin = data.rfind(b"\n", 0, start) + 1
            column = start - begin + (0 if begin else self.column)
            content = _blank_dash(data[start:end]) if self.is_items else data[start:end]
            yield DocumentText(path, content, line, column)


def _blank_dash(item: bytes) -> bytes:
    """Replace the dash by a blank, so that every line and column stays the same."""
    indent = len(item) - len(item.lstrip(b" "))
    return b"%b %b" % (item[:indent], item[indent + 1 :])


class ShardLimits(msgspec.Struct, frozen=True):
    """How much is held at once, in bytes."""

    # A single document up to this size is always parsed as a whole.
    split: int = 512 << 10
    # The largest document, or item of a list.
    document: int = 64 << 20
    smallest_shard: int = 32 << 10


class _Position(msgspec.Struct, frozen=True):
    """An offset, the number of lines before it, and where its line begins."""

    offset: int = 0
    lines: int = 0
    begin: int = 0


class ShardBuilder:
    """Builds the shards of one input, in order, and counts lines on the way."""

    def __init__(self, given: Input, source: int, limits: ShardLimits) -> None:
        self.given = given
        self.limits = limits
        # About how large a shard is; what is larger than `split` is a single document.
        smallest = max(given.size >> _SHARDS_POWER, limits.smallest_shard)
        self.shard_bytes = min(smallest, limits.split)
        self._source = source
        # May be set back, to build other shards of the same range.
        self.position = _Position()

    def group(self, spans: Iterable[DocumentSpan], *, is_items: bool = False) -> Iterator[Shard]:
        """Build shards of documents that follow each other."""
        run: list[DocumentSpan] = []
        for span in spans:
            run.append(span)
            if span.end - run[0].start >= self.shard_bytes:
                yield self.build(run, is_items=is_items)
                run = []
        if run:
            yield self.build(run, is_items=is_items)

    def build_whole(self, start: int, end: int) -> Shard:
        """Build the shard of one document that is not split."""
        if end - start > self.limits.document:
            message = f"a document of more than {self.limits.document} bytes: {_READ_ONE_BY_ONE}"
            return self.build_fault(start, end, message)
        return self.build([DocumentSpan(start, end)])

    def build_fault(self, start: int, end: int, message: str) -> Shard:
        """Build the shard of a range that cannot be read."""
        at, span = self.count_lines(start), DocumentSpan(start, end)
        offsets = array("Q", (0, end - start))
        return Shard(self._source, span, at.lines, start - at.begin, offsets, fault=message)

    def build(self, run: list[DocumentSpan], *, is_items: bool = False) -> Shard:
        """Build a shard of these documents."""
        start, end = run[0].start, run[-1].end
        at, data = self.count_lines(start), self.given.read(start, end)
        self.position = _advance(at, data)
        is_hidden = may_hide_words(data)
        words = frozenset(word for word in MARKED_WORDS if is_hidden or word in data)
        offsets = array("Q", [at - start for span in run for at in (span.start, span.end)])
        span, column = DocumentSpan(start, end), start - at.begin
        return Shard(self._source, span, at.lines, column, offsets, is_items, words=words)

    def count_lines(self, offset: int) -> _Position:
        """Return the position of an offset; counts on from the last one."""
        if self.position.offset < offset:
            for part in read_windows(self.given, self.position.offset, offset):
                self.position = _advance(self.position, part)
        return self.position


def _advance(position: _Position, data: bytes) -> _Position:
    last = data.rfind(b"\n")
    begin = position.begin if last < 0 else position.offset + last + 1
    return _Position(position.offset + len(data), position.lines + data.count(b"\n"), begin)
