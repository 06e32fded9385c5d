"""Why a resource does not match a pattern: `Mismatch` for callers, `PatternFault` internally."""

from collections.abc import Callable
from enum import IntEnum

import msgspec

from lictor.core.errors import EvaluationError
from lictor.core.lang.pattern.go_values import name_type, print_value
from lictor.core.raw import Json


class Mismatch(msgspec.Struct, frozen=True):
    """What a pattern required and what was found instead.

    `skip`: a condition of the pattern does not hold, so it does not apply to the resource.
    """

    path: str
    format_reason: Callable[[str], str]
    expected: Json = None
    found: Json = None
    skip: bool = False

    @property
    def reason(self) -> str:
        """The reason as text; formatted on demand."""
        return self.format_reason("/")

    @property
    def is_error(self) -> bool:
        """The pattern could not be applied: neither a failure with a path, nor a skip."""
        return not self.skip and not self.path


class MismatchKind(IntEnum):
    """How a fault propagates through the maps and lists around it."""

    FAILURE = 0
    NEGATION = 1
    # A condition that is not met, from its anchor.
    CONDITION = 2
    # The same from a map or a list around such anchors; siblings may override it.
    CONDITIONS = 3


Describe = Callable[[str], str]
# Which anchored keys were found, as written in the pattern.
Seen = dict[str, bool]


class PatternFault(msgspec.Struct):
    """A mismatch while it propagates; each level adds a step to its path."""

    kind: MismatchKind
    describe: Describe
    expected: Json = None
    found: Json = None
    steps: list[str] = msgspec.field(default_factory=list)
    prefix: str = ""
    placeless: bool = False

    @property
    def skips(self) -> bool:
        return self.kind >= MismatchKind.CONDITION

    def below(self, step: str) -> "PatternFault":
        self.steps.append(step)
        return self

    def become_condition(self, prefix: str) -> "PatternFault":
        self.kind = MismatchKind.CONDITION
        self.prefix = f"{prefix}: {self.prefix}"
        return self

    def locate(self, base: str) -> str:
        return base + "".join([f"{step}/" for step in reversed(self.steps)])

    def format_reason(self, base: str) -> str:
        return self.prefix + self.describe(self.locate(base))

    def settle(self, *, anchors_missing: bool) -> Mismatch:
        """Build the record for callers, with the path from the root."""
        path = self.locate("/")
        # Kyverno reports no path if an anchored key was nowhere in the resource.
        undecided = self.placeless or (anchors_missing and self.kind is MismatchKind.FAILURE)
        if self.skips or undecided:
            path = ""
        return Mismatch(path, self.format_reason, self.expected, self.found, self.skips)


Comparison = Callable[[Json, Seen], PatternFault | None]


def differ_in_value(expected: Json, found: Json) -> PatternFault:
    """A leaf that does not match."""

    def describe(path: str) -> str:
        return f"resource value '{_show(found)}' does not match '{_show(expected)}' at path {path}"

    return PatternFault(MismatchKind.FAILURE, describe, expected, found)


def differ_in_structure(expected: Json, found: Json) -> PatternFault:
    """The pattern has a map where the resource has something else."""

    def describe(path: str) -> str:
        return (
            f"pattern and resource have different structures. Path: {path}. "
            f"Expected {name_type(expected)}, found {name_type(found)}"
        )

    return PatternFault(MismatchKind.FAILURE, describe, expected, found)


def lack_list(expected: Json, found: Json) -> PatternFault:
    """The pattern has a list where the resource has something else."""

    def describe(path: str) -> str:
        return (
            f"validation rule failed at path {path}, "
            "resource does not satisfy the expected overlay pattern"
        )

    return PatternFault(MismatchKind.FAILURE, describe, expected, found)


def lack_key(key: str) -> PatternFault:
    """A key that must have any value has none; reported at the map that lacks it."""
    return PatternFault(MismatchKind.FAILURE, lambda path: f"{path}/{key} not found", "*")


def lack_condition() -> PatternFault:
    """The key of a condition does not exist."""
    text = "conditional anchor mismatch: conditional anchor key doesn't exist in the resource"
    return PatternFault(MismatchKind.CONDITION, lambda _: text)


def forbid_value(found: Json) -> PatternFault:
    """A key exists that must not."""

    def describe(path: str) -> str:
        return f"negation anchor matched in resource: {path} is not allowed"

    return PatternFault(MismatchKind.NEGATION, describe, None, found)


def lack_element(expected: Json, found: Json) -> PatternFault:
    """No element of a list matches what must exist in it."""

    def describe(path: str) -> str:
        return f"existence anchor validation failed at path {path}"

    return PatternFault(MismatchKind.FAILURE, describe, expected, found)


def refuse(reason: str, expected: Json, found: Json, *, placeless: bool = False) -> PatternFault:
    """A fault whose text needs no path."""
    return PatternFault(
        MismatchKind.FAILURE, lambda _: reason, expected, found, placeless=placeless
    )


def gather(faults: list[PatternFault]) -> PatternFault:
    """Join several conditions that are not met."""

    def describe(path: str) -> str:
        return "; ".join([fault.format_reason(path) for fault in faults])

    return PatternFault(MismatchKind.CONDITIONS, describe, faults[0].expected, faults[0].found)


def _show(value: Json) -> str:
    try:
        return print_value(value)
    except EvaluationError:
        return "(nested too deeply to be shown)"
