"""Findings as text, JSON, SARIF, and workflow commands of GitHub Actions."""

from enum import StrEnum
from typing import assert_never

import msgspec

from lictor.lint.catalog import CHECKS, LintCheck
from lictor.lint.documents import draw_excerpt
from lictor.model.finding import Finding, Severity
from lictor.raw import JsonObject
from lictor.report.json_text import render_json
from lictor.report.sarif import describe_position, render_sarif_log


class LintReport(msgspec.Struct, frozen=True):
    """All findings, in the order of files and lines."""

    findings: tuple[Finding, ...]
    files: int = 0
    # Policies of kinds that have no checks yet.
    unchecked: int = 0

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARNING)

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


class LintFormat(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def render_report(report: LintReport, form: LintFormat, *, version: str = "") -> str:
    """The whole report; ends in a newline unless it is empty."""
    match form:
        case LintFormat.TEXT:
            return _render_text(report)
        case LintFormat.JSON:
            return _render_json(report)
        case LintFormat.SARIF:
            return render_sarif_report(report, version=version)
        case LintFormat.GITHUB:
            return "".join(map(_render_command, report.findings))
        case _:
            assert_never(form)


def _render_text(report: LintReport) -> str:
    return "".join(map(_render_finding, report.findings)) + _summarise(report)


def _render_finding(finding: Finding) -> str:
    severity, text = finding.severity, finding.field_and_text
    excerpt = "" if finding.offset is None else draw_excerpt(finding.offset)
    line = f"{finding.location}: {severity}: {text} [{finding.check}]\n"
    return line + "".join(f"    {each}\n" for each in excerpt.splitlines())


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
    """A workflow command; characters that would end it early are escaped."""
    properties = {
        "file": finding.location.file,
        "line": str(finding.location.line),
        "col": str(finding.location.column),
        "title": finding.check,
    }
    written = ",".join(f"{key}={_escape_property(text)}" for key, text in properties.items())
    return f"::{finding.severity} {written}::{_escape(finding.field_and_text)}\n"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def render_sarif_report(report: LintReport, *, version: str = "") -> str:
    """One SARIF log with every check as a rule, ending in a newline."""
    names = list(CHECKS)
    results = [
        _build_sarif_result(finding, names.index(finding.check)) for finding in report.findings
    ]
    return render_sarif_log([_describe_check(check) for check in CHECKS.values()], results, version)


def _describe_check(check: LintCheck) -> JsonObject:
    return {
        "id": check.name,
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
        "ruleId": finding.check,
        "ruleIndex": index,
        "kind": "fail",
        "level": str(finding.severity),
        "message": {"text": finding.text},
        "locations": [location],
        # The same finding in two runs, though lines have moved.
        "partialFingerprints": {
            "problem/v1": f"{finding.check}:{finding.kind}/{finding.name}:{finding.field}"
        },
    }
