"""Parses text to plain JSON: YAML and JSON as Kubernetes reads them, document by document.

kubectl and Kyverno split a file at lines that start with `---`, and read the first YAML document of
each part. What they would read differently is refused. A broken document does not stop later ones.
Positions are computed on demand, by composing that document again; the last one is cached.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import orjson

from lictor.core.errors import LoadError
from lictor.core.lang.yaml.block_lines import read_block_lines
from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault, check_depth, settle_json
from lictor.core.load.json_stream import BLANK, read_json_stream
from lictor.core.raw import Json

if TYPE_CHECKING:
    from yaml.nodes import Node

    from lictor.core.lang.yaml.build import Duplicate

Path: TypeAlias = tuple[str | int, ...]

# How far kubectl looks for a brace.
_PEEKED: Final = 4096
# With its line feed: a pattern with a literal prefix is eight times as fast.
_SEPARATOR = re.compile(r"\n---[^\n]*")
# The start of a line that is no comment; or what may end a comment, or is invalid YAML.
# re: linear - whitespace is matched at the start of a line only
_CONTENT = re.compile(
    r"^ *([^ #\n])"
    r"|[^\n\t -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]",
    re.MULTILINE,
)
# What precedes JSON; a tab there is invalid YAML.
_BEFORE_JSON = re.compile(r"(?:---[ \t]*\n)?[ \n]*(?=[\[{])")
# The first character of such a text.
_JSON_STARTS: Final = frozenset("{[-")
# What JSON allows and YAML reads differently: characters, escapes, and a colon on another line than
# its key.
_ODD_CHARACTER = re.compile("[\x80-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ODD_ESCAPE = re.compile(r"\\(?:/|u[dD][89a-fA-F])")
_LATE_COLON = re.compile(r"\n[ \t]*:")
# Numbers that JSON readers and Kubernetes' YAML reader represent differently: `2.0`, `1e3`, huge
# ones. The end of a value follows; similar text (`nginx:1.25`) is mostly in quotes.
_ODD_NUMBER = re.compile(
    r"[0-9](?:\.[0-9]|[eE][-+]?[0-9]|(?<=[0-9]{19}))"
    # A long number is always treated as odd: each digit may start a number.
    r"(?:[-+.eE0-9]{40}|[-+.eE0-9]{0,39}(?=[\s,\]}]))"
)
_BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"", "utf-8"))


class _Chunk(msgspec.Struct, frozen=True):
    """A part of a file between separators, and its first line, counted from one."""

    text: str
    source: str
    line: int

    def locate(self, fault: YamlFault) -> LoadError:
        where = f"{self.source}:{self.line + fault.line}:{fault.column + 1}"
        return LoadError(fault.message, where=where)


class Document:
    """One document of a file: its JSON and its position."""

    __slots__ = ("_chunk", "body", "duplicates", "line")

    def __init__(
        self,
        body: Json,
        chunk: _Chunk,
        line: int,
        duplicates: "Sequence[Duplicate]" = (),
    ) -> None:
        self.body = body
        # The document's first line, counted from one.
        self.line = line
        # Duplicate keys; the last one is used.
        self.duplicates = tuple((d.key, chunk.line + d.line, d.column + 1) for d in duplicates)
        self._chunk = chunk

    @property
    def source(self) -> str:
        return self._chunk.source

    def position(self, path: Path = ()) -> tuple[int, int]:
        """The line and column, from one, of the value at a path, or of its nearest parent."""
        root = self.compose()
        if root is None:
            return self.line, 1
        from lictor.core.lang.yaml.nodes import find_node

        mark = find_node(root, path).start_mark
        return self._chunk.line + mark.line, mark.column + 1

    @property
    def first_line(self) -> int:
        """The line, counted from one, to which the marks of its nodes are relative."""
        return self._chunk.line

    def compose(self) -> "Node | None":
        """Its nodes, with their positions; None for JSON that is no YAML."""
        return _compose_again(self._chunk)

    def where(self, path: Path = ()) -> str:
        """The position as text: `file:line:column`."""
        line, column = self.position(path)
        return f"{self.source}:{line}:{column}"


# The findings of one document are located one after the other.
@lru_cache(maxsize=1)
def _compose_again(chunk: _Chunk) -> "Node | None":
    from lictor.core.lang.yaml.nodes import compose

    try:
        return next(compose(chunk.text), None)
    except YamlFault:
        return None


def decode_text(data: str | bytes, source: str) -> str:
    """Decode a file, without a byte order mark and with plain line ends."""
    if isinstance(data, bytes):
        raw = data
        encoding = next(name for mark, name in _BYTE_ORDER_MARKS if raw.startswith(mark))
        try:
            data = raw.decode(encoding)
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise LoadError(f"not {encoding} text", where=f"{source}:{line}:1") from error
    data = data.removeprefix("\ufeff")
    data = data.replace("\r\n", "\n") if "\r" in data else data
    # A last line without an end gets one, as in kubectl's reader: a block scalar keeps it.
    return data if not data or data.endswith("\n") else f"{data}\n"


def _split(text: str, source: str) -> Iterator[_Chunk | LoadError]:
    """The parts between `---` lines, and invalid separators."""
    start, line = 0, 1
    is_first = text.startswith("---")
    separators = ((found.start() + 1, found.end() + 1) for found in _SEPARATOR.finditer(text))
    for begin, end in chain(((0, text.find("\n") + 1),) if is_first else (), separators):
        trailing = text[begin + 3 : end].strip(BLANK)
        is_valid = not trailing or trailing[0] == "#"
        if begin > start:
            yield _Chunk(text[start:begin], source, line)
        line += text.count("\n", start, begin)
        # As in kubectl, a separator with nothing before it is part of what follows.
        start = begin if is_valid and begin == start else end
        if not is_valid:
            message = f"invalid YAML document separator: expected a comment, not {trailing[:40]!r}"
            yield LoadError(message, where=f"{source}:{line}:4")
        line += start > begin
    if start < len(text):
        yield _Chunk(text[start:], source, line)


def _read_chunk(chunk: _Chunk) -> Document | None:
    """The document of a part; None if it is empty."""
    content = _CONTENT.search(chunk.text)
    if content is None:
        return None
    may_be_json = content[1] is None or content[1] in _JSON_STARTS
    document = (_read_json(chunk) if may_be_json else None) or _read_yaml(chunk)
    is_plain = content[1] is not None and content[1] not in BLANK
    if document is not None and not is_plain and _holds_only_comments(chunk.text):
        raise YamlFault(
            "behind a comment that ends with another line break than a line feed: kubectl applies "
            "this, and Kyverno does not see it",
            document.line - chunk.line,
        )
    return document


def _holds_only_comments(text: str) -> bool:
    """Whether a part is empty for Kyverno, which knows only one line break."""
    lines = (line.strip(BLANK) for line in text.split("\n"))
    return all(not line or line[0] == "#" for line in lines)


def _read_json(chunk: _Chunk) -> Document | None:
    """The fast path for JSON; None if the text is YAML that starts like JSON."""
    text = chunk.text
    begin = _BEFORE_JSON.match(text)
    if begin is None or _is_unlike_yaml(text):
        return None
    body_text = text[begin.end() :]
    try:
        body = orjson.loads(body_text)
    except orjson.JSONDecodeError:
        return None
    return Document(_settle(body, body_text), chunk, chunk.line + text.count("\n", 0, begin.end()))


def _read_plain_json(text: str, source: str) -> Document | None:
    """The document of a file that is one JSON object, with the same value in JSON and YAML.

    None for any other file; it is read twice, and compared.
    """
    begin = _BEFORE_JSON.match(text)
    if begin is None or _is_unlike_yaml(text) or "\n---" in text or _ODD_NUMBER.search(text):
        return None
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if text.count("{") + text.count("[") > MAX_DEPTH:
        try:
            check_depth(body)
        except YamlFault:
            return None
    return Document(body, _Chunk(text, source, 1), 1 + text.count("\n", 0, begin.end()))


def _is_unlike_yaml(text: str) -> bool:
    """Whether YAML may read this JSON differently."""
    return (
        "\r" in text
        or "\x7f" in text
        or (not text.isascii() and _ODD_CHARACTER.search(text) is not None)
        or ("\\" in text and _ODD_ESCAPE.search(text) is not None)
        or _LATE_COLON.search(text) is not None
        # After the value, a tab starts no token.
        or "\t" in text[len(text.rstrip()) :]
    )


def _read_yaml(chunk: _Chunk) -> Document | None:
    block = read_block_lines(chunk.text)
    if block is not None:
        body, line = block
        return Document(body, chunk, chunk.line + line)
    # Imported on first use: it takes a tenth of the time of a small run.
    from lictor.core.lang.yaml.build import build_yaml

    built = build_yaml(chunk.text)
    if built is None or built.body is None:
        return None
    return Document(built.body, chunk, chunk.line + built.line, built.duplicates)


def _settle(body: Json, text: str) -> Json:
    """JSON parsed from text, with numbers as in Kubernetes' reader."""
    if text.count("{") + text.count("[") > MAX_DEPTH:
        check_depth(body)
    return settle_json(body) if _ODD_NUMBER.search(text) else body


