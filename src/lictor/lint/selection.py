"""Selects findings: by the chosen checks, and by ignore comments in files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from lictor.core.errors import UsageError
from lictor.core.model.finding import Finding, Location
from lictor.lint.catalog import CHECKS, LintCheck, flag
from lictor.lint.documents import LintFile

ALL = "ALL"
_COMMENT = re.compile(r"(?:^|\s)#\s*lictor:\s*ignore(?P<file>-file)?(?:\[(?P<checks>[^\[\]]*)\])?")
_UNUSED = "unused-ignore"


class LintSelection(msgspec.Struct, frozen=True):
    """The selected checks: by code, prefix of codes, name, or ALL."""

    select: tuple[str, ...] = (ALL,)
    ignore: tuple[str, ...] = ()
    # Also ignored in files whose paths match a pattern.
    per_file: Mapping[str, tuple[str, ...]] = {}


class CheckChooser:
    """A compiled selection; raises UsageError for an unknown check."""

    def __init__(self, selection: LintSelection) -> None:
        self._chosen = _expand(selection.select) - _expand(selection.ignore)
        self._per_file = [
            (pattern, _expand(names)) for pattern, names in selection.per_file.items()
        ]

    def keep(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """The findings of selected checks."""
        for finding in findings:
            if self.counts(finding.check, finding.location.file):
                yield finding

    def counts(self, check: str, path: str) -> bool:
        if check not in self._chosen:
            return False
        return not any(
            check in ignored and _matches(path, pattern) for pattern, ignored in self._per_file
        )


def _matches(path: str, pattern: str) -> bool:
    """As in ruff: the whole path, its end, or the file name."""
    written = path.replace("\\", "/")
    return fnmatchcase(written, pattern) or fnmatchcase(written, f"*/{pattern}")


def _expand(names: Sequence[str]) -> frozenset[str]:
    """The names of the checks for codes, prefixes and names."""
    found: set[str] = set()
    for name in names:
        word = name.strip()
        if word.upper() == ALL:
            found.update(name for name, check in CHECKS.items() if not check.opt_in)
            continue
        matching = {check.name for check in CHECKS.values() if _is_meant(check, word)}
        if not matching:
            raise UsageError(describe_unknown(word))
        found |= matching
    return frozenset(found)


def _is_meant(check: LintCheck, word: str) -> bool:
    if word == check.name or word.upper() == check.code:
        return True
    # Opt-in checks must be named in full.
    return not check.opt_in and len(word) > 2 and check.code.startswith(word.upper())


def describe_unknown(word: str) -> str:
    """That there is no such check, and which was probably meant."""
    codes = [check.code for check in CHECKS.values()]
    close = get_close_matches(word.lower(), CHECKS, n=1) or get_close_matches(word.upper(), codes)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"there is no check {word!r}{hint}"


class _IgnoreComment(msgspec.Struct):
    """`# lictor: ignore[LIC101]` at the end of a line, or `ignore-file` for a whole file."""

    line: int
    column: int
    checks: frozenset[str]
    # Its line; 0: all lines.
    covered: int
    is_used: bool = False

    def covers(self, finding: Finding) -> bool:
        return finding.check in self.checks and self.covered in (0, finding.location.line)


def drop_ignored(file: LintFile, findings: Sequence[Finding]) -> list[Finding]:
    """The findings of a file without ignored ones; and unused ignore comments."""
    if b"lictor:" not in file.content:
        return list(findings)
    comments, faults = _read_comments(file)
    kept: list[Finding] = []
    for finding in findings:
        covering = [comment for comment in comments if comment.covers(finding)]
        for comment in covering:
            comment.is_used = True
        if not covering:
            kept.append(finding)
    return [*kept, *faults, *(_describe_unused(file, c) for c in comments if not c.is_used)]


def _read_comments(file: LintFile) -> tuple[list[_IgnoreComment], list[Finding]]:
    comments: list[_IgnoreComment] = []
    faults: list[Finding] = []
    for number, line in enumerate(file.lines(), 1):
        found = _COMMENT.search(line)
        if found is None:
            continue
        column = line.index("#", found.start()) + 1
        try:
            checks = _read_names(found["checks"])
        except UsageError as error:
            faults.append(_locate(flag(_UNUSED, (), str(error)), file, number, column))
            continue
        # Alone on its line, it applies to the next one.
        is_alone = not line[: column - 1].strip()
        covered = 0 if found["file"] else number + is_alone
        comments.append(_IgnoreComment(number, column, checks, covered))
    return comments, faults


def _read_names(text: str | None) -> frozenset[str]:
    if text is None or not text.strip():
        raise UsageError("name the ignored checks: # lictor: ignore[LIC101]")
    return _expand(text.split(","))


def _describe_unused(file: LintFile, comment: _IgnoreComment) -> Finding:
    codes = ", ".join(sorted(CHECKS[name].code for name in comment.checks))
    finding = flag(_UNUSED, (), f"unused ignore comment ({codes})")
    return _locate(finding, file, comment.line, comment.column)


def _locate(finding: Finding, file: LintFile, line: int, column: int) -> Finding:
    return replace(finding, location=Location(file.source, line, column))
