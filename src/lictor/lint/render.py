"""Findings as text, code frames, JSON, SARIF, and workflow commands of GitHub Actions."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import assert_never

import msgspec

from lictor.core.model.finding import Finding, Severity
from lictor.core.raw import JsonObject
from lictor.core.report.github import write_command
from lictor.core.report.json_text import render_json
from lictor.core.report.sarif import describe_position, render_sarif_log
from lictor.core.report.table import paint
from lictor.lint.catalog import CHECKS, LintCheck
from lictor.lint.documents import draw_excerpt


class LintReport(msgspec.Struct, frozen=True):
    """All findings, in the order of files and lines."""

    findings: tuple[Finding, ...]
    files: int = 0
    # Policies of kinds that have no checks yet.
    unchecked: int = 0
    # By path, the files with findings.
    texts: Mapping[str, bytes] = {}

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARNING)

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


class LintFormat(StrEnum):
    """The output format of findings."""

    TEXT = "text"
    FULL = "full"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    GITLAB = "gitlab"


def render_report(
    report: LintReport, form: LintFormat, *, version: str = "", color: bool = False
) -> str:
    """The whole report; ends in a newline unless it is empty."""
    match form:
        case LintFormat.FULL:
            return _render_full(report, color=color)
        case LintFormat.TEXT:
            return _render_text(report)
        case LintFormat.JSON:
            return _render_json(report)
        case LintFormat.SARIF:
            return render_sarif_report(report, version=version)
        case LintFormat.GITHUB:
            return "".join(map(_render_command, report.findings))
        case LintFormat.GITLAB:
            return _render_code_quality(report)
        case _:
            assert_never(form)


def render_statistics(report: LintReport) -> str:
    """The number of findings of each check, the most frequent first, and the sum."""
    counts = Counter(finding.check for finding in report.findings)
    lines = [
        f"{count:5}  {CHECKS[name].code}  {CHECKS[name].severity:7}  {name}\n"
        for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], CHECKS[pair[0]].code))
    ]
    return "".join(lines) + _summarise(report)


def _render_code_quality(report: LintReport) -> str:
    """GitLab's report of code quality."""
    return render_json([_build_quality_entry(each) for each in report.findings], indent=True) + "\n"


def _build_quality_entry(finding: Finding) -> JsonObject:
    return {
        "description": finding.field_and_text,
        "check_name": _name_check(finding),
        "fingerprint": sha256(
            f"{finding.location.file}:{_fingerprint(finding)}:{finding.text}".encode()
        ).hexdigest(),
        "severity": "major" if finding.severity is Severity.ERROR else "minor",
        "location": {
            "path": finding.location.file.removeprefix("./"),
            "lines": {"begin": finding.location.line},
        },
    }


def _fingerprint(finding: Finding) -> str:
    """Equal for a finding in two runs, even if lines have moved."""
    return f"{finding.check}:{finding.kind}/{finding.name}:{finding.field}"


def _render_full(report: LintReport, *, color: bool) -> str:
    lines = {
        path: content.decode(errors="replace").split("\n") for path, content in report.texts.items()
    }
    drawn = (
        _draw_finding(each, lines.get(each.location.file, ()), color=color)
        for each in report.findings
    )
    return "".join(drawn) + _summarise(report)


def _render_text(report: LintReport) -> str:
    return "".join(map(_render_finding, report.findings)) + _summarise(report)


def _render_finding(finding: Finding) -> str:
    severity, text = finding.severity, finding.field_and_text
    excerpt = "" if finding.offset is None else draw_excerpt(finding.offset)
    line = f"{finding.location}: {severity}: {text} [{_name_check(finding)}]\n"
    return line + "".join(f"    {each}\n" for each in excerpt.splitlines())


def _name_check(finding: Finding) -> str:
    """Its code, as in comments and settings, and its name."""
    return f"{CHECKS[finding.check].code} {finding.check}"


def _summarise(report: LintReport) -> str:
    where = _count(report.files, "file")
    if report.findings:
        errors, warnings = _count(report.errors, "error"), _count(report.warnings, "warning")
        text = f"{errors}, {warnings} in {where}"
    else:
        text = f"no problems in {where}"
    if report.unchecked:
        many = f"{report.unchecked} policies of other families are"
        who = many if report.unchecked > 1 else "1 policy of another family is"
        text += f"; {who} not looked into yet"
    return f"{text}\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _render_json(report: LintReport) -> str:
    document = {
        "files": report.files,
        "errors": report.errors,
        "warnings": report.warnings,
        "unchecked": report.unchecked,
        "problems": [_describe(finding) for finding in report.findings],
    }
    return render_json(document, indent=True) + "\n"


