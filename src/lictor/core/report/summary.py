"""What verdicts add up to: counts, the summary line, and the text about what failed."""

import re
from collections.abc import Callable, Iterable

import msgspec

from lictor.core.model.finding import Location
from lictor.core.model.request import Request
from lictor.core.model.result import Action, Failure, PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.report.json_text import quote_text, render_json
from lictor.core.report.resource_name import describe_resource

# Constants, because enum lookups cost more than the comparison, some forty for each resource.
_PASS, _FAIL, _MUTATION = Status.PASS, Status.FAIL, RuleType.MUTATION
_LONGEST_VALUE = 120
# Go escapes these for HTML; nothing here is HTML.
_HTML_ESCAPE = re.compile(r"(?<!\\)\\u00(3c|3e|26)")
_SEVERITIES = frozenset(("critical", "high", "medium", "low", "info"))


class Counts(msgspec.Struct, frozen=True):
    """How many rules gave which answer."""

    passed: int = 0
    failed: int = 0
    warned: int = 0
    errors: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.warned + other.warned,
            self.errors + other.errors,
            self.skipped + other.skipped,
        )


def reported_status(result: Result, *, audit_warn: bool = False) -> Status:
    """The status a report shows: a failure of an unscored policy is a warning, and with
    `audit_warn` that of a policy which only audits too."""
    if result.status is not Status.FAIL:
        return result.status
    if not result.policy.scored or (audit_warn and result.action is Action.AUDIT):
        return Status.WARN
    return Status.FAIL


def read_message(result: Result) -> str:
    """The message of a result; a rule's `reportProperties` can replace it."""
    properties = result.properties
    if not properties:
        return result.message
    return properties.get("message") or properties.get(f"{result.status}Message") or result.message


def read_severity(policy: PolicyRef) -> str:
    """The severity of a policy; empty where it is none that reports know."""
    return policy.severity if policy.severity in _SEVERITIES else ""


def count_statuses(statuses: Iterable[Status]) -> Counts:
    """Count answers that are already known."""
    count = list(statuses).count
    return Counts(
        passed=count(Status.PASS),
        failed=count(Status.FAIL),
        warned=count(Status.WARN),
        errors=count(Status.ERROR),
        skipped=count(Status.SKIP),
    )


def count_verdicts(verdicts: Iterable[Verdict], *, audit_warn: bool = False) -> Counts:
    """Count the results of all rules, for the exit code of `apply`."""
    statuses = [
        # Only of failures something else may be reported: most results are none.
        result.status
        if result.status is not _FAIL
        else reported_status(result, audit_warn=audit_warn)
        for verdict in verdicts
        for result in verdict.results
    ]
    return count_statuses(statuses)


def render_counts(counts: Counts) -> str:
    """The line that ends `apply`. The blank at its end is Kyverno's; scripts compare lines."""
    return (
        f"pass: {counts.passed}, fail: {counts.failed}, warn: {counts.warned}, "
        f"error: {counts.errors}, skip: {counts.skipped} "
    )


def render_failures(
    verdict: Verdict,
    *,
    audit_warn: bool = False,
    locate: Callable[[Result], Location | None] = lambda _: None,
) -> str:
    """The output of `apply` for one resource: empty if no result fails, else whole lines."""
    shown = [
        result
        for result in verdict.results
        if result.status is _FAIL or (result.type is _MUTATION and result.status is not _PASS)
    ]
    if not shown:
        return ""
    resource = describe_resource(verdict.request.resource)
    parts: list[str] = []
    for results in group_by_policy(shown):
        for result in results:
            if result.type is _MUTATION:
                parts.append(_render_mutation(result, resource))
        number = 0
        for result in results:
            if result.status is not _FAIL:
                continue
            number += 1
            if number == 1:
                parts.append(_render_title(result, resource, audit_warn=audit_warn))
            parts.append(_render_result(number, result, verdict.request))
            place = locate(result)
            if place is not None:
                parts.append(render_place(place))
    return "".join(parts)


def render_place(place: Location | None) -> str:
    """The line with the location of a result, as editors and terminals follow it."""
    return "" if place is None else f"    --> {place}\n"


def render_failure(failure: Failure, *, secret: bool = False) -> str:
    """Where it fails, what was expected there and what was found, in one line.

    Of a `secret` nothing that was found is shown; a reason may quote it, so it is left out too.
    """
    where = f"at {failure.path}: " if failure.path else ""
    found = _render_value(failure.found)
    if secret and failure.found is not None:
        found = "(hidden)"
    if failure.expected is not None or not failure.reason:
        return f"{where}expected {_render_value(failure.expected)}, found {found}"
    if secret:
        return f"{where}found {found}"
    shown = f" (found {found})" if failure.found is not None else ""
    return f"{where}{_one_line(failure.reason)}{shown}"


def group_by_policy(results: Iterable[Result]) -> list[list[Result]]:
    """The results of each policy, in the order in which policies occur."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.policy.kind, result.policy.key), []).append(result)
    return list(groups.values())


def _render_mutation(result: Result, resource: str) -> str:
    if result.status is Status.SKIP:
        return f"\nskipped mutate policy {result.policy.name} -> resource {resource}\n"
    if result.status is Status.ERROR:
        return (
            f"\nerror while applying mutate policy {result.policy.name} -> resource {resource} "
            f"\nerror:  {result.message}\n"
        )
    return ""


def _render_title(first: Result, resource: str, *, audit_warn: bool) -> str:
    warns = audit_warn and first.action is Action.AUDIT
    ending = "failed as audit warning:" if warns else "failed:"
    return f"policy {first.policy.name} -> resource {resource} {ending}\n"


def _render_result(number: int, result: Result, request: Request) -> str:
    text = f"{number} - {result.rule} {result.message or 'validation failed'}\n"
    if result.failure is None:
        return text
    secret = request.kind.kind == "Secret"
    return f"{text}    {render_failure(result.failure, secret=secret)}\n"


def _render_value(value: object) -> str:
    if value is None:
        return "nothing"
    text = quote_text(value) if isinstance(value, str) else render_json(value)
    return _shorten(_HTML_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text))


def _one_line(text: str) -> str:
    return _shorten(" ".join(text.split()))


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
