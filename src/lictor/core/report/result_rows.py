"""Verdicts become rows for a database: one JSON text on a line for each result of a rule."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from lictor.core.model.result import PolicyRef, Result, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.json_text import quote_text
from lictor.core.report.resource_name import read_metadata, read_text
from lictor.core.report.summary import read_message, read_severity, reported_status

# All of them are texts but the last, which is the time in UTC when the run began.
COLUMNS: Final = (
    *("cluster", "api_version", "kind", "namespace", "name", "uid"),
    *("policy", "rule", "result", "severity", "category", "source", "message", "time"),
)
_CACHE_SIZE = 4096


class RowWriter:
    """Renders rows; remembers what is the same for all resources of a rule."""

    def __init__(self, cluster: str, timestamp: int, *, audit_warn: bool = False) -> None:
        self._cluster = cluster
        self._time = datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._audit_warn = audit_warn
        # The policy is kept beside the text, so that its id cannot pass to another one.
        self._known: dict[tuple[int, str, Status, str], tuple[PolicyRef, str]] = {}

    def write(self, verdict: Verdict) -> str:
        """The rows of a verdict, each with an end of line."""
        if not verdict.results:
            return ""
        subject = self._render_subject(verdict.request.resource)
        return "".join(f"{{{subject},{self._render(each)}}}\n" for each in verdict.results)

    def _render_subject(self, resource: JsonObject) -> str:
        metadata = read_metadata(resource)
        fields = {
            "cluster": self._cluster,
            "api_version": read_text(resource.get("apiVersion")),
            "kind": read_text(resource.get("kind")),
            "namespace": read_text(metadata.get("namespace")),
            "name": read_text(metadata.get("name")),
            "uid": read_text(metadata.get("uid")),
        }
        return _join(fields)

    def _render(self, result: Result) -> str:
        status = reported_status(result, audit_warn=self._audit_warn)
        message = read_message(result)
        key = (id(result.policy), result.rule, status, message)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            known = self._known[key] = (result.policy, self._render_result(result, status, message))
        return known[1]

    def _render_result(self, result: Result, status: Status, message: str) -> str:
        policy = result.policy
        fields = {
            "policy": policy.reported_name,
            "rule": result.rule,
            "result": str(status),
            "severity": read_severity(policy),
            "category": policy.category,
            "source": policy.source,
            "message": message,
            "time": self._time,
        }
        return _join(fields)


def _join(fields: Mapping[str, str]) -> str:
    return ",".join(f'"{name}":{quote_text(text)}' for name, text in fields.items())
