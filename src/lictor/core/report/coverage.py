"""The coverage of policies by tests: three counts, and a line for each gap."""

from collections.abc import Iterator

import msgspec


class CoverageTally(msgspec.Struct, frozen=True):
    """How many of how many."""

    reached: int
    total: int

    @property
    def percent(self) -> float:
        # Nothing to reach is nothing shown: an empty run must not look complete.
        return 100 * self.reached / self.total if self.total else 0.0

    def __str__(self) -> str:
        # Rounded down: 100 % means that nothing is missing.
        return f"{self.reached} of {self.total} ({int(self.percent)} %)"


class CoverageGap(msgspec.Struct, frozen=True):
    """Something in a policy that no test reaches or notices."""

    file: str
    line: int
    policy: str
    field: str
    words: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.policy}: {self.field}: {self.words}"


class CoverageReport(msgspec.Struct, frozen=True):
    """What all tests of a run reach together."""

    rules: CoverageTally
    branches: CoverageTally
    mutants: CoverageTally
    gaps: tuple[CoverageGap, ...] = ()

    def render(self) -> Iterator[str]:
        """The lines for people."""
        yield "Coverage:"
        yield f"  rules reached     {self.rules}"
        yield f"  branches reached  {self.branches}"
        yield f"  mutants noticed   {self.mutants}"
        yield from (f"  {gap}" for gap in self.gaps)
