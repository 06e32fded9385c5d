"""Cuts an input into shards, in one pass that holds no more of it than a window.

Documents are what stands between `---` lines. One of them may hold many resources: JSON values that
follow each other (JSON lines), or a `v1` List that is too large to be parsed at once; those are for
`item_shards`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from lictor.cli.inputs.inputs import Input, read_windows
from lictor.cli.inputs.resources import (
    DocumentSpan,
    find_documents,
    leave_tool_files,
    may_hide_words,
)
from lictor.cli.inputs.shards import Shard, ShardForm
from lictor.cli.inputs.sources import SourceText

# So many shards (as a power of two) are made of an input of up to 8 GB.
_SHARDS_POWER: Final = 14
# Documents with these words are looked for before anything is judged.
MARKED_WORDS: Final = (b"Namespace", b"CustomResourceDefinition", b"PolicyException")
_READ_ONE_BY_ONE = (
    "only documents between `---`, JSON lines and the items of a v1 List are read one by one"
)
_SEPARATOR: Final = b"\n---"
# Never in a JSON value but in its texts. A comment may be between two values.
_JOINT = re.compile(rb"\}\s*[#{]")
# A comment ends where YAML ends a line: what stands behind another line end is content.
_COMMENT = rb"#[^\r\n\xc2\xe2]*(?:(?:\xc2(?!\x85)|\xe2(?!\x80[\xa8\xa9]))[^\r\n\xc2\xe2]*)*"
# re: linear - nothing follows that could fail, so no way back is tried
_BEFORE_CONTENT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:---(?=[ \t\r\n]))?(?:[ \t\r\n]+|%b)*" % _COMMENT
)


class ShardBounds(msgspec.Struct, frozen=True):
    """How much is held at once, in bytes."""

    # A single document up to this size is parsed as a whole, whatever it is.
    split: int = 512 << 10
    # The largest document, or item of a list.
    document: int = 64 << 20
    smallest_shard: int = 32 << 10

    def choose_shard(self, size: int) -> int:
        """About how large the shards of an input are."""
        # What is larger than this is a single document.
        return min(max(size >> _SHARDS_POWER, self.smallest_shard), self.split)


class LineCount(msgspec.Struct, frozen=True):
    """The lines before an offset, and where the line begins that it stands in."""

    offset: int = 0
    lines: int = 0
    begin: int = 0


class ShardMaker:
    """Makes the shards of one input, in order; counts its lines on the way."""

    def __init__(self, given: Input, source: int, bounds: ShardBounds) -> None:
        self.given = given
        self.bounds = bounds
        self.shard_bytes = bounds.choose_shard(given.size)
        self._source = source
        # May be set back to make other shards of a stretch.
        self.counted = LineCount()

    def group(self, spans: Iterable[DocumentSpan], form: ShardForm) -> Iterator[Shard]:
        """Documents that follow each other, as shards."""
        run: list[DocumentSpan] = []
        for span in spans:
            run.append(span)
            if span.end - run[0].start >= self.shard_bytes:
                yield self.make(DocumentSpan(run[0].start, span.end), form, len(run))
                run = []
        if run:
            yield self.make(DocumentSpan(run[0].start, run[-1].end), form, len(run))

    def make_whole(self, start: int, end: int) -> Shard:
        """One document that is not taken apart."""
        if end - start > self.bounds.document:
            message = f"a document of more than {self.bounds.document} bytes: {_READ_ONE_BY_ONE}"
            return self.make_fault(start, end, message)
        return self.make(DocumentSpan(start, end), ShardForm.WHOLE, 1)

    def make_fault(self, start: int, end: int, message: str) -> Shard:
        """What cannot be read, and why."""
        at, span = self.count_lines(start), DocumentSpan(start, end)
        column = start - at.begin
        return Shard(self._source, span, at.lines, column, ShardForm.WHOLE, 1, fault=message)

    def make(
        self, span: DocumentSpan, form: ShardForm, count: int, data: bytes | None = None
    ) -> Shard:
        """A shard of so many documents; its bytes are read where they are not at hand."""
        at = self.count_lines(span.start)
        if data is None:
            data = self.given.read(span.start, span.end)
        self.counted = _count_on(at, data)
        hides = may_hide_words(data)
        words = frozenset(word for word in MARKED_WORDS if hides or word in data)
        column = span.start - at.begin
        return Shard(self._source, span, at.lines, column, form, count, words=words)

    def count_lines(self, offset: int) -> LineCount:
        """The lines before an offset; counts on from the last one asked for."""
        for part in read_windows(self.given, self.counted.offset, offset):
            self.counted = _count_on(self.counted, part)
        return self.counted


class ShardFinder:
    """Finds the shards of one input, in order."""

    def __init__(
        self, given: Input, source: int, bounds: ShardBounds, *, is_payload: bool = False
    ) -> None:
        self._given = given
        self._maker = ShardMaker(given, source, bounds)
        # A payload is no resource, and so no tool's file.
        self._is_payload = is_payload
        # What was left out, and why.
        self.skipped: list[str] = []

    def find(self) -> Iterator[Shard]:
        """All shards; what cannot be read is one that says why."""
        position = 0
        while position < self._given.size:
            end = self._find_cut(position)
            if end - position <= self._maker.bounds.split:
                yield from self._split_short(position, self._given.read(position, end))
            else:
                yield from _split_long(self._maker, position, end)
            position = end

    def _find_cut(self, start: int) -> int:
        """Where the documents end that fill a shard, or the first one if it is larger."""
        size = self._given.size
        window = self._given.read(start, min(start + self._maker.shard_bytes, size))
        if start + len(window) == size:
            return size
        found = window.rfind(_SEPARATOR)
        if found >= 0:
            return start + found + 1
        # Looked through with what may be the other half of a separator behind each part.
        position = start + len(window) - len(_SEPARATOR)
        for part in read_windows(self._given, position, size):
            after = position + len(part)
            rest = self._given.read(after, min(after + len(_SEPARATOR), size))
            separator = (part + rest).find(_SEPARATOR)
            if separator >= 0:
                return position + separator + 1
            position = after
        return size

    def _split_short(self, start: int, data: bytes) -> Iterator[Shard]:
        """Shards of documents that are held; JSON values that follow each other stand alone."""
        maker, spans = self._maker, find_documents(data)
        kept = spans
        if not self._is_payload:
            text, lines = SourceText(self._given.path, data), maker.count_lines(start).lines
            kept, skipped = leave_tool_files(text, spans, lines)
            self.skipped += skipped
        for run in _list_runs(spans, kept, data):
            first, last = run[0].start, run[-1].end
            if len(run) == 1 and _is_joined(data, run[0]):
                begin = start + _skip_to_content(data, first)
                yield from _split_values(maker, begin, start + last)
            else:
                span = DocumentSpan(start + first, start + last)
                yield maker.make(span, ShardForm.DOCUMENTS, len(run), data[first:last])


def _split_long(maker: ShardMaker, start: int, end: int) -> Iterator[Shard]:
    """Shards of one document that is too large to be held."""
    # Loaded when needed, as below: most inputs are small, and start-up counts.
    from lictor.cli.inputs.item_shards import split_yaml_list

    head = maker.given.read(start, min(start + maker.shard_bytes, end))
    begin = _skip_to_content(head)
    if head.startswith(b"{", begin):
        return _split_values(maker, start + begin, end)
    return split_yaml_list(maker, start, end)


def _split_values(maker: ShardMaker, start: int, end: int) -> Iterator[Shard]:
    from lictor.cli.inputs.item_shards import split_values

    return split_values(maker, start, end)


def _count_on(known: LineCount, data: bytes) -> LineCount:
    last = data.rfind(b"\n")
    begin = known.begin if last < 0 else known.offset + last + 1
    return LineCount(known.offset + len(data), known.lines + data.count(b"\n"), begin)


def _skip_to_content(data: bytes, start: int = 0) -> int:
    found = _BEFORE_CONTENT.match(data, start)
    return found.end() if found else start


def _is_joined(data: bytes, span: DocumentSpan) -> bool:
    """Whether a document may be several JSON values."""
    begin = _skip_to_content(data, span.start)
    return data.startswith(b"{", begin) and _JOINT.search(data, begin, span.end) is not None


def _list_runs(
    spans: Sequence[DocumentSpan], kept: Sequence[DocumentSpan], data: bytes
) -> Iterator[Sequence[DocumentSpan]]:
    """The documents that are kept, in stretches; several JSON values are one of their own."""
    joined = [span for span in spans if _is_joined(data, span)]
    if len(kept) == len(spans) and not joined:
        yield from (spans,) if spans else ()
        return
    run: list[DocumentSpan] = []
    for span in spans:
        if span in kept and span not in joined:
            run.append(span)
            continue
        if run:
            yield run
            run = []
        if span in kept:
            yield (span,)
    if run:
        yield run
