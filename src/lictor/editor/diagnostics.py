"""Findings of `lint` as diagnostics, and its fixes as code actions."""

from collections.abc import Iterator, Sequence
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

from lictor.editor.checked_text import CheckedText, TextChecker
from lictor.editor.positions import TextPositions
from lictor.lint.catalog import CHECKS
from lictor.lint.fixes import Fix
from lictor.model.finding import Finding, Severity

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
    """Where the pages about checks are: in a checkout, or where the editor's settings say."""

    def __init__(self, address: str = "") -> None:
        folder = Path(__file__).parents[3] / "docs" / "rules"
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
    """Whole lines count: who asks at the end of a line means all of it."""
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
