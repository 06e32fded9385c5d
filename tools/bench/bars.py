"""What lictor may cost: every bar in one place, and the row of the table that says whether it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_DIGITS = {
    "MB": 0,
    "s": 2,
    "requests/s": 0,
    "wrong": 0,
    "killed": 0,
    "results of other policies": 0,
    "%": 0,
    "ms": 2,
}


@dataclass(frozen=True)
class Row:
    """One line of the table. `holds` is None where nothing was measured, or nothing is promised."""

    name: str
    figures: str
    limit: str = ""
    holds: bool | None = None
    peer: str = ""
    note: str = ""

    @property
    def state(self) -> str:
        if self.holds is None:
            return "not measured" if self.limit else ""
        return "holds" if self.holds else "MISSED"


@dataclass(frozen=True)
class Bar:
    """A piece of work, and the most or the least of each unit that it may have."""

    name: str
    most: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        made = [f"<= {value:g} {unit}" for unit, value in self.most.items()]
        made += [f">= {value:g} {unit}" for unit, value in self.least.items()]
        return ", ".join(made)

    def judge(
        self, figures: Mapping[str, float], *, peer: str = "", fault: str = "", note: str = ""
    ) -> Row:
        """The row of these figures. A figure that is missing, or a fault, breaks the bar."""
        # Not a number is never within a limit.
        within = [figures.get(unit, float("nan")) <= value for unit, value in self.most.items()]
        within += [figures.get(unit, float("nan")) >= value for unit, value in self.least.items()]
        holds = all(within) and not fault if within else False if fault else None
        texts = "  ".join(write_figure(unit, value) for unit, value in figures.items())
        return Row(self.name, texts, self.limit, holds, peer, fault or note)

    def skip(self, why: str) -> Row:
        """The row where nothing was measured."""
        return Row(self.name, "", self.limit, None, "", why)


def write_figure(unit: str, value: float) -> str:
    """A figure with as many digits as its unit deserves."""
    return f"{value:.{_DIGITS.get(unit, 3)}f} {unit}".strip()


def show(row: Row) -> None:
    """One line of the table."""
    peer = f"Kyverno {row.peer}" if row.peer else ""
    line = f"{row.name:43} {row.figures:50} {row.limit:45} {row.state:12} {peer:50} {row.note}"
    print(line.rstrip(), flush=True)


# In the order of the table.
VERSION = Bar("version", {"times python -c pass": 2.0})
ONE = Bar("apply 1 policy, 1 Pod", {"CPU-s": 0.13})
APPLY = Bar("apply 38 policies, 1,000 Pods", {"CPU-s": 0.65})
FLAT = Bar("apply 38 policies, 100,000 Pods", {"times a Pod of 20,000": 1.2, "MB": 120.0})
CEL = Bar("apply 16 ValidatingPolicies, 1,000 Pods", {"CPU-s": 2.0})
LIBRARY = Bar("test over the policy library", {"CPU-s": 5.0})
THOUSAND_POLICIES = Bar("apply 1,000 policies, 100 Pods", {"CPU-s": 0.9})
THREE_THOUSAND_POLICIES = Bar("apply 3,000 policies, 100 Pods", {"CPU-s": 2.5, "MB": 150.0})
ADMISSION = Bar("admission, 18 policies, HTTPS", {"ms of CPU": 0.22, "MB": 168.0, "wrong": 0.0})
ADMISSION_AMONG_MANY = Bar("admission, 18 of 3,000 policies", {"times that of the 18": 1.3})
GIGABYTE = Bar("apply 38 policies, a file of 1 GB", {"MB": 150.0})
CHANGE_IN_FORCE = Bar("one of 3,000 policies changes: in force", {"s": 0.5})
CHANGE_LATENCY = Bar("the same: p99 of requests under load", {"ms": 15.0, "wrong": 0.0})
RAY_EQUAL = Bar("Ray: the results of one machine", {"wrong": 0.0})
RAY_KILLED = Bar("Ray: the same, a worker killed", {"wrong": 0.0}, {"killed": 1.0})
RAY_FASTER = Bar("Ray: two workers against one", {}, {"times as fast": 1.7})
FIRST_SCAN = Bar("first scan of 10,000 Pods, 38 policies", {"CPU-s": 18.0})
SCAN_OF_CHANGE = Bar("scan after one policy changed", {"results of other policies": 0.0})
SCAN_SHARED = Bar("two replicas share a scan: the larger share", {"%": 55.0})