def read_object(body: Json, source: str) -> Document | LoadError:
    """An object from an API server, as if read from its text; or the error."""
    try:
        chunk = _Chunk(orjson.dumps(body).decode(), source, 1)
    except TypeError:
        return LoadError("nested too deeply", where=f"{source}:1:1")
    try:
        return Document(_settle(body, chunk.text), chunk, 1)
    except YamlFault as fault:
        return chunk.locate(fault)


def read_documents(data: str | bytes, source: str) -> Iterator[Document | LoadError]:
    """The documents of a file in order; a broken one as its error."""
    try:
        text = decode_text(data, source)
    except LoadError as error:
        yield error
        return
    if text[:_PEEKED].lstrip(BLANK).startswith("{"):
        document = _read_plain_json(text, source)
        if document is not None:
            yield document
        else:
            yield from read_json_stream(text, source, read_parts)
    else:
        yield from read_parts(text, source)


def read_parts(text: str, source: str) -> Iterator[Document | LoadError]:
    """The documents of a text, read as YAML in any case."""
    for chunk in _split(text, source):
        if isinstance(chunk, LoadError):
            yield chunk
            continue
        try:
            document = _read_chunk(chunk)
        except YamlFault as fault:
            yield chunk.locate(fault)
        else:
            if document is not None:
                yield document


def iter_documents(data: str | bytes, source: str) -> Iterator[Document]:
    """The documents of a file in order. Raises LoadError at a broken one."""
    for document in read_documents(data, source):
        if isinstance(document, LoadError):
            raise document
        yield document
