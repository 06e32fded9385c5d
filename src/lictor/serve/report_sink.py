"""Results that only an admission can tell become part of the reports."""

import asyncio
import logging
import time
from collections.abc import Callable

from lictor.cluster.ephemeral_reports import EphemeralReports
from lictor.model.request import Operation
from lictor.model.result import PolicyRef, Result, RuleType
from lictor.raw import JsonObject
from lictor.report.resource_report import ReportForm, Subject, build_entry
from lictor.serve.aftermath import Outcome

log = logging.getLogger(__name__)

_DISABLED = "reports.kyverno.io/disabled"
_CHECKS = (RuleType.VALIDATION, RuleType.IMAGE_VERIFY)


class AdmissionReports:
    """Tells what a scan cannot: policies that are asked at admission only, and mutations."""

    takes_triggers = False
    wants_passes = True

    def __init__(
        self,
        reports: EphemeralReports,
        form: ReportForm,
        is_scanned: Callable[[PolicyRef], bool],
    ) -> None:
        self._reports = reports
        self._form = form
        self._is_scanned = is_scanned
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, outcome: Outcome) -> None:
        """Queue the entries of one request."""
        request = outcome.request
        if not outcome.allowed or request.operation is Operation.DELETE or request.subresource:
            return
        results = (*outcome.now.results, *(outcome.later.results if outcome.later else ()))
        entries = self._build(results)
        if not entries:
            return
        subject = Subject.of(request.resource)
        if not subject.name:
            return  # named by the API server later: nobody could find it by what we know
        resource = (request.admission or {}).get("resource") or {}
        adding = self._reports.add(subject, str(resource.get("resource") or ""), entries)
        task = asyncio.get_running_loop().create_task(adding)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _build(self, results: tuple[Result, ...]) -> list[JsonObject]:
        stamp = int(time.time())
        return [
            build_entry(result, background=self._is_scanned(result.policy), timestamp=stamp)
            for result in results
            if self._form.wants(result)
            and _DISABLED not in result.policy.labels
            and not (result.type in _CHECKS and self._is_scanned(result.policy))
        ]
