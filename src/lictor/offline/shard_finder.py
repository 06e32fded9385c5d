"""Cuts an input into shards, in one pass that holds no more of it than a window.

Documents are what stands between `---` lines, JSON values that follow each other (JSON lines), or
the items of a `v1` List that is too large to be parsed at once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from lictor.offline.inputs import Input, read_windows
from lictor.offline.json_values import JsonCursor, JsonFault, ValueSpan
from lictor.offline.resources import DocumentSpan, find_documents, leave_tool_files
from lictor.offline.shards import Shard, ShardForm
from lictor.offline.sources import SourceText
from lictor.offline.yaml_items import ItemWalk, find_item_list, is_list
from lictor.raw import Json

# So many shards (as a power of two) are made of an input of up to 8 GB.
_SHARDS_POWER: Final = 14
# Documents with these words are looked for before anything is judged.
MARKED_WORDS: Final = (b"Namespace", b"CustomResourceDefinition", b"PolicyException")
_READ_ONE_BY_ONE = (
    "only documents between `---`, JSON lines and the items of a v1 List are read one by one"
)
_SEPARATOR: Final = b"\n---"
_SEPARATOR_LINE = re.compile(rb"\n---(?=\s)")
# Never in a JSON value but in its texts.
_JOINT = re.compile(rb"\}\s*\{")
_BEFORE_CONTENT = re.compile(rb"(?:---(?=\s))?(?:\s++|#[^\n]*+)*+")


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


class _LineCount(msgspec.Struct, frozen=True):
    """The lines before an offset, and where the line begins that it stands in."""

    offset: int = 0
    lines: int = 0
    begin: int = 0


class ShardFinder:
    """Finds the shards of one input, in order."""

    def __init__(
        self, given: Input, source: int, bounds: ShardBounds, *, is_payload: bool = False
    ) -> None:
        self._given = given
        self._bounds = bounds
        self._source = source
        # A payload is no resource: it is no list, and no tool's file.
        self._is_payload = is_payload
        self._shard_bytes = bounds.choose_shard(given.size)
        self._counted = _LineCount()
        # What was left out, and why.
        self.skipped: list[str] = []

    def find(self) -> Iterator[Shard]:
        """All shards; what cannot be read is one that says why."""
        position = 0
        while position < self._given.size:
            end = self._find_cut(position)
            if end - position <= self._bounds.split or self._is_payload:
                yield from self._split_short(position, self._given.read(position, end))
            else:
                yield from self._split_long(position, end)
            position = end

    def _find_cut(self, start: int) -> int:
        """Where the documents end that fill a shard, or the first one if it is larger."""
        size = self._given.size
        window = self._given.read(start, min(start + self._shard_bytes, size))
        if start + len(window) == size:
            return size
        found = len(window)
        while (found := window.rfind(_SEPARATOR, 0, found)) >= 0:
            if window[found + 4 : found + 5].isspace():
                return start + found + 1
        # Looked through with what may be the other half of a separator behind each part.
        position = start + len(window) - len(_SEPARATOR)
        for part in read_windows(self._given, position, size):
            after = position + len(part)
            rest = self._given.read(after, min(after + len(_SEPARATOR), size))
            separator = _SEPARATOR_LINE.search(part + rest)
            if separator:
                return position + separator.start() + 1
            position = after
        return size

    def _split_short(self, start: int, data: bytes) -> Iterator[Shard]:
        """Shards of documents that are held; JSON values that follow each other stand alone."""
        spans = kept = find_documents(data)
        if not self._is_payload:
            text, lines = SourceText(self._given.path, data), self._count_lines(start).lines
            kept, skipped = leave_tool_files(text, spans, lines)
            self.skipped += skipped
        for run in _list_runs(spans, kept, data):
            first, last = run[0].start, run[-1].end
            if len(run) == 1 and _is_joined(data, run[0]):
                yield from self._split_values(start + first, start + last)
            else:
                span = ValueSpan(start + first, start + last)
                yield self._make(span, ShardForm.DOCUMENTS, len(run), data[first:last])

    def _split_long(self, start: int, end: int) -> Iterator[Shard]:
        """Shards of one document that is too large to be held."""
        head = self._given.read(start, min(start + self._shard_bytes, end))
        if head[_skip_to_content(head) :].startswith(b"{"):
            yield from self._split_values(start, end)
            return
        counted, items = self._counted, find_item_list(self._given, start, end)
        if items is not None:
            walk = ItemWalk(self._given, items, end)
            shards = list(self._group(walk.list_items(), ShardForm.YAML_ITEMS))
            if walk.is_list():
                yield from shards
                return
            self._counted = counted
        yield self._make_whole(start, end)

    def _split_values(self, start: int, end: int) -> Iterator[Shard]:
        """Shards of JSON values that follow each other; a large one may be a list."""
        head = self._given.read(start, min(start + self._shard_bytes, end))
        cursor = JsonCursor(self._given, start + _skip_to_content(head), end)
        run: list[ValueSpan] = []
        while cursor.peek():
            begin = cursor.offset
            try:
                cursor.read_value(self._bounds.split)
            except JsonFault:
                yield from self._group(run, ShardForm.JSON_VALUES)
                run = []
                cursor.seek(begin)
                yield from self._split_list(cursor, end)
                continue
            run.append(ValueSpan(begin, cursor.offset))
            if cursor.offset - run[0].start >= self._shard_bytes:
                yield from self._group(run, ShardForm.JSON_VALUES)
                run = []
        yield from self._group(run, ShardForm.JSON_VALUES)

    def _split_list(self, cursor: JsonCursor, end: int) -> Iterator[Shard]:
        """Shards of a large JSON value, and go past it; a broken one ends where the next begins."""
        start, counted = cursor.offset, self._counted
        around, shards = dict[str, Json](), list[Shard]()
        try:
            for name in cursor.list_members():
                if name == "items" and cursor.peek() == "[":
                    items = cursor.list_items(self._bounds.document)
                    # One by one: those before a fault are not lost.
                    for shard in self._group(items, ShardForm.JSON_VALUES):
                        shards.append(shard)
                else:
                    around[name] = cursor.read_value(self._bounds.document)
        except JsonFault as fault:
            resumed = self._find_next_value(max(start, fault.offset - 1), end)
            cursor.seek(resumed)
            if shards:
                shards.append(self._make_fault(fault.offset, resumed, fault.message))
                yield from shards
                return
        if not is_list(around):
            self._counted = counted
            shards = [self._make_whole(start, cursor.offset)]
        yield from shards

    def _find_next_value(self, start: int, end: int) -> int:
        """Where the next line begins that begins with a brace; the end where there is none."""
        position = start
        for part in read_windows(self._given, start, end):
            after = position + len(part)
            found = (part + self._given.read(after, min(after + 1, end))).find(b"\n{")
            if found >= 0:
                return position + found + 1
            position = after
        return end

    def _group(self, spans: Iterable[ValueSpan], form: ShardForm) -> Iterator[Shard]:
        """Documents that follow each other as shards; those before a fault come before it."""
        run: list[ValueSpan] = []
        fault: JsonFault | None = None
        try:
            for span in spans:
                run.append(span)
                if span.end - run[0].start >= self._shard_bytes:
                    yield self._make(ValueSpan(run[0].start, span.end), form, len(run))
                    run = []
        except JsonFault as error:
            fault = error
        if run:
            yield self._make(ValueSpan(run[0].start, run[-1].end), form, len(run))
        if fault is not None:
            raise fault

    def _make_whole(self, start: int, end: int) -> Shard:
        if end - start > self._bounds.document:
            message = f"a document of more than {self._bounds.document} bytes: {_READ_ONE_BY_ONE}"
            return self._make_fault(start, end, message)
        return self._make(ValueSpan(start, end), ShardForm.WHOLE, 1)

    def _make_fault(self, start: int, end: int, message: str) -> Shard:
        at, span = self._count_lines(start), ValueSpan(start, end)
        column = start - at.begin
        return Shard(self._source, span, at.lines, column, ShardForm.WHOLE, 1, fault=message)

    def _make(
        self, span: ValueSpan, form: ShardForm, count: int, data: bytes | None = None
    ) -> Shard:
        at = self._count_lines(span.start)
        if data is None:
            data = self._given.read(span.start, span.end)
        self._counted = _count_on(at, data)
        words = frozenset(word for word in MARKED_WORDS if word in data)
        column = span.start - at.begin
        return Shard(self._source, span, at.lines, column, form, count, words=words)

    def _count_lines(self, offset: int) -> _LineCount:
        """The lines before an offset; counts on from the last one asked for."""
        for part in read_windows(self._given, self._counted.offset, offset):
            self._counted = _count_on(self._counted, part)
        return self._counted


def _count_on(known: _LineCount, data: bytes) -> _LineCount:
    last = data.rfind(b"\n")
    begin = known.begin if last < 0 else known.offset + last + 1
    return _LineCount(known.offset + len(data), known.lines + data.count(b"\n"), begin)


def _skip_to_content(data: bytes, start: int = 0) -> int:
    found = _BEFORE_CONTENT.match(data, start)
    return found.end() if found else start


def _is_joined(data: bytes, span: DocumentSpan) -> bool:
    """Whether a document is several JSON values."""
    begin = _skip_to_content(data, span.start)
    return data.startswith(b"{", begin) and bool(_JOINT.search(data, begin, span.end))


def _list_runs(
    spans: Sequence[DocumentSpan], kept: Sequence[DocumentSpan], data: bytes
) -> Iterator[Sequence[DocumentSpan]]:
    """The documents that are kept, in stretches; several JSON values are one of their own."""
    if len(kept) == len(spans) and not _JOINT.search(data):
        yield from (spans,) if spans else ()
        return
    run: list[DocumentSpan] = []
    for span in spans:
        is_joined = _is_joined(data, span)
        if span in kept and not is_joined:
            run.append(span)
            continue
        if run:
            yield run
            run = []
        if span in kept:
            yield (span,)
    if run:
        yield run
