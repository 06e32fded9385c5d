"""Splits a file into objects, checks their kinds and fields, and finds the line of each finding."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from lictor.core.errors import LoadError
from lictor.core.families.family import AbsentFields, PolicyKind
from lictor.core.families.registry import registry
from lictor.core.load.fields import check_fields
from lictor.core.load.kinds import find_unknown, is_raw, is_unsupported
from lictor.core.load.policies import describe_unsupported, is_list, locate_error
from lictor.core.load.yaml import Document, decode_text, read_documents
from lictor.core.model.finding import FieldPath, Finding, Location, TextOffset
from lictor.core.raw import Json, JsonObject
from lictor.lint.catalog import as_lint_finding, flag

# A key whose value is a block on the next lines.
# re: linear - tried at one position of a line
_VALUE = re.compile(r"(?:- +)*[^\s:]+:(?:\s+[|>][-+0-9]*\s*(?:#.*)?$)?")
_WIDTH = 100
_CONTEXT = 40


class _Line(msgspec.Struct, frozen=True):
    """The line of a text that contains a position."""

    number: int
    content: str
    offset: int


def _read_line(spot: TextOffset) -> _Line:
    start = spot.text.rfind("\n", 0, spot.offset) + 1
    content = spot.text[start:].split("\n", 1)[0]
    return _Line(spot.text.count("\n", 0, spot.offset), content, spot.offset - start)


def find_offset(lines: list[str], at: tuple[int, int], spot: TextOffset) -> tuple[int, int]:
    """The line and column of an offset in a field's text; the field itself in doubt."""
    line = _read_line(spot)
    if not line.content.strip():
        return at
    for content, offset in _list_spellings(line):
        found = _search(lines, at, content, line.number)
        if found is not None:
            return found[0], found[1] + offset
    return _follow(lines, at, spot) or at


def _list_spellings(line: _Line) -> list[tuple[str, int]]:
    """The content as plain, single-quoted and double-quoted text; with the offset in each."""
    before = line.content[: line.offset]
    spellings = [(line.content, line.offset)]
    for quote, escaped in (("'", "''"), ('"', '\\"')):
        written = line.content.replace(quote, escaped)
        spellings.append((written, len(before.replace(quote, escaped))))
    return spellings


def _search(
    lines: list[str], at: tuple[int, int], content: str, number: int
) -> tuple[int, int] | None:
    first, column = at
    # A block may start one line below its key, after a comment two.
    for index in range(first - 1 + number, min(first + number + 2, len(lines))):
        start = column - 1 if index == first - 1 else 0
        place = lines[index].find(content, start)
        if place >= 0:
            return index + 1, place + 1
    return None


def _follow(lines: list[str], at: tuple[int, int], spot: TextOffset) -> tuple[int, int] | None:
    """Read text and file in parallel, without whitespace: folding changes nothing else."""
    wanted = [letter for letter in spot.text[: spot.offset + 1] if not letter.isspace()]
    last = None
    for place, letter in _read_value(lines, at):
        if not wanted:
            break
        if letter != wanted[0]:
            # A quote or a backslash that only the file needs.
            if letter in "'\"\\":
                continue
            return None
        wanted.pop(0)
        last = place
    return last if not wanted else None


def _read_value(lines: list[str], at: tuple[int, int]) -> Iterator[tuple[tuple[int, int], str]]:
    """The letters of a field's value, with their positions; without whitespace and block marks."""
    line, column = at
    head = _VALUE.match(lines[line - 1], column - 1) if line <= len(lines) else None
    start = column - 1 if head is None else head.end()
    for number in range(line, len(lines) + 1):
        content = lines[number - 1]
        begin = start if number == line else 0
        for index in range(begin, len(content)):
            if not content[index].isspace():
                yield (number, index + 1), content[index]


def draw_excerpt(spot: TextOffset) -> str:
    """The line of the text, with a mark below it."""
    line = _read_line(spot)
    content, offset = line.content, min(line.offset, len(line.content))
    if len(content) > _WIDTH:
        start = max(offset - _CONTEXT, 0)
        content, offset = content[start : start + _WIDTH], offset - start
    shown = content.lstrip()
    return f"{shown}\n{' ' * max(offset - len(content) + len(shown), 0)}^"


# Kinds that only the command line reads.
OFFLINE_KINDS = ("Test", "Values", "UserInfo", "Context", "ClusterResource")
_OFFLINE_GROUPS = ("cli.kyverno.io", "kyverno.io", "")
TEST_FILE = "kyverno-test.yaml"


class LintFile(msgspec.Struct, frozen=True):
    """One file: its documents, and its lines on demand."""

    source: str
    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]
    content: bytes

    def lines(self) -> list[str]:
        return _split_lines(self.content, self.source)


# The findings of a file are located one after the other.
@lru_cache(maxsize=1)
def _split_lines(content: bytes, source: str) -> list[str]:
    return decode_text(content, source).split("\n")


