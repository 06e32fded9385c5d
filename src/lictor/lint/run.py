"""Lints files: sorts their documents, runs the checks on each, and locates findings."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.model.finding import FieldPath, Finding, Location
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.documents import (
    TEST_FILE,
    LintFile,
    LintObject,
    check_duplicates,
    check_head,
    check_record,
    list_objects,
    read_file,
    with_kind,
)
from lictor.lint.documents_by_kind import LintContext, lint_document
from lictor.lint.exceptions import KnownRules
from lictor.lint.key_order import check_order
from lictor.lint.policy_conflicts import find_conflicts
from lictor.lint.render import LintReport
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.selection import CheckChooser, LintSelection, drop_ignored
from lictor.lint.test_files import ReadFiles, TestInputs, check_test, list_rule_names


def lint_texts(
    texts: Iterable[tuple[str, bytes]],
    file_records: Mapping[str, type[msgspec.Struct]],
    read_files: ReadFiles | None = None,
    selection: LintSelection | None = None,
    definitions: Iterable[Json] = (),
) -> LintReport:
    """Lint files, given as path and content.

    `file_records` has the records of `OFFLINE_KINDS`. Without `read_files`, the files that tests
    name are not read. `definitions` are CustomResourceDefinitions, besides those in files.
    """
    chooser = CheckChooser(selection or LintSelection())
    files = [read_file(source, content) for source, content in texts]
    inputs = TestInputs(files, read_files)
    items = [item for file in files for item in list_objects(file)]
    known = (*definitions, *list_definitions(items))
    linter = _Linter(
        file_records,
        _list_known(files),
        inputs,
        _assign_roles(files, inputs),
        frozenset((p.kind, p.name) for p in items if p.record is not None and not p.is_classic),
        known,
        KnownSchemas(known),
        tuple(item.body for item in items if item.kind == "ClusterRole"),
    )
    linter.conflicts = find_conflicts(items)
    findings = [finding for file in files for finding in chooser.keep(linter.lint(file))]
    unchecked = sum(item.is_raw for item in items)
    named = {finding.location.file for finding in findings}
    sources = {file.source: file.content for file in files if file.source in named}
    return LintReport(tuple(findings), len(files), unchecked, sources)


def list_definitions(items: Iterable[LintObject]) -> list[Json]:
    """The CustomResourceDefinitions among objects."""
    return [item.body for item in items if item.kind == "CustomResourceDefinition"]


def _list_known(files: Iterable[LintFile]) -> KnownRules:
    known: dict[str, list[str]] = {}
    for file in files:
        for item in list_objects(file):
            if item.policy_kind is not None and item.policy_kind.has_named_rules:
                namespaced = item.kind == "Policy" and item.namespace
                name = f"{item.namespace}/{item.name}" if namespaced else item.name
                known.setdefault(name, []).extend(list_rule_names(item.body))
    return known


class _Linter(msgspec.Struct):
    file_records: Mapping[str, type[msgspec.Struct]]
    known: KnownRules
    inputs: TestInputs
    roles: Mapping[str, str]
    # Kind and name of the policies in CEL.
    cel_policies: frozenset[tuple[str, str]]
    definitions: tuple[Json, ...]
    schemas: KnownSchemas
    cluster_roles: tuple[Json, ...]
    seen: set[tuple[Location, FieldPath, str]] = msgspec.field(default_factory=set)
    # By file, the findings about several policies together.
    conflicts: Mapping[str, Sequence[Finding]] = msgspec.field(default_factory=dict)

    def lint(self, file: LintFile) -> list[Finding]:
        """All findings of a file, sorted by line, without duplicates."""
        findings = [*file.findings, *check_duplicates(file)]
        for item in list_objects(file):
            findings.extend(self._lint_object(item))
            findings.extend(check_order(item))
        findings.extend(self.conflicts.get(file.source, ()))
        findings = drop_ignored(file, findings)
        findings.sort(key=lambda finding: (finding.location.line, finding.location.column))
        return [finding for finding in findings if self._is_new(finding)]

    def _is_new(self, finding: Finding) -> bool:
        key = (finding.location, finding.path, finding.message)
        is_new = key not in self.seen
        self.seen.add(key)
        return is_new

    def _lint_object(self, item: LintObject) -> Iterator[Finding]:
        item = _name_kind(item, self.roles)
        head = list(check_head(item))
        yield from map(item.locate, head)
        if head:
            return
        if item.record is not None:
            yield from check_record(item, item.record, offline=False)
            yield from map(item.locate, self._check_policy(item))
        elif item.is_offline:
            yield from check_record(item, self.file_records[item.kind], offline=True)
            yield from map(item.locate, self._check_offline(item))

    def _check_policy(self, item: LintObject) -> Iterable[Finding]:
        if item.policy_kind is None:
            return ()
        context = LintContext(
            self.resource_names,
            self.known,
            self.cel_policies,
            self.schemas,
            asks_behaviour=True,
            cluster_roles=self.cluster_roles,
        )
        return lint_document(item.policy_kind, item.body, context)

    def resource_names(self) -> ResourceNames:
        """The names of resources, including those that the files define."""
        return builtin_names().with_crds(self.definitions)

    def _check_offline(self, item: LintObject) -> Iterator[Finding]:
        original = item.document.body
        if not isinstance(original, dict) or not original.get("kind") or not item.api_version:
            message = (
                f"a {item.kind} file needs apiVersion: cli.kyverno.io/v1alpha1 and "
                f"kind: {item.kind}"
            )
            yield flag("outdated-file", (), message)
        if item.kind == "Test":
            if item.body.get("name"):
                message = "the name of a test stands in metadata.name"
                yield flag("outdated-file", ("name",), message, "metadata.name")
            yield from check_test(item, self.inputs)


def _name_kind(item: LintObject, roles: Mapping[str, str]) -> LintObject:
    """The kind of an older file without one, from its name or from the test that names it."""
    if item.kind:
        return item
    source = posixpath.normpath(item.file.source.replace("\\", "/"))
    if posixpath.basename(source) == TEST_FILE:
        return with_kind(item, "Test")
    role = roles.get(source)
    return item if role is None else with_kind(item, role)


def _assign_roles(files: Iterable[LintFile], inputs: TestInputs) -> dict[str, str]:
    """Files that tests name as values or as callers."""
    roles: dict[str, str] = {}
    for file in files:
        for item in list_objects(file):
            for name, kind in (("variables", "Values"), ("userinfo", "UserInfo")):
                path = item.body.get(name) if "results" in item.body else None
                if isinstance(path, str) and path:
                    roles.update(
                        (source, kind) for source in inputs.list_sources(path, file.source)
                    )
    return roles
