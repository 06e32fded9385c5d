"""Compiles Kyverno's validation patterns to functions.

Variables are resolved before; policies are unknown here, and no resource is changed.
"""

from collections.abc import Callable

from lictor.core.lang.pattern.anchor import check_shape, resolve_references
from lictor.core.lang.pattern.mismatch import Mismatch, PatternFault, Seen
from lictor.core.lang.pattern.tree import compile_node
from lictor.core.raw import Json

__all__ = [
    "Fit",
    "Mismatch",
    "Seen",
    "compile_node",
    "compile_pattern",
    "explain_fault",
    "resolve_references",
]

Fit = Callable[[Json], Mismatch | None]


def compile_pattern(pattern: Json, *, references: bool = True) -> Fit:
    """Compile a pattern to a function that returns None for a match, otherwise the mismatch.

    If variables were resolved, resolve references before that, and pass `references=False`.
    """
    resolved = resolve_references(pattern) if references else pattern
    check_shape(resolved)
    check = compile_node(resolved)

    def fit(value: Json) -> Mismatch | None:
        seen: Seen = {}
        fault = check(value, seen)
        return None if fault is None else explain_fault(fault, seen)

    return fit


def explain_fault(fault: PatternFault, seen: Seen) -> Mismatch:
    """The mismatch of a fault, given the anchors that were found."""
    return fault.settle(anchors_missing=not all(seen.values()))
