"""What `apply` found as one HTML file: results and policies become what pages are made of."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec

from lictor.addons.web.failures import hide_values
from lictor.addons.web.pages.details import PLACE_PROPERTY, ResultFacts
from lictor.addons.web.pages.layout import read_static
from lictor.addons.web.pages.policy_text import read_title
from lictor.addons.web.pages.tables import sum_groups
from lictor.addons.web.pages.templates import render_template
from lictor.addons.web.pages.words import WRONG
from lictor.addons.web.policies import list_objects
from lictor.addons.web.records import ReportedResult, ResultFilter, ShownPolicy, Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.cli.inputs.sources import SourceText
from lictor.core.load.yaml import read_documents
from lictor.core.model.result import Failure, Result, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import ReportSubject, build_entry
from lictor.core.report.summary import reported_status

# Each is some kilobytes: a browser opens so many at once.
_MOST_RESULTS = 2000
ResultKey: TypeAlias = tuple[str, str, str, str, str]


def identify_result(row: ReportedResult) -> ResultKey:
    """What a result is about: policy, rule, namespace, kind and name."""
    return row.policy, row.rule, row.namespace, row.kind, row.name


class StandaloneReport(msgspec.Struct, frozen=True):
    """Everything that the file shows."""

    state: PageData
    viewer: Viewer
    # Where resources break rules.
    failures: Mapping[ResultKey, Failure]
    # Seconds since 1970.
    now: int


def render_standalone(report: StandaloneReport) -> str:
    """The document, from its doctype on."""
    from markupsafe import Markup

    groups = report.state.results.count(ResultFilter(), report.viewer, ("policy",))
    resources = report.state.results.count(
        ResultFilter(), report.viewer, ("namespace", "kind", "name")
    )
    wrong = ResultFilter(statuses=WRONG)
    rows, total = report.state.results.select_many(wrong, report.viewer, _MOST_RESULTS)
    policies = _find_policies(report, rows)
    style, script = _read("page.css"), _read("page.js")
    return render_template(
        "standalone.html",
        # As on the pages, only our own style and script run, with any content of a report.
        rules=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        style=Markup(style),  # noqa: S704  (a file of this package)
        script=Markup(script),  # noqa: S704  (a file of this package)
        now=report.now,
        totals=sum_groups(groups),
        resources=len(resources),
        groups=groups,
        findings_shown=[_collect_facts(report, row, policies) for row in rows],
        total=total,
        policies=[
            (name, policy, read_title(policy, name)) for name, policy in sorted(policies.items())
        ],
        anchors={name: _anchor(name) for name in policies},
    )


def _collect_facts(
    report: StandaloneReport, row: ReportedResult, policies: Mapping[str, ShownPolicy]
) -> ResultFacts:
    return ResultFacts(row, policies.get(row.policy), report.failures.get(identify_result(row)))


def _read(name: str) -> str:
    found = read_static(name)
    return found.body.decode() if found else ""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _find_policies(
    report: StandaloneReport, rows: Sequence[ReportedResult]
) -> dict[str, ShownPolicy]:
    found: dict[str, ShownPolicy] = {}
    for row in rows:
        if row.policy not in found:
            policy = report.state.find_policy(row.cluster, row.policy, report.viewer)
            if policy is not None:
                found[row.policy] = policy
    return found


def _anchor(policy: str) -> str:
    # The name of a policy can contain blanks; an address cannot.
    return f"policy-{sha256(policy.encode(errors='replace')).hexdigest()[:12]}"


# There is one source, and it needs no name.
_SOURCE = ""
_ALL = Viewer.of_all("", (_SOURCE,))


class HtmlReport:
    """Collects results, then writes them."""

    def __init__(self, timestamp: int) -> None:
        self._timestamp = timestamp
        self._state = PageData((_SOURCE,))
        self._failures: dict[ResultKey, Failure] = {}
        self._count = 0

    def add_policies(self, texts: Iterable[SourceText]) -> None:
        """The texts of policies, to show beside what breaks them."""
        for text in texts:
            for document in read_documents(text.content, text.path):
                # Loading has reported an invalid document.
                for body in list_objects(getattr(document, "body", None)):
                    self._state.put_document(_SOURCE, body)

    def add(self, report: JsonObject, failures: Verdict | None, where: str) -> None:
        """Add the results of one resource, and where it was read: `file:line`, or empty."""
        self._count += 1
        for entry in report["results"] if where else ():
            entry["properties"][PLACE_PROPERTY] = where
        named = {**report, "metadata": {"name": str(self._count)}}
        self._state.results.put_report(_SOURCE, named)
        for result in failures.results if failures is not None else ():
            if result.failure is not None:
                self._failures[_identify(report, result)] = hide_values(
                    result.failure, report["scope"].get("kind", "")
                )

    def render(self) -> str:
        """The document."""
        report = StandaloneReport(self._state, _ALL, self._failures, self._timestamp)
        return render_standalone(report)


def build_page_report(verdict: Verdict, timestamp: int, *, audit_warn: bool) -> JsonObject:
    """A verdict as a report; plain data that can travel between processes."""
    subject = ReportSubject.of(verdict.request.resource)
    entries = []
    for result in verdict.results:
        entry = build_entry(result, background=True, timestamp=timestamp)
        entry["result"] = str(reported_status(result, audit_warn=audit_warn))
        entries.append(entry)
    scope = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
    }
    return {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "scope": {name: text for name, text in scope.items() if text},
        "results": entries,
    }


def _identify(report: JsonObject, result: Result) -> ResultKey:
    scope = report["scope"]
    place = scope.get("namespace", ""), scope.get("kind", ""), scope.get("name", "")
    return (result.policy.reported_name, result.rule, *place)
