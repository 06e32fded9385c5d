"""Texts in, findings out: sorts documents, runs the checks on each, and locates what they find."""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from lictor.lang.resource_names import ResourceNames, builtin_names
from lictor.lint import KnownRules, lint_cleanup, lint_exception, lint_policy
from lictor.lint.catalog import flag
from lictor.lint.documents import (
    TEST_FILE,
    File,
    Piece,
    check_duplicates,
    check_head,
    check_record,
    list_pieces,
    read_file,
    with_kind,
)
from lictor.lint.finding import LintReport
from lictor.lint.tests import ReadFiles, Shelf, check_test, list_rule_names
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.finding import FieldPath, Finding, Location
from lictor.model.offline import Test
from lictor.model.policy import Policy
from lictor.raw import Json


def lint_texts(
    texts: Iterable[tuple[str, bytes]], read_files: ReadFiles | None = None
) -> LintReport:
    """Lint files, given as path and content. Without `read_files`, tests are not looked into."""
    files = [read_file(source, content) for source, content in texts]
    shelf = Shelf(files, read_files)
    pieces = [piece for file in files for piece in list_pieces(file)]
    linter = _Linter(
        _list_known(files),
        shelf,
        _assign_roles(files, shelf),
        frozenset((p.kind, p.name) for p in pieces if p.record is not None and not p.is_classic),
        tuple(p.body for p in pieces if p.kind == "CustomResourceDefinition"),
    )
    findings = [finding for file in files for finding in linter.lint(file)]
    unchecked = sum(piece.is_raw for piece in pieces)
    return LintReport(tuple(findings), len(files), unchecked)


def _list_known(files: Iterable[File]) -> KnownRules:
    known: dict[str, list[str]] = {}
    for file in files:
        for piece in list_pieces(file):
            if piece.record is Policy:
                namespaced = piece.kind == "Policy" and piece.namespace
                name = f"{piece.namespace}/{piece.name}" if namespaced else piece.name
                known.setdefault(name, []).extend(list_rule_names(piece.body))
    return known


class _Linter(msgspec.Struct):
    known: KnownRules
    shelf: Shelf
    roles: Mapping[str, str]
    # Kind and name of the policies in CEL.
    cel_policies: frozenset[tuple[str, str]]
    definitions: tuple[Json, ...]
    seen: set[tuple[Location, FieldPath, str]] = msgspec.field(default_factory=set)

    def lint(self, file: File) -> list[Finding]:
        """Everything wrong with a file, in the order of lines, each thing once."""
        findings = [*file.findings, *check_duplicates(file)]
        for piece in list_pieces(file):
            findings.extend(self._lint_piece(piece))
        findings.sort(key=lambda finding: (finding.location.line, finding.location.column))
        return [finding for finding in findings if self._is_new(finding)]

    def _is_new(self, finding: Finding) -> bool:
        key = (finding.location, finding.path, finding.message)
        is_new = key not in self.seen
        self.seen.add(key)
        return is_new

    def _lint_piece(self, piece: Piece) -> Iterator[Finding]:
        piece = _name_kind(piece, self.roles)
        head = list(check_head(piece))
        yield from map(piece.locate, head)
        if head:
            return
        if piece.record is not None:
            yield from check_record(piece, piece.record, offline=False)
            yield from map(piece.locate, self._check_policy(piece))
        elif piece.offline is not None:
            yield from check_record(piece, piece.offline, offline=True)
            yield from map(piece.locate, self._check_offline(piece))

    def _check_policy(self, piece: Piece) -> Iterable[Finding]:
        checks: dict[type, Callable[[Json], Iterable[Finding]]] = {
            Policy: lint_policy,
            CleanupPolicy: lint_cleanup,
            PolicyException: lambda body: lint_exception(body, self.known),
        }
        check = checks.get(piece.record or Policy)
        return self._check_cel(piece) if check is None else check(piece.body)

    def _check_cel(self, piece: Piece) -> Iterable[Finding]:
        from lictor.lint.cel import lint_binding, lint_cel_exception, lint_cel_policy

        if piece.kind == "PolicyException":
            return lint_cel_exception(piece.body, self.cel_policies)
        names = self.resource_names()
        if piece.kind.endswith("Binding"):
            return lint_binding(piece.body, self.cel_policies, names)
        return lint_cel_policy(piece.body, names)

    def resource_names(self) -> ResourceNames:
        """The names of resources, with those that the files define."""
        return builtin_names().with_crds(self.definitions)

    def _check_offline(self, piece: Piece) -> Iterator[Finding]:
        original = piece.document.body
        if not isinstance(original, dict) or not original.get("kind") or not piece.api_version:
            message = (
                f"a {piece.kind} file needs apiVersion: cli.kyverno.io/v1alpha1 and "
                f"kind: {piece.kind}"
            )
            yield flag("outdated-file", (), message)
        if piece.offline is Test:
            if piece.body.get("name"):
                message = "the name of a test stands in metadata.name"
                yield flag("outdated-file", ("name",), message, "metadata.name")
            yield from check_test(piece, self.shelf)


def _name_kind(piece: Piece, roles: Mapping[str, str]) -> Piece:
    """A file of the older form says not what it is: its name tells, or the test that names it."""
    if piece.kind:
        return piece
    source = posixpath.normpath(piece.file.source.replace("\\", "/"))
    if posixpath.basename(source) == TEST_FILE:
        return with_kind(piece, "Test")
    role = roles.get(source)
    return piece if role is None else with_kind(piece, role)


def _assign_roles(files: Iterable[File], shelf: Shelf) -> dict[str, str]:
    """Files that tests name as values or as callers."""
    roles: dict[str, str] = {}
    for file in files:
        for piece in list_pieces(file):
            for name, kind in (("variables", "Values"), ("userinfo", "UserInfo")):
                path = piece.body.get(name) if "results" in piece.body else None
                if isinstance(path, str) and path:
                    roles.update((source, kind) for source in shelf.list_sources(path, file.source))
    return roles
