"""Text into plain JSON: YAML and JSON as Kubernetes reads them, document by document.

A broken document does not stop the ones after it. Where a value stands in the file is only worked
out when someone asks, by composing that one document again; the last one so composed is kept.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import orjson

from lictor.errors import LoadError
from lictor.lang.yaml.block_lines import read_block_lines
from lictor.lang.yaml.plain_json import MAX_DEPTH, YamlFault, check_depth, settle_json
from lictor.raw import Json

if TYPE_CHECKING:
    from yaml.nodes import Node

    from lictor.lang.yaml.build import Duplicate

Path: TypeAlias = tuple[str | int, ...]

# With its line feed: a pattern that begins with a text is looked for eight times as fast.
_SEPARATOR = re.compile(r"\n---(?=\s|\Z)")
# Possessive: a way back for each line would cost 170 bytes, and there is nothing to go back for.
_DIRECTIVES = re.compile(r"(?:[ \t\r]*(?:[#%][^\n]*)?(?:\n|\Z))*+")
# Numbers that JSON readers and Kubernetes' YAML reader hold differently: `2.0`, `1e3`, huge ones.
# Behind one stands what ends a value; most of what looks like it (`nginx:1.25`) stands in quotes.
_ODD_NUMBER = re.compile(r"[0-9](?:\.[0-9]|[eE][-+]?[0-9]|(?<=[0-9]{19}))[-+.eE0-9]*+(?=[\s,\]}])")
_BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"", "utf-8"))


class _Chunk(msgspec.Struct, frozen=True):
    """A stretch of a file between separators, and the line it begins at, counted from one."""

    text: str
    source: str
    line: int

    def locate(self, fault: YamlFault) -> LoadError:
        where = f"{self.source}:{self.line + fault.line}:{fault.column + 1}"
        return LoadError(fault.message, where=where)


class Document:
    """One document of a file: its JSON, and where it stands."""

    __slots__ = ("_chunk", "_index", "body", "duplicates", "line")

    def __init__(
        self,
        body: Json,
        chunk: _Chunk,
        line: int,
        index: int = 0,
        duplicates: "Sequence[Duplicate]" = (),
    ) -> None:
        self.body = body
        # Of the document's first line, counted from one.
        self.line = line
        # Keys that stand twice in one mapping; the last one won.
        self.duplicates = tuple((d.key, chunk.line + d.line, d.column + 1) for d in duplicates)
        self._chunk = chunk
        self._index = index

    @property
    def source(self) -> str:
        return self._chunk.source

    def position(self, path: Path = ()) -> tuple[int, int]:
        """The line and column, counted from one, of what a path leads to; as near as it goes."""
        root = self.compose()
        if root is None:
            return self.line, 1
        from lictor.lang.yaml.nodes import find_node

        mark = find_node(root, path).start_mark
        return self._chunk.line + mark.line, mark.column + 1

    @property
    def first_line(self) -> int:
        """Of the stretch of the file that marks of its nodes count from, counted from one."""
        return self._chunk.line

    def compose(self) -> "Node | None":
        """Its nodes, with their places in the text; None where it is JSON that YAML is not."""
        return _compose_again(self._chunk, self._index)

    def where(self, path: Path = ()) -> str:
        """The same for people: `file:line:column`."""
        line, column = self.position(path)
        return f"{self.source}:{line}:{column}"


# One document's findings are located one after the other.
@lru_cache(maxsize=1)
def _compose_again(chunk: _Chunk, index: int) -> "Node | None":
    from lictor.lang.yaml.nodes import compose

    try:
        return next(islice(compose(chunk.text), index, None), None)
    except YamlFault:
        return None


def decode_text(data: str | bytes, source: str) -> str:
    """Bytes of a file as text, without a byte order mark and with plain line ends."""
    if isinstance(data, bytes):
        data = _decode(data, source)
    data = data.removeprefix("\ufeff")
    data = data.replace("\r\n", "\n") if "\r" in data else data
    # A last line without an end gets one, as kubectl's reader gives it: a block scalar keeps it.
    return data if not data or data.endswith("\n") else f"{data}\n"


def _decode(data: bytes, source: str) -> str:
    encoding = next(name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark))
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LoadError(f"not {encoding} text", where=f"{source}:{line}:1") from error


def _split(text: str, source: str) -> Iterator[_Chunk]:
    """The stretches between `---` lines that hold more than comments."""
    start, line = 0, 1
    ends = (found.start() + 1 for found in _SEPARATOR.finditer(text))
    for end in chain(ends, (len(text),)):
        part = text[start:end]
        # Directives (`%YAML 1.1`) belong to the document after the separator.
        if part and not _DIRECTIVES.fullmatch(part.removeprefix("---")):
            yield _Chunk(part, source, line)
        line += part.count("\n")
        start = end


def _read_json(chunk: _Chunk) -> Document | None:
    """The fast way for JSON; None where the text turns out to be YAML that begins like it."""
    text = chunk.text.removeprefix("---")
    body_text = text.lstrip()
    if body_text[:1] not in ("{", "["):
        return None
    try:
        body = orjson.loads(body_text)
    except orjson.JSONDecodeError:
        return None
    body = _settle(body, body_text)
    return Document(body, chunk, chunk.line + text.count("\n", 0, len(text) - len(body_text)))


def _settle(body: Json, text: str) -> Json:
    """JSON that was read from a text, with numbers as Kubernetes' reader holds them."""
    if text.count("{") + text.count("[") > MAX_DEPTH:
        check_depth(body)
    return settle_json(body) if _ODD_NUMBER.search(text) else body


def read_object(body: Json, source: str) -> Document | LoadError:
    """An object that an API server gave, as it would be read from its text; or what is wrong."""
    try:
        chunk = _Chunk(orjson.dumps(body).decode(), source, 1)
    except TypeError:
        return LoadError("nested too deeply", where=f"{source}:1:1")
    try:
        return Document(_settle(body, chunk.text), chunk, 1)
    except YamlFault as fault:
        return chunk.locate(fault)


def _read_chunk(chunk: _Chunk) -> Iterator[Document]:
    document = _read_json(chunk)
    if document is not None:
        yield document
        return
    block = read_block_lines(chunk.text)
    if block is not None:
        body, line = block
        yield Document(body, chunk, chunk.line + line)
        return
    yield from _read_nodes(chunk)


def _read_nodes(chunk: _Chunk) -> Iterator[Document]:
    """The documents of a stretch, read by libyaml."""
    # Loaded on first use: it takes a tenth of the time of a small run.
    from lictor.lang.yaml.build import Builder
    from lictor.lang.yaml.nodes import check_aliases, compose

    may_alias = "*" in chunk.text and "&" in chunk.text
    for index, root in enumerate(compose(chunk.text)):
        if may_alias:
            check_aliases(root)
        builder = Builder()
        body = builder.build(root)
        if body is not None:
            line = chunk.line + root.start_mark.line
            yield Document(body, chunk, line, index, builder.duplicates)


def read_documents(data: str | bytes, source: str) -> Iterator[Document | LoadError]:
    """The documents of a file in order; one that is broken comes as the error that says why."""
    try:
        text = decode_text(data, source)
    except LoadError as error:
        yield error
        return
    for chunk in _split(text, source):
        try:
            yield from _read_chunk(chunk)
        except YamlFault as fault:
            yield chunk.locate(fault)


def iter_documents(data: str | bytes, source: str) -> Iterator[Document]:
    """The documents of a file in order. Raises LoadError at one that is broken."""
    for document in read_documents(data, source):
        if isinstance(document, LoadError):
            raise document
        yield document
