"""Results as workflow commands of GitHub Actions, which show them beside the lines of a change."""

from collections.abc import Callable, Iterable

from lictor.core.model.finding import Location
from lictor.core.model.result import Result, Status, Verdict
from lictor.core.report.resource_name import name_resource
from lictor.core.report.summary import render_failure, reported_status

_LEVELS = {Status.FAIL: "error", Status.ERROR: "error", Status.WARN: "warning"}


def render_github(
    verdicts: Iterable[Verdict],
    *,
    locate: Callable[[Result], Location | None] = lambda _: None,
    audit_warn: bool = False,
) -> str:
    """A line for each result that is not right; empty where all are."""
    lines = []
    for verdict in verdicts:
        for result in verdict.results:
            status = reported_status(result, audit_warn=audit_warn)
            if status in _LEVELS:
                text = _describe(result, verdict)
                title = f"{result.policy.key}/{result.rule}".rstrip("/")
                place = locate(result)
                lines.append(write_command(_LEVELS[status], title, text, place))
    return "".join(lines)


def _describe(result: Result, verdict: Verdict) -> str:
    text = result.message or "validation failed"
    if result.status is Status.ERROR:
        text = f"could not be decided: {text}"
    if result.failure is not None:
        secret = verdict.request.kind.kind == "Secret"
        text = f"{text}\n{render_failure(result.failure, secret=secret)}"
    return f"{name_resource(verdict.request.resource)}: {text}"


def write_command(level: str, title: str, text: str, location: Location | None) -> str:
    """One command, ending in a newline; characters that would end it early are escaped."""
    properties = {"title": title}
    if location is not None:
        place = {"file": location.file, "line": str(location.line)}
        properties = {**place, "col": str(location.column), **properties}
    written = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{level} {written}::{_escape(text)}\n"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
