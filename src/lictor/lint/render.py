"""Findings as text for people, JSON for programs, and commands for a code host's checks."""

from enum import StrEnum
from typing import assert_never

from lictor.lint.finding import Finding, LintReport
from lictor.lint.sarif import render_sarif_report
from lictor.load.problem import Problem
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


def tell(problem: Problem) -> str:
    """The message with the suggestion."""
    hint = f' (did you mean "{problem.suggestion}"?)' if problem.suggestion else ""
    return f"{problem.message}{hint}"


def _render_text(report: LintReport) -> str:
    return "".join(map(_render_finding, report.findings)) + _summarise(report)


def _render_finding(finding: Finding) -> str:
    problem = finding.problem
    path = f"{problem.path}: " if problem.path else ""
    text = f"{problem.where}: {problem.severity}: {path}{tell(problem)} [{finding.check}]\n"
    return text + "".join(f"    {line}\n" for line in finding.excerpt.splitlines())


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
    problem = finding.problem
    return {
        "check": finding.check,
        "severity": str(problem.severity),
        "file": problem.source,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "suggestion": problem.suggestion,
        "excerpt": finding.excerpt,
        "kind": problem.kind,
        "name": problem.name,
    }


def _render_command(finding: Finding) -> str:
    """A workflow command; what would end it early is written as a code."""
    problem = finding.problem
    properties = {
        "file": problem.source,
        "line": str(problem.line),
        "col": str(problem.column),
        "title": finding.check,
    }
    written = ",".join(f"{key}={_escape_property(text)}" for key, text in properties.items())
    path = f"{problem.path}: " if problem.path else ""
    return f"::{problem.severity} {written}::{_escape(path + tell(problem))}\n"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
