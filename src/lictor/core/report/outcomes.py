"""One row of a table of results: the record that every tabular format is made from.

`test` makes one TestOutcome for each expectation that it checked, `apply` one for each result of a
rule (`list_outcomes`). `table`, `outcome_formats` and `sarif` render them.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from lictor.core.model.result import Status, Verdict
from lictor.core.report.resource_name import name_resource
from lictor.core.report.summary import reported_status


class TestOutcome(msgspec.Struct, frozen=True):
    """The result of one rule for one resource, and whether it is the expected one."""

    # pytest must not take this for a test class.
    __test__: ClassVar[bool] = False

    id: int
    policy: str
    rule: str
    # `v1/Pod/namespace/name` in `test`, `namespace/Pod/name` in `apply`.
    resource: str
    result: Status
    # "Ok", "Want pass, got fail", "Excluded", "Not found"; empty in `apply`.
    reason: str = ""
    message: str = ""
    ok: bool = True
    # The test file that expects it, for formats that can point at a file.
    source: str = ""
    # Why a policy could not decide, where it should have.
    error: str = ""

    @property
    def title(self) -> str:
        """The result as tables show it: Pass, Fail, Warn, Error or Skip."""
        return str(self.result).capitalize()


def keep_failures(outcomes: Iterable[TestOutcome], *, renumber: bool = False) -> list[TestOutcome]:
    """The unexpected outcomes, for `--fail-only`; its table counts from 1."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not renumber:
        return failed
    return [replace(outcome, id=number) for number, outcome in enumerate(failed, 1)]


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
