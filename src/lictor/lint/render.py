"""Findings as text for people, JSON for programs, and commands for a code host's checks."""

from enum import StrEnum
from typing import assert_never

from lictor.lint.finding import LintReport
from lictor.lint.sarif import render_sarif_report
from lictor.lint.spots import draw_excerpt
from lictor.model.finding import Finding
from lictor.raw import JsonObject
from lictor.report.json_text import render_json


class Format(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def render_report(report: LintReport, form: Format, *, version: str = "") -> str:
    """The whole report; ends in a newline unless it is empty."""
    match form:
        case Format.TEXT:
            return _render_text(report)
        case Format.JSON:
            return _render_json(report)
        case Format.SARIF:
            return render_sarif_report(report, version=version)
        case Format.GITHUB:
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
