"""The page of one result: its cause, how to fix it, its policy, and an exception to copy."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from lictor.addons.web.pages.exceptions import write_exception
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.policy_text import find_rule, read_title
from lictor.addons.web.pages.words import WRONG, name_resource_of
from lictor.addons.web.records import ReportedResult, ResultFilter, ShownPolicy
from lictor.core.model.result import Failure
from lictor.core.raw import Json
from lictor.core.report.json_text import render_json

_MOST_ALIKE = 20
_MOST_OTHERS = 10
_LONGEST_VALUE = 4000
# Common patterns in words.
_PATTERN_WORDS = {"?*": "any text that is not empty", "*": "any value"}
# Where a resource was read, if it came from a file: `path:line`.
PLACE_PROPERTY = "file"
# The properties in which other tools report how to fix a finding.
_ADVICE_PROPERTIES = ("remediation", "resolution", "fix", "recommendation")


class ShownFailure(msgspec.Struct, frozen=True):
    """Where a resource violates a rule, as texts; None for a value that is missing."""

    path: str
    expected: str | None
    found: str | None
    reason: str
    has_values: bool


class FieldChange(msgspec.Struct, frozen=True):
    """The change of one field that fixes a failure."""

    verb: str
    path: str
    found: str = ""
    # The expected value, or what a pattern means in words.
    expected: str = ""
    words: str = ""


class ResultFacts(msgspec.Struct, frozen=True):
    """A result with its policy and its failure, if they are known."""

    row: ReportedResult
    policy: ShownPolicy | None = None
    failure: Failure | None = None

    @property
    def title(self) -> str:
        return read_title(self.policy, self.row.policy or "no policy")

    @property
    def is_wrong(self) -> bool:
        return self.row.status in WRONG

    @property
    def place(self) -> str:
        """`path:line` of a resource that was read from a file."""
        return self.row.properties.get(PLACE_PROPERTY, "")

    @property
    def marked(self) -> tuple[int, int] | None:
        """The first and the last line of the rule."""
        return find_rule(self.policy, self.row.rule) if self.policy is not None else None

    @property
    def exception(self) -> str:
        """An exception as YAML; empty if there is none for such a result."""
        return write_exception(self.row, self.policy)

    @property
    def shown_failure(self) -> ShownFailure | None:
        failure = self.failure
        if failure is None:
            return None
        return ShownFailure(
            _trim(failure.path),
            _write_value(failure.expected),
            _write_value(failure.found),
            failure.reason if failure.expected is None else "",
            failure.expected is not None or failure.found is not None,
        )

    @property
    def given_advice(self) -> list[str]:
        """How to fix it, from the report."""
        found = {key.lower(): value for key, value in self.row.properties.items()}
        return [found[key] for key in _ADVICE_PROPERTIES if found.get(key)]

    @property
    def change(self) -> FieldChange | None:
        """The change that fixes it; None if expected and found values do not show it."""
        failure = self.failure
        if failure is None or not failure.path:
            return None
        path = _trim(failure.path)
        if failure.expected is None:
            return FieldChange("Correct", path) if failure.found is not None else None
        verb, found = ("Add", "") if failure.found is None else ("Change", _cut(failure.found))
        word = _PATTERN_WORDS.get(failure.expected) if isinstance(failure.expected, str) else None
        return FieldChange(verb, path, found, _cut(failure.expected), word or "")

    @property
    def edit_command(self) -> str:
        return _write_kubectl("edit", self.row)

    @property
    def explain_command(self) -> str:
        policy = self.policy.name if self.policy is not None else self.row.policy
        if place := self.place.rpartition(":")[0]:
            return f"lictor explain {policy}.yaml -r {place}"
        return f"{_write_kubectl('get', self.row)} -o yaml | lictor explain {policy}.yaml -r -"


def _trim(path: str) -> str:
    return path.rstrip("/") or path


def _write_value(value: Json) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else render_json(value, indent=True)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _cut(value: Json) -> str:
    text = value if isinstance(value, str) else render_json(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _write_kubectl(verb: str, row: ReportedResult) -> str:
    group = row.api_version.rpartition("/")[0]
    kind = f"{row.kind}.{row.api_version.partition('/')[2]}.{group}" if group else row.kind
    place = f" -n {row.namespace}" if row.namespace else ""
    return f"kubectl {verb} {kind.lower()} {row.name}{place}"


async def render_result(context: PageContext, chosen: ResultFilter) -> Section:
    """The page of the result that the address names."""
    found = context.state.results.select(chosen, context.viewer, limit=_MOST_ALIKE)
    if not found.rows or not chosen.policies:
        return render_gone("Result not found")
    at = context.request.read("at")
    number = int(at) if at.isascii() and at.isdigit() and len(at) < 3 else 0
    row = found.rows[min(number, len(found.rows) - 1)]
    facts = ResultFacts(row, find_policy_of(context, row), await _find_failure(context, row))
    values: Mapping[str, object] = {
        "facts": facts,
        "row": row,
        "namespace_filter": ResultFilter(clusters=(row.cluster,), namespaces=(row.namespace,)),
        "alike": found.rows,
        **_list_others(context, row),
    }
    return Section(f"{row.policy}: {name_resource_of(row)}", "result.html", values)


def render_gone(text: str) -> Section:
    """The page for something that does not exist, or that the viewer must not see."""
    return Section(text, "gone.html", {"text": text}, HTTPStatus.NOT_FOUND)


def find_policy_of(context: PageContext, row: ReportedResult) -> ShownPolicy | None:
    """The policy of a result; None if it does not exist or the viewer must not see it."""
    return context.state.find_policy(row.cluster, row.policy, context.viewer)


async def _find_failure(context: PageContext, row: ReportedResult) -> Failure | None:
    if row.status not in WRONG:
        return None
    return await context.state.find_failure(row, context.viewer)


def _list_others(context: PageContext, row: ReportedResult) -> Mapping[str, object]:
    """Other failures, errors and warnings of the resource."""
    whole = ResultFilter(
        clusters=(row.cluster,), namespaces=(row.namespace,), kinds=(row.kind,), name=row.name
    )
    page = context.state.results.select(
        replace(whole, statuses=WRONG), context.viewer, limit=_MOST_OTHERS + 1
    )
    others = [other for other in page.rows if _identify(other) != _identify(row)]
    return {"others": others[:_MOST_OTHERS], "resource_filter": whole}


def _identify(row: ReportedResult) -> tuple[str, str, int]:
    return row.cluster, row.report, row.position
