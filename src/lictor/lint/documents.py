"""A file into pieces that can be linted: which document is what, and are its fields right?"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from lictor.errors import LoadError
from lictor.lint.catalog import as_lint_finding, flag
from lictor.lint.spots import find_offset
from lictor.load.fields import Absent, check_fields
from lictor.load.kinds import (
    RAW,
    RECORDS,
    absent_fields,
    find_kind,
    find_unknown,
    is_unsupported,
)
from lictor.load.policies import is_list, locate_error
from lictor.load.yaml import Document, decode_text, read_documents
from lictor.model.finding import FieldPath, Finding, Location
from lictor.model.offline import ClusterResource, Context, Test, UserInfo, Values
from lictor.raw import Json, JsonObject

OFFLINE: Final[dict[str, type[msgspec.Struct]]] = {
    "Test": Test,
    "Values": Values,
    "UserInfo": UserInfo,
    "Context": Context,
    "ClusterResource": ClusterResource,
}
_OFFLINE_GROUPS = ("cli.kyverno.io", "kyverno.io", "")
TEST_FILE = "kyverno-test.yaml"


class File(msgspec.Struct, frozen=True):
    """One file: its documents, and its lines as far as anyone asks for them."""

    source: str
    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]
    content: bytes

    def lines(self) -> list[str]:
        return decode_text(self.content, self.source).split("\n")


class Piece(msgspec.Struct, frozen=True):
    """One object of a file."""

    file: File
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
    def record(self) -> type[msgspec.Struct] | None:
        """The record of a policy, or of what belongs to policies."""
        found = find_kind(self.group, self.kind)
        return None if found is None else found[0]

    @property
    def is_classic(self) -> bool:
        """Whether its kind is of the family whose rules have names."""
        return (self.group, self.kind) in RECORDS

    @property
    def is_raw(self) -> bool:
        """Whether it is of a kind that has no record, and no checks."""
        return is_unsupported(self.group, self.kind) or (
            (self.group, self.kind) in RAW and self.record is None
        )

    @property
    def offline(self) -> type[msgspec.Struct] | None:
        """The record of a file that only the command line reads."""
        return OFFLINE.get(self.kind) if self.group in _OFFLINE_GROUPS else None

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


def read_file(source: str, content: bytes) -> File:
    """The documents of a file, and those that cannot be read as findings."""
    documents: list[Document] = []
    findings: list[Finding] = []
    for document in read_documents(content, source):
        if isinstance(document, LoadError):
            findings.append(replace(locate_error(document), check="bad-document"))
        else:
            documents.append(document)
    return File(source, tuple(documents), tuple(findings), content)


def list_pieces(file: File) -> Iterator[Piece]:
    """The objects of a file; what is no object concerns nobody here."""
    for document in file.documents:
        yield from _unfold(file, document, document.body, ())


def _unfold(file: File, document: Document, body: Json, prefix: FieldPath) -> Iterator[Piece]:
    if not isinstance(body, dict):
        return
    items = body.get("items")
    if is_list(body) and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _unfold(file, document, item, (*prefix, "items", index))
    else:
        yield Piece(file, document, prefix, body)


def check_head(piece: Piece) -> Iterator[Finding]:
    """Is it of a kind and version that exist, if it seems to be meant as a policy?"""
    version = piece.api_version.rpartition("/")[2]
    known = find_kind(piece.group, piece.kind)
    if known is not None and version not in known[1]:
        versions = " and ".join(known[1])
        message = f'{piece.kind} has no version "{version}"; known are {versions}'
        yield flag("unknown-kind", ("apiVersion",), message, f"{piece.group}/{known[1][0]}")
        return
    unknown = find_unknown(piece.group, piece.kind)
    if unknown is not None:
        field, word, meant = unknown
        if not word:
            yield flag("unknown-kind", (), f'"{field}" of the policy is missing', meant)
            return
        meant = f"{meant}/{version}" if field == "apiVersion" and meant else meant
        message = f'no policy has the {"kind" if field == "kind" else "group"} "{word}"'
        yield flag("unknown-kind", (field,), message, meant)
    elif not piece.api_version and any(kind == piece.kind for _, kind in RECORDS):
        yield flag("unknown-kind", (), f'"apiVersion" of the {piece.kind} is missing')


def check_record(piece: Piece, record: type[msgspec.Struct], *, offline: bool) -> list[Finding]:
    """Fields that are unknown, missing or of the wrong type, and keys that stand twice."""
    absent: Absent | None = None
    if not offline:
        absent = absent_fields(record, piece.api_version.rpartition("/")[2])
    return [
        piece.locate(as_lint_finding(each))
        for each in check_fields(piece.body, record, absent=absent, lenient=offline)
    ]


def check_duplicates(file: File) -> Iterator[Finding]:
    """Keys that stand twice in one object of a document that is checked."""
    for document in file.documents:
        if not _is_checked(list(_unfold(file, document, document.body, ()))):
            continue
        for key, line, column in document.duplicates:
            message = f'key "{key}" stands twice in one object; only the last one counts'
            yield replace(
                flag("duplicate-key", (), message), location=Location(file.source, line, column)
            )


def _is_checked(pieces: Iterable[Piece]) -> bool:
    return any(piece.record is not None or piece.offline is not None for piece in pieces)


def with_kind(piece: Piece, kind: str) -> Piece:
    """The piece as something that its file does not say it is."""
    return replace(piece, body={**piece.body, "kind": kind})