class LintObject(msgspec.Struct, frozen=True):
    """One object of a file."""

    file: LintFile
    document: Document
    prefix: FieldPath
    body: JsonObject

    @property
    def kind(self) -> str:
        return _text(self.body.get("kind"))

    @property
    def api_version(self) -> str:
        return _text(self.body.get("apiVersion"))

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        metadata = self.body.get("metadata")
        return _text(metadata.get("name")) if isinstance(metadata, dict) else ""

    @property
    def namespace(self) -> str:
        metadata = self.body.get("metadata")
        return _text(metadata.get("namespace")) if isinstance(metadata, dict) else ""

    @property
    def policy_kind(self) -> PolicyKind | None:
        """Its kind of policy or related document."""
        return registry().find(self.group, self.kind)

    @property
    def record(self) -> type[msgspec.Struct] | None:
        """The record of its kind."""
        found = self.policy_kind
        return None if found is None else found.family.get_record(found)

    @property
    def is_classic(self) -> bool:
        """Whether its kind is of the family with named rules."""
        return self.policy_kind is not None and self.policy_kind.family.name == "classic"

    @property
    def is_raw(self) -> bool:
        """Whether its kind has neither a record nor checks."""
        return is_raw(self.group, self.kind, self.body)

    @property
    def is_offline(self) -> bool:
        """Whether it is a file that only the command line reads."""
        return self.kind in OFFLINE_KINDS and self.group in _OFFLINE_GROUPS

    def locate(self, finding: Finding) -> Finding:
        """The finding with its line and column."""
        at = self.document.position(self.prefix + finding.path)
        if finding.offset is not None:
            at = find_offset(self.file.lines(), at, finding.offset)
        return replace(
            finding,
            path=self.prefix + finding.path,
            location=Location(self.file.source, *at),
            kind=self.kind,
            name=self.name,
        )


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def read_file(source: str, content: bytes) -> LintFile:
    """The documents of a file; unreadable ones as findings."""
    documents: list[Document] = []
    findings: list[Finding] = []
    for document in read_documents(content, source):
        if isinstance(document, LoadError):
            findings.append(_flag_unreadable(document, content))
        else:
            documents.append(document)
    if not documents and not findings:
        # Nothing was checked: a wrong file name must not look like a pass.
        empty = flag("bad-document", (), "the file contains no documents")
        findings.append(replace(empty, location=Location(source)))
    return LintFile(source, tuple(documents), tuple(findings), content)


# A value that starts with an expression, which YAML reads as nested objects.
_UNQUOTED = re.compile(r"(?:^|[:\-,\[]\s+)(\{\{[^{}]*\}\}[^\s,\]]*)")


def _flag_unreadable(error: LoadError, content: bytes) -> Finding:
    finding = replace(locate_error(error), check="bad-document")
    lines = content.decode("utf-8", "replace").split("\n")
    line = lines[finding.location.line - 1] if finding.location.line <= len(lines) else ""
    found = _UNQUOTED.search(line)
    if found is None:
        return finding
    message = "quote the expression: without quotes, YAML reads the braces as objects"
    place = Location(finding.location.file, finding.location.line, found.start(1) + 1)
    return replace(finding, message=message, suggestion=f"'{found[1]}'", location=place)


def list_objects(file: LintFile) -> Iterator[LintObject]:
    """The objects of a file; other values are ignored."""
    for document in file.documents:
        yield from _unfold(file, document, document.body, ())


def _unfold(
    file: LintFile, document: Document, body: Json, prefix: FieldPath
) -> Iterator[LintObject]:
    if not isinstance(body, dict):
        return
    items = body.get("items")
    if is_list(body) and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _unfold(file, document, item, (*prefix, "items", index))
    else:
        yield LintObject(file, document, prefix, body)


def check_head(item: LintObject) -> Iterator[Finding]:
    """Check that kind and version exist, if it seems to be a policy."""
    version = item.api_version.rpartition("/")[2]
    known = item.policy_kind
    if known is not None and version not in known.versions:
        versions = " and ".join(known.versions)
        message = f'{item.kind} has no version "{version}"; known are {versions}'
        yield flag("unknown-kind", ("apiVersion",), message, f"{item.group}/{known.versions[0]}")
        return
    if is_unsupported(item.group, item.kind, item.body):
        yield flag("unknown-kind", ("kind",), describe_unsupported(item.kind))
        return
    unknown = find_unknown(item.group, item.kind)
    if unknown is not None:
        field, word, meant = unknown
        if not word:
            yield flag("unknown-kind", (), f'"{field}" of the policy is missing', meant)
            return
        meant = f"{meant}/{version}" if field == "apiVersion" and meant else meant
        message = f'no policy has the {"kind" if field == "kind" else "group"} "{word}"'
        yield flag("unknown-kind", (field,), message, meant)
    elif not item.api_version and any(kind.kind == item.kind for kind in registry().kinds):
        yield flag("unknown-kind", (), f'"apiVersion" of the {item.kind} is missing')


def check_record(item: LintObject, record: type[msgspec.Struct], *, offline: bool) -> list[Finding]:
    """Fields that are unknown, missing or of the wrong type."""
    absent: AbsentFields = {}
    if not offline and item.policy_kind is not None:
        kind = item.policy_kind
        absent = kind.family.find_absent_fields(kind, item.api_version.rpartition("/")[2])
    return [
        item.locate(as_lint_finding(each))
        for each in check_fields(item.body, record, absent=absent, lenient=offline)
    ]


def check_duplicates(file: LintFile) -> Iterator[Finding]:
    """Duplicate keys in the documents that are checked."""
    for document in file.documents:
        if not _is_checked(list(_unfold(file, document, document.body, ()))):
            continue
        for key, line, column in document.duplicates:
            message = f'key "{key}" stands twice in one object; only the last one counts'
            yield replace(
                flag("duplicate-key", (), message), location=Location(file.source, line, column)
            )


def _is_checked(items: Iterable[LintObject]) -> bool:
    return any(item.record is not None or item.is_offline for item in items)


def with_kind(item: LintObject, kind: str) -> LintObject:
    """The item with a kind that its file does not declare."""
    return replace(item, body={**item.body, "kind": kind})
