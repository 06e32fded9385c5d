"""Finds the documents of inputs in one pass that holds no more than a window, and reads them.

Documents are separated by `---` lines. One of them may hold many resources: JSON values that follow
each other (JSON lines), or a `v1` List that is too large to be parsed at once.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from lictor.cli.inputs.inputs import (
    KEPT_BYTES,
    Input,
    KeptInput,
    find_packing,
    open_input,
    read_windows,
)
from lictor.cli.inputs.resources import (
    DocumentSpan,
    DocumentText,
    find_documents,
    holds_word,
    leave_tool_files,
    parse_document,
)
from lictor.cli.inputs.shards import MARKED_WORDS, Shard, ShardBuilder, ShardLimits
from lictor.cli.inputs.sources import SourceText, is_pattern, locate_resources
from lictor.core.errors import LictorError, LoadError
from lictor.core.files import LOGIN
from lictor.core.raw import JsonObject

# Gets the shards of an input while they are found, with its size, and returns them.
WatchShards: TypeAlias = Callable[[Iterable[Shard], int], Iterable[Shard]]
# Payloads are in memory, and none of them is a list of others.
_PAYLOAD_LIMITS = ShardLimits(split=sys.maxsize, document=sys.maxsize)
_DIVIDER = "-" * 70
_SEPARATOR: Final = b"\n---"
# Appears in a JSON value only within strings. A comment may be between two values.
_JOINT = re.compile(rb"\}\s*[#{]")
# A comment ends where YAML ends a line: what follows another line end is content.
_COMMENT = rb"#[^\r\n\xc2\xe2]*(?:(?:\xc2(?!\x85)|\xe2(?!\x80[\xa8\xa9]))[^\r\n\xc2\xe2]*)*"
# re: linear - nothing follows that could fail, so no way back is tried
_BEFORE_CONTENT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:---(?=[ \t\r\n]))?(?:[ \t\r\n]+|%b)*" % _COMMENT
)


class DocumentReader:
    """Documents of all inputs: found once, before anything is evaluated, and read by shards."""

    def __init__(
        self,
        inputs: Iterable[Input] = (),
        limits: ShardLimits | None = None,
        watch: WatchShards | None = None,
    ) -> None:
        self._limits = limits or ShardLimits()
        self._watch = watch
        self.inputs: list[Input] = []
        # For each input: empty for resources, else the mode of the policies for these payloads.
        self.modes: list[str] = []
        self.shards: list[Shard] = []
        # Documents that were left out, and why.
        self.skipped: list[str] = []
        for each in inputs:
            self.add(each)

    def add(self, given: Input, mode: str = "") -> None:
        """Find the documents of one more input."""
        limits = _PAYLOAD_LIMITS if mode else self._limits
        builder = ShardBuilder(given, len(self.inputs), limits)
        # A payload is not a resource, and so not the file of a tool.
        skipped = None if mode else self.skipped
        shards = _find_shards(builder, skipped)
        self.inputs.append(given)
        self.modes.append(mode)
        self.shards += self._watch(shards, given.size) if self._watch else shards

    @property
    def count(self) -> int:
        """The number of documents."""
        return sum(shard.count for shard in self.shards)

    def read(self, shard: Shard) -> Iterator[DocumentText]:
        """Return the documents of a shard. Raises LoadError if they cannot be read."""
        return shard.read(self.inputs[shard.source])

    def find(self, word: bytes, ignore_case: bool = False) -> Iterator[DocumentText]:  # noqa: FBT001, FBT002
        """Return the documents of resources that contain a word; unreadable ones are left out."""
        for shard in self.shards:
            if self.modes[shard.source] or shard.fault:
                continue
            if word in MARKED_WORDS and not ignore_case and word not in shard.words:
                continue
            for document in self.read(shard):
                if holds_word(document.content, word, ignore_case=ignore_case):
                    yield document

    def may_hold(self, word: bytes) -> bool:
        """Whether a document may contain one of MARKED_WORDS."""
        return any(word in shard.words for shard in self.shards)

    def list_resources(self) -> Iterator[JsonObject]:
        """Return all resources, one by one."""
        for shard in self.shards:
            if not self.modes[shard.source]:
                for document in self.read(shard):
                    yield from parse_document(document)

    def select(self, word: bytes) -> Iterator[SourceText]:
        """Return the documents that contain a kind, each as a separate text."""
        for each in self.find(word):
            # A word may be written with escapes: only parsing shows the kind then.
            if word in each.content or word.decode() in _list_kinds(each):
                yield SourceText(each.path, each.content)


def _list_kinds(document: DocumentText) -> set[str]:
    """Return the kinds in a document; an invalid document is reported when it is evaluated."""
    try:
        return {str(each["kind"]) for each in parse_document(document)}
    except LoadError:
        return set()


def _find_shards(builder: ShardBuilder, skipped: list[str] | None) -> Iterator[Shard]:
    """Find all shards of an input; a range that cannot be read is a shard with a fault."""
    position, given = 0, builder.given
    while position < given.size:
        is_last = given.size - position <= builder.shard_bytes
        end = given.size if is_last else _find_cut(builder, position)
        if end - position <= builder.limits.split:
            yield from _split_short(builder, position, given.read(position, end), skipped)
        else:
            yield from _split_long(builder, position, end)
        position = end


def _find_cut(builder: ShardBuilder, start: int) -> int:
    """Return the end of the documents that fill a shard, or of the first one if it is larger."""
    given, size = builder.given, builder.given.size
    window = given.read(start, start + builder.shard_bytes)
    found = window.rfind(_SEPARATOR)
    if found >= 0:
        return start + found + 1
    # Each part is searched with the bytes after it, which may be the rest of a separator.
    position = start + len(window) - len(_SEPARATOR)
    for part in read_windows(given, position, size):
        after = position + len(part)
        rest = given.read(after, min(after + len(_SEPARATOR), size))
        separator = (part + rest).find(_SEPARATOR)
        if separator >= 0:
            return position + separator + 1
        position = after
    return size


def _split_short(
    builder: ShardBuilder, start: int, data: bytes, skipped: list[str] | None
) -> Iterator[Shard]:
    """Build shards of documents that are in memory; JSON values in a row are separated."""
    spans = find_documents(data)
    if skipped is not None:
        lines = builder.count_lines(start).lines
        spans, left_out = leave_tool_files(SourceText(builder.given.path, data), spans, lines)
        skipped += left_out
    run: list[DocumentSpan] = []
    for span in spans:
        is_joined = _JOINT.search(data, span.start, span.end) is not None
        begin = _skip_to_content(data, span.start) if is_joined else span.start
        if is_joined and data.startswith(b"{", begin) and _JOINT.search(data, begin, span.end):
            if run:
                yield builder.build(run)
                run = []
            yield from _split_values(builder, start + begin, start + span.end)
        else:
            run.append(DocumentSpan(start + span.start, start + span.end))
    if run:
        yield builder.build(run)


def _split_long(builder: ShardBuilder, start: int, end: int) -> Iterator[Shard]:
    """Build shards of one document that is too large to be held."""
    # Imported here, as below: most inputs are small, and start-up time matters.
    from lictor.cli.inputs.yaml_items import split_yaml_list

    head = builder.given.read(start, min(start + builder.shard_bytes, end))
    begin = _skip_to_content(head)
    if head.startswith(b"{", begin):
        return _split_values(builder, start + begin, end)
    return split_yaml_list(builder, start, end)


def _split_values(builder: ShardBuilder, start: int, end: int) -> Iterator[Shard]:
    from lictor.cli.inputs.json_values import split_values

    return split_values(builder, start, end)


def _skip_to_content(data: bytes, start: int = 0) -> int:
    found = _BEFORE_CONTENT.match(data, start)
    return found.end() if found else start


def open_resources(
    paths: Iterable[str], warn: Callable[[str], None] | None = None
) -> Iterator[Input]:
    """Open the files that paths name, and those in archives.

    If a path after the first cannot be read, that is reported by `warn`, and the path is skipped.
    """
    kept = 0
    for number, path in enumerate(paths):
        try:
            located = list(locate_resources((path,)))
        except LictorError as error:
            report_unreadable(path, number, error, warn)
            continue
        for each in located:
            keep = kept < KEPT_BYTES
            try:
                opened = open_input(each, keep=keep)
            except LictorError as error:
                report_unreadable(path, number, error, warn)
                break
            members: Iterable[Input] = (opened,)
            if find_packing(opened) is not None:
                # Imported here: few inputs are archives, and start-up time matters.
                from lictor.cli.inputs.archives import unpack

                members = unpack(opened, keep=keep)
            # An invalid archive is always an error: the missing files are unknown.
            for given in members:
                kept += given.size if isinstance(given, KeptInput) else 0
                yield given


def report_unreadable(
    path: str, number: int, error: LictorError, warn: Callable[[str], None] | None
) -> None:
    """Report a path that cannot be read, or raise the error."""
    # Without the first path nothing might be evaluated, and a folder or pattern without files is
    # wrong, or would lose other files: the run must not succeed then.
    if warn is None or number == 0 or os.path.isdir(path) or is_pattern(path):
        raise error
    message = f"failed to load resources: {path}. \nerror: {error}"
    warn(f"\n{_DIVIDER}\n{LOGIN.sub('', message)}\n{_DIVIDER}")
