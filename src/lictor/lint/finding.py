"""What a run of `lint` reports."""

import msgspec

from lictor.model.finding import Finding, Severity


class LintReport(msgspec.Struct, frozen=True):
    """All findings, in the order of files and lines."""

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
        return sum(finding.severity is severity for finding in self.findings)
