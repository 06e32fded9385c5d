"""Lints the text of an open file as `lictor lint` lints the file, with the same settings;
findings as diagnostics, fixes as code actions.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    CodeDescription,
    Diagnostic,
    DiagnosticSeverity,
    DiagnosticTag,
    Range,
    TextEdit,
    WorkspaceEdit,
)

from lictor.addons.editor.positions import TextPositions
from lictor.addons.editor.workspace_files import ReadOpen, WorkspaceFiles
from lictor.cli.inputs.records import FILE_RECORDS
from lictor.cli.inputs.time_limit import limit_cpu_time
from lictor.cli.lint_files import read_named
from lictor.cli.lint_settings import combine, find_lint_settings
from lictor.core.errors import LictorError
from lictor.core.families.registry import registry
from lictor.core.load.yaml import decode_text
from lictor.core.model.finding import Finding, Location, Severity
from lictor.lint.catalog import CHECKS
from lictor.lint.documents import TEST_FILE, LintFile, read_file
from lictor.lint.fixes import MOST_ROUNDS, Fix, find_fixes, fix_text
from lictor.lint.run import lint_texts
from lictor.lint.selection import LintSelection

# Groups of files that only the command line reads.
_OFFLINE_GROUP = "cli.kyverno.io"
# For one text; meanwhile nothing else is answered.
_MOST_SECONDS = 10


class CheckedText:
    """One version of a text, and what is wrong with it."""

    def __init__(self, path: str, content: bytes, findings: tuple[Finding, ...]) -> None:
        self.path = path
        self.content = content
        self.findings = findings

    @cached_property
    def file(self) -> LintFile:
        return read_file(self.path, self.content)

    @cached_property
    def text(self) -> str:
        """As positions of findings and edits count it."""
        try:
            return decode_text(self.content, self.path)
        except LictorError:
            # A lone surrogate: the findings report it.
            return self.content.decode(errors="replace")

    @cached_property
    def fixes(self) -> list[tuple[Finding, Fix]]:
        return find_fixes(self.file, self.findings)


class TextChecker:
    """Lints texts; keeps the last version of each, and the settings of each folder."""

    def __init__(self, read_open: ReadOpen, files: WorkspaceFiles) -> None:
        self._read_open = read_open
        self._files = files
        self._selections: dict[Path, LintSelection] = {}
        self._checked: dict[str, CheckedText] = {}

    def check(self, path: str, text: str) -> CheckedText:
        """What is wrong with a text; one that was not changed is not linted again."""
        content = text.encode(errors="surrogatepass")
        known = self._checked.get(path)
        if known is None or known.content != content:
            known = self._checked[path] = self._lint(path, content)
        return known

    def forget(self) -> None:
        """Other files were changed: settings and what tests name may be different now."""
        self._selections.clear()
        self._checked.clear()

    def fix_all(self, checked: CheckedText) -> str:
        """The text with everything put right that can be without changing a verdict."""
        content = checked.content
        for _ in range(MOST_ROUNDS):
            fixed = fix_text(read_file(checked.path, content), checked.findings)
            if fixed == content:
                break
            content = fixed
            checked = self._lint(checked.path, content)
        return content.decode()

    def _lint(self, path: str, content: bytes) -> CheckedText:
        try:
            with limit_cpu_time(_MOST_SECONDS, f"it takes more than {_MOST_SECONDS} s to lint"):
                found = lint_texts(
                    [(path, content)],
                    FILE_RECORDS,
                    self._read_named,
                    self._select(Path(path).parent),
                    self._files.definitions,
                ).findings
        except (LictorError, OSError) as error:
            # A text that could not be checked must not look like one without mistakes.
            found = (Finding((), f"not checked: {error}", location=Location(path)),)
        if not _may_hold_policies(path, content):
            found = tuple(each for each in found if each.check != "bad-document")
        return CheckedText(path, content, tuple(found))

    def _select(self, folder: Path) -> LintSelection:
        if folder not in self._selections:
            self._selections[folder] = combine(find_lint_settings(folder), (), ())
        return self._selections[folder]

    def _read_named(self, path: str, source: str) -> list[tuple[str, bytes]] | None:
        """What a test names, with the text that the editor shows where a file is open."""
        found = read_named(path, source)
        return None if found is None else list(self._replace_open(found))

    def _replace_open(self, files: list[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        for path, content in files:
            shown = self._read_open(path)
            yield path, content if shown is None else shown


def _may_hold_policies(path: str, content: bytes) -> bool:
    """Editors show all YAML files: templates and the like are no broken policies."""
    if Path(path).name == TEST_FILE:
        return True
    groups = {kind.group for kind in registry().kinds} | {_OFFLINE_GROUP}
    return any(group.encode() in content for group in groups)


# --- findings as diagnostics, and fixes as code actions

SOURCE = "lictor"
FIX_ALL = f"{CodeActionKind.SourceFixAll.value}.{SOURCE}"
_SEVERITIES = {
    Severity.ERROR: DiagnosticSeverity.Error,
    Severity.WARNING: DiagnosticSeverity.Warning,
}
_TAGS = {
    "deprecated": [DiagnosticTag.Deprecated],
    "unused-ignore": [DiagnosticTag.Unnecessary],
}


class RulePages:
    """The location of the pages about checks: in a checkout, or from the editor's settings."""

    def __init__(self, address: str = "") -> None:
        folder = Path(__file__).parents[4] / "docs" / "rules"
        self._address = address.rstrip("/") or (folder.as_uri() if folder.is_dir() else "")

    def link(self, code: str) -> CodeDescription | None:
        return CodeDescription(f"{self._address}/{code}.md") if self._address else None


