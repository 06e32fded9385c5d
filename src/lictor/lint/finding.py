"""The nouns of a lint: a finding is a problem, the check that found it, and a look at the place."""

import msgspec

from lictor.lint import CHECKS
from lictor.load.problem import Problem, Severity


class Finding(msgspec.Struct, frozen=True):
    """One problem. `excerpt` is a line of text with a mark below the fault, where that helps."""

    check: str
    problem: Problem
    excerpt: str = ""


class LintReport(msgspec.Struct, frozen=True):
    """Everything that was found, in the order of files and lines."""

    findings: tuple[Finding, ...]
    files: int = 0
    # Policies of kinds that have no checks yet.
    unchecked: int = 0

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARNING)

    def _count(self, severity: Severity) -> int:
        return sum(finding.problem.severity is severity for finding in self.findings)


def severity_of(check: str) -> Severity:
    """How bad it is what a check finds."""
    return Severity(CHECKS[check].severity.value)
