"""Test files and what they name: are the files there, and do they hold what results speak of?"""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lictor.errors import LookupFailedError
from lictor.lint import Inventory, lint_test, list_files
from lictor.lint.catalog import flag
from lictor.lint.documents import File, Piece, list_pieces, read_file
from lictor.model.finding import Finding
from lictor.raw import Json

# The files that a path stands for, seen from the file that names it: path and content of each.
# None where there is none. Raises LookupFailedError where it cannot be looked at.
ReadFiles: TypeAlias = Callable[[str, str], Sequence[tuple[str, bytes]] | None]


class Shelf:
    """Files that were read before: a test mostly names files that are linted themselves."""

    def __init__(self, files: Sequence[File], read: ReadFiles | None) -> None:
        self._files = {posixpath.normpath(file.source): file for file in files}
        self._read = read

    def find(self, path: str, source: str) -> list[File] | None:
        """What a path stands for; None where there is no such file."""
        if self._read is None:
            raise LookupFailedError("no files can be read here")
        found = self._read(path, source)
        if found is None:
            return None
        return [self._open(name, content) for name, content in found]

    def list_sources(self, path: str, source: str) -> list[str]:
        """The names of the files that a path stands for."""
        try:
            return [posixpath.normpath(file.source) for file in self.find(path, source) or ()]
        except LookupFailedError:
            return []

    def _open(self, name: str, content: bytes) -> File:
        key = posixpath.normpath(name)
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = read_file(name, content)
        return file


def check_test(piece: Piece, shelf: Shelf) -> list[Finding]:
    """What is wrong with a test and the files it names."""
    findings: list[Finding] = []
    found: dict[str, list[File] | None] = {}
    for part in list_files(piece.body):
        try:
            files = shelf.find(part.text, piece.file.source)
        except LookupFailedError:
            continue
        if files is None:
            findings.append(flag("missing-file", part.path, f'there is no file "{part.text}"'))
        found[part.text] = files
    findings.extend(lint_test(piece.body, _take_stock(piece.body, found)))
    return findings


def _take_stock(body: Json, found: dict[str, list[File] | None]) -> Inventory:
    policies = _collect(body, ("policies",), found)
    resources = _collect(body, ("resources", "targetResources", "policies"), found)
    payloads = any(body.get(name) for name in ("jsonPayload", "httpPayloads", "envoyPayloads"))
    return Inventory(
        rules=None if policies is None else _list_rules(policies),
        resources=None if resources is None or payloads else _list_names(resources),
    )


def _collect(
    body: Json, fields: tuple[str, ...], found: dict[str, list[File] | None]
) -> list[Piece] | None:
    """The objects in the files that some fields name; None where one of them is not known."""
    pieces: list[Piece] = []
    for field in fields:
        for path in _list_paths(body.get(field)):
            files = found.get(path)
            if files is None or any(file.findings for file in files):
                return None
            pieces.extend(piece for file in files for piece in list_pieces(file))
    return pieces


def _list_paths(value: Json) -> Iterator[str]:
    for path in value if isinstance(value, list) else [value]:
        if isinstance(path, str) and path:
            yield path


def _list_rules(pieces: list[Piece]) -> dict[str, list[str] | None]:
    rules: dict[str, list[str] | None] = {}
    for piece in pieces:
        if piece.is_classic:
            rules[piece.name] = list_rule_names(piece.body)
        elif piece.record is not None or piece.is_raw:
            rules[piece.name] = None
    return rules


def list_rule_names(body: Json) -> list[str]:
    """The names of the rules of a classic policy."""
    spec = body.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    if not isinstance(rules, list):
        return []
    names = [rule.get("name") for rule in rules if isinstance(rule, dict)]
    return [name for name in names if isinstance(name, str)]


def _list_names(pieces: list[Piece]) -> set[tuple[str, str]]:
    return {
        (space, piece.name)
        for piece in pieces
        for space in ((piece.namespace,) if piece.namespace else ("", "default"))
    }
