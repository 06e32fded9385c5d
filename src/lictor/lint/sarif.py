"""Findings as SARIF 2.1.0, which code hosts show beside the lines at finding."""

from lictor.lint import CHECKS, CheckInfo
from lictor.lint.finding import LintReport
from lictor.model.finding import Finding
from lictor.raw import JsonObject
from lictor.report.sarif import _describe_place, _render_log


def render_sarif_report(report: LintReport, *, version: str = "") -> str:
    """One SARIF log with every check as a rule, ending in a newline."""
    names = list(CHECKS)
    results = [_build_result(finding, names.index(finding.check)) for finding in report.findings]
    return _render_log([_describe_check(check) for check in CHECKS.values()], results, version)


def _describe_check(check: CheckInfo) -> JsonObject:
    return {
        "id": check.name,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": check.summary},
        "help": {"text": check.summary, "markdown": check.summary},
        "defaultConfiguration": {"level": str(check.severity)},
        "properties": {"tags": ["policy"]},
    }


def _build_result(finding: Finding, index: int) -> JsonObject:
    place = _describe_place(finding.location)
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