def _describe(finding: Finding) -> JsonObject:
    return {
        "code": CHECKS[finding.check].code,
        "check": finding.check,
        "severity": str(finding.severity),
        "file": finding.location.file,
        "line": finding.location.line,
        "column": finding.location.column,
        "path": finding.field,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "excerpt": "" if finding.offset is None else draw_excerpt(finding.offset),
        "kind": finding.kind,
        "name": finding.name,
    }


def _render_command(finding: Finding) -> str:
    title, text = _name_check(finding), finding.field_and_text
    return write_command(str(finding.severity), title, text, finding.location)


def render_sarif_report(report: LintReport, *, version: str = "") -> str:
    """One SARIF log with every check as a rule, ending in a newline."""
    names = list(CHECKS)
    results = [
        _build_sarif_result(finding, names.index(finding.check)) for finding in report.findings
    ]
    return render_sarif_log([_describe_check(check) for check in CHECKS.values()], results, version)


def _describe_check(check: LintCheck) -> JsonObject:
    return {
        "id": check.code,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": check.summary},
        "help": {"text": check.summary, "markdown": check.summary},
        "defaultConfiguration": {"level": str(check.severity)},
        "properties": {"tags": ["policy"]},
    }


def _build_sarif_result(finding: Finding, index: int) -> JsonObject:
    place = describe_position(finding.location)
    place["region"]["startColumn"] = max(finding.location.column, 1)
    location: JsonObject = {"physicalLocation": place}
    if finding.path:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.field, "kind": "member"}]
    return {
        "ruleId": CHECKS[finding.check].code,
        "ruleIndex": index,
        "kind": "fail",
        "level": str(finding.severity),
        "message": {"text": finding.text},
        "locations": [location],
        "partialFingerprints": {"problem/v1": _fingerprint(finding)},
    }


# --- on a terminal: the lines around a finding, with a mark below the place

# The extent of a mark: a word, with the characters of names of fields and functions.
_WORD = re.compile(r"[\w.$/+-]+|\S")
_BEFORE = 2
_AFTER = 1
_WIDTH = 160
_RED, _YELLOW = "31", "33"
_STEERING = re.compile(
    "(?!\x1b\\[(?:31|33|0)m)[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]"
)


def _draw_finding(finding: Finding, lines: Sequence[str], *, color: bool) -> str:
    """Headline, code frame and hint, ending in an empty line."""
    shade = "" if not color else _RED if finding.severity is Severity.ERROR else _YELLOW
    head = paint(f"{finding.severity}[{CHECKS[finding.check].code}]", shade)
    where = f" {finding.field}" if finding.path else ""
    parts = [f"{head}{where}: {finding.message}", *_draw_frame(finding, lines, shade)]
    if finding.suggestion:
        parts.append(f'  = did you mean "{finding.suggestion}"?')
    return "\n".join(map(_clean, parts)) + "\n\n"


def _clean(text: str) -> str:
    """Remove terminal escapes other than ours: the texts are untrusted."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def _draw_frame(finding: Finding, lines: Sequence[str], shade: str) -> list[str]:
    """`  --> file:line:column`, and the lines; only the location if the file is unavailable."""
    number, column = finding.location.line, finding.location.column
    if not 1 <= number <= len(lines):
        return [f"  --> {finding.location}"]
    first, last = max(number - _BEFORE, 1), min(number + _AFTER, len(lines))
    margin = len(str(last))
    blank = " " * margin
    drawn = [f"{blank}--> {finding.location}", f"{blank} |"]
    for each in range(first, last + 1):
        text = lines[each - 1].rstrip("\r")[:_WIDTH]
        drawn.append(f"{each:{margin}} | {text}".rstrip())
        if each == number and column <= len(text) + 1:
            mark = paint("^" * _measure(text, column), shade)
            drawn.append(f"{blank} | {_indent(text, column)}{mark}")
    return [*drawn, f"{blank} |"]


def _measure(text: str, column: int) -> int:
    found = _WORD.match(text, column - 1)
    return len(found[0]) if found else 1


def _indent(text: str, column: int) -> str:
    """Spaces up to the column; tabs stay tabs, so that the mark is aligned."""
    return "".join("\t" if letter == "\t" else " " for letter in text[: column - 1])
