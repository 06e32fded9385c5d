"""Verdicts become lines of a table: one outcome for each rule's answer."""

from collections.abc import Iterable, Iterator

from lictor.model.result import Status, Verdict
from lictor.report.resource_name import name_resource
from lictor.report.summary import reported_status
from lictor.report.test_outcome import TestOutcome


def list_outcomes(
    verdicts: Iterable[Verdict], *, audit_warn: bool = False
) -> Iterator[TestOutcome]:
    """The lines of `apply --table`, numbered from 1."""
    number = 0
    for verdict in verdicts:
        resource = name_resource(verdict.request.resource)
        for result in verdict.results:
            number += 1
            status = reported_status(result, audit_warn=audit_warn)
            yield TestOutcome(
                id=number,
                policy=result.policy.key,
                rule=result.rule,
                resource=resource,
                result=status,
                message=result.message,
                ok=status not in (Status.FAIL, Status.ERROR),
            )
