"""What does Kyverno's command line need for the same work? It is run, or what is known of it is told."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from measuring import Measured, measure

# CPU seconds and megabytes of Kyverno v1.18.2 on a machine of the same kind; a zero is not known.
KNOWN: Mapping[str, tuple[float, float]] = {
    "version": (0.10, 60),
    "apply 1 policy, 1 Pod": (1.0, 160),
    "apply 38 policies, 1,000 Pods": (32.0, 235),
    "apply 16 ValidatingPolicies, 1,000 Pods": (375.0, 318),
    "test over the policy library": (44.0, 216),
    "apply 1,000 policies, 100 Pods": (15.0, 0),
    "apply 3,000 policies, 100 Pods": (43.0, 0),
}
# What the output of each command has when the work was done.
_DONE = {"apply": "pass: ", "test": "Test Summary", "version": "ersion"}


class NoPeerError(RuntimeError):
    """The program that was named is not there."""


@dataclass(frozen=True)
class Compared:
    """What stands in the column of the peer, and what it counted."""

    text: str = ""
    summary: str = ""


class Peer:
    """Kyverno's program where one was given, else what is known of it."""

    def __init__(self, program: str = "") -> None:
        self._program = shutil.which(program) if program else None
        if program and self._program is None:
            raise NoPeerError(f"--peer {program}: there is no such program")

    def compare(
        self, name: str, arguments: Sequence[str], ours: Measured, *, repeat: int = 1
    ) -> Compared:
        """The figures for the work of this name, and how many times ours they are."""
        if self._program is None:
            return Compared(_write_known(name, ours))
        theirs = measure([self._program, *arguments], repeat=repeat)
        if _DONE[arguments[0]] not in theirs.output:
            return Compared(f"FAILED with exit code {theirs.code}: {theirs.summary[:80]}")
        text = _write(theirs.cpu, theirs.memory.whole, ours.cpu)
        return Compared(f"measured {text}", theirs.summary)


def _write_known(name: str, ours: Measured) -> str:
    if name not in KNOWN:
        return ""
    cpu, megabytes = KNOWN[name]
    return f"known    {_write(cpu, megabytes, ours.cpu)}"


def _write(cpu: float, megabytes: float, ours: float) -> str:
    memory = f" {megabytes:4.0f} MB" if megabytes else ""
    return f"{cpu:7.2f} CPU-s{memory}, {cpu / max(ours, 1e-9):.1f} times ours"
