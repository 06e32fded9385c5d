"""Verdicts and test outcomes become SARIF 2.1.0, which code hosts show beside the code."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lictor.core.model.finding import Location
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.json_text import render_json
from lictor.core.report.outcomes import TestOutcome
from lictor.core.report.resource_name import name_resource
from lictor.core.report.summary import render_failure, reported_status

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
# How code hosts sort by severity: a score of 0 to 10 as text.
_SCORES = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "3.0", "info": "1.0"}
_URI_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:@")


# The location of a result; None if it is unknown.
Locate: TypeAlias = Callable[[Result], Location | None]


def render_sarif(
    verdicts: Iterable[Verdict],
    *,
    locate: Locate = lambda _: None,
    version: str = "",
    audit_warn: bool = False,
) -> str:
    """One SARIF log of everything that is not right, ending in a newline."""
    rules = _Rules()
    results = [
        _build_result(result, verdict.request, rules, locate, audit_warn=audit_warn)
        for verdict in verdicts
        for result in verdict.results
        if result.status in (Status.FAIL, Status.WARN, Status.ERROR)
    ]
    return render_sarif_log(rules.listed, results, version)


def render_test_sarif(outcomes: Iterable[TestOutcome], *, version: str = "") -> str:
    """One SARIF log of the expectations that were not met, ending in a newline."""
    rules = _Rules()
    results = [_build_outcome(outcome, rules) for outcome in outcomes if not outcome.ok]
    return render_sarif_log(rules.listed, results, version)


class _Rules:
    """The rules that results refer to, each described once."""

    def __init__(self) -> None:
        self.listed: list[JsonObject] = []
        self._indexes: dict[str, int] = {}

    def index_of(self, policy: PolicyRef, rule: str) -> tuple[str, int]:
        name = f"{policy.key}/{rule}" if rule else policy.key
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = len(self.listed)
            self.listed.append(_describe_rule(name, policy, rule))
        return name, index


def _describe_rule(name: str, policy: PolicyRef, rule: str) -> JsonObject:
    title = policy.annotations.get(f"{policy.annotation_prefix}title") or policy.name
    text = policy.annotations.get(f"{policy.annotation_prefix}description") or (
        f"Rule {rule} of policy {policy.key}." if rule else f"Policy {policy.key}."
    )
    properties: JsonObject = {"tags": [policy.category] if policy.category else []}
    if policy.severity in _SCORES:
        properties["security-severity"] = _SCORES[policy.severity]
    return {
        "id": name,
        "name": rule or policy.name,
        "shortDescription": {"text": f"{title}: {rule}" if rule else title},
        "fullDescription": {"text": text},
        "help": {"text": text, "markdown": f"**{title}**\n\n{text}"},
        "defaultConfiguration": {"level": _LEVELS.get(policy.severity, "error")},
        "properties": properties,
    }


def _build_result(
    result: Result, request: Request, rules: _Rules, locate: Locate, *, audit_warn: bool
) -> JsonObject:
    name, index = rules.index_of(result.policy, result.rule)
    status = reported_status(result, audit_warn=audit_warn)
    resource = name_resource(request.resource)
    return {
        "ruleId": name,
        "ruleIndex": index,
        "kind": "fail",
        "level": _level(status, result.policy),
        "message": {"text": _message(result, request)},
        "locations": [_describe_location(resource, result, locate(result))],
        # The same finding in two runs, though lines have moved.
        "partialFingerprints": {"resource/v1": f"{name}:{resource}"},
        # The level follows the severity of the policy; the status decides the exit code.
        "properties": {"status": str(status)},
    }


def _level(status: Status, policy: PolicyRef) -> str:
    if status is Status.WARN:
        return "warning"
    return "error" if status is Status.ERROR else _LEVELS.get(policy.severity, "error")


def _message(result: Result, request: Request) -> str:
    text = result.message or "validation failed"
    if result.status is Status.ERROR:
        text = f"could not be decided: {text}"
    if result.failure is None:
        return text
    secret = request.kind.kind == "Secret"
    return f"{text}\n{render_failure(result.failure, secret=secret)}"


def _describe_location(resource: str, result: Result, place: Location | None) -> JsonObject:
    path = result.failure.path if result.failure is not None else ""
    logical = {"fullyQualifiedName": f"{resource}{_as_suffix(path)}", "kind": "resource"}
    location: JsonObject = {"logicalLocations": [logical]}
    if place is not None:
        described = location["physicalLocation"] = describe_position(place)
        described["region"]["startColumn"] = max(place.column, 1)
    return location


def _as_suffix(path: str) -> str:
    if not path:
        return ""
    return path if path.startswith("/") else f"/{path}"


def describe_position(place: Location) -> JsonObject:
    """The file and line of a result."""
    uri = place.file.replace("\\", "/").removeprefix("./")
    return {
        "artifactLocation": {"uri": _quote_uri(uri)},
        "region": {"startLine": max(place.line, 1)},
    }


def _quote_uri(path: str) -> str:
    """A path as a URI reference: every byte that has no place in one becomes %XX."""
    data = path.encode("utf-8", errors="replace")
    return "".join(chr(byte) if byte in _URI_BYTES else f"%{byte:02X}" for byte in data)


def _build_outcome(outcome: TestOutcome, rules: _Rules) -> JsonObject:
    name, index = rules.index_of(PolicyRef(name=outcome.policy), outcome.rule)
    place = Location(outcome.source) if outcome.source else None
    location: JsonObject = {
        "logicalLocations": [{"fullyQualifiedName": outcome.resource, "kind": "resource"}]
    }
    if place is not None:
        location["physicalLocation"] = describe_position(place)
    text = ": ".join(part for part in (outcome.reason, outcome.message) if part)
    return {
        "ruleId": name,
        "ruleIndex": index,
        "kind": "fail",
        "level": "error",
        "message": {"text": text or outcome.title},
        "locations": [location],
        "partialFingerprints": {"resource/v1": f"{name}:{outcome.resource}"},
    }


def render_sarif_log(rules: list[JsonObject], results: list[JsonObject], version: str) -> str:
    """The whole log: one run of one tool, ending in a newline."""
    driver: JsonObject = {"name": "lictor", "rules": rules}
    if version:
        driver["version"] = version
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }
    return render_json(log, indent=True) + "\n"
