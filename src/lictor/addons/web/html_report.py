"""What `apply` found as one HTML file: results and policies become what pages are made of."""

from collections.abc import Iterable

from lictor.addons.web.failures import hide_values
from lictor.addons.web.pages.details import PLACE_PROPERTY
from lictor.addons.web.pages.standalone import ResultKey, StandaloneReport, render_standalone
from lictor.addons.web.policies import list_objects
from lictor.addons.web.records import Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.cli.inputs.sources import SourceText
from lictor.core.load.yaml import read_documents
from lictor.core.model.result import Failure, Result, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import ReportSubject, build_entry
from lictor.core.report.summary import reported_status

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