def list_diagnostics(
    checked: CheckedText, positions: TextPositions, pages: RulePages
) -> list[Diagnostic]:
    """Everything that is wrong with a text."""
    return [_describe(finding, positions, pages) for finding in checked.findings]


def _describe(
    finding: Finding, positions: TextPositions, pages: RulePages | None = None
) -> Diagnostic:
    check = CHECKS.get(finding.check)
    return Diagnostic(
        range=positions.find_word(finding.location),
        message=finding.field_and_text,
        severity=_SEVERITIES[finding.severity],
        code=check.code if check else None,
        code_description=pages.link(check.code) if check and pages else None,
        source=SOURCE,
        tags=_TAGS.get(finding.check),
    )


def list_actions(
    checked: CheckedText, positions: TextPositions, uri: str, chosen: Range
) -> Iterator[CodeAction]:
    """How findings within a range can be put right, one by one."""
    for finding, fix in checked.fixes:
        diagnostic = _describe(finding, positions)
        if _touch(diagnostic.range, chosen):
            edits = _write_edits(fix, positions)
            yield CodeAction(
                title=_word_title(fix, diagnostic),
                kind=CodeActionKind.QuickFix,
                diagnostics=[diagnostic],
                edit=WorkspaceEdit(changes={uri: edits}),
                # What people may take without a look: never a guess.
                is_preferred=fix.is_safe,
            )


def _word_title(fix: Fix, diagnostic: Diagnostic) -> str:
    title = fix.title[:1].upper() + fix.title[1:]
    return (
        f"{title} ({diagnostic.code})" if fix.is_safe else f"{title} ({diagnostic.code}, a guess)"
    )


def _touch(one: Range, other: Range) -> bool:
    """Whole lines count: a cursor at the end of a line means all of it."""
    return one.start.line <= other.end.line and other.start.line <= one.end.line


def _write_edits(fix: Fix, positions: TextPositions) -> Sequence[TextEdit]:
    return [
        TextEdit(range=positions.between(each.start, each.end), new_text=each.text)
        for each in fix.edits
    ]


def fix_everything(
    checker: TextChecker, checked: CheckedText, positions: TextPositions, uri: str
) -> CodeAction | None:
    """All safe fixes of a text at once, as `lint --fix` makes them; None where there are none."""
    fixed = checker.fix_all(checked)
    if fixed.encode() == checked.content:
        return None
    edit = TextEdit(range=positions.whole(), new_text=fixed)
    return CodeAction(
        title="Put right all that lictor can",
        kind=FIX_ALL,
        edit=WorkspaceEdit(changes={uri: [edit]}),
    )
