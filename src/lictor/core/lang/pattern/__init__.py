"""Kyverno's validation patterns into functions.

Variables are filled in before; no policy is known here, and no resource is changed.
"""

from collections.abc import Callable

from lictor.core.lang.pattern.anchor import check_shape, resolve_references
from lictor.core.lang.pattern.mismatch import Comparison, Mismatch, PatternFault, Seen
from lictor.core.lang.pattern.tree import compile_node
from lictor.core.raw import Json

__all__ = [
    "Fit",
    "Mismatch",
    "Seen",
    "compile_comparison",
    "compile_pattern",
    "explain_fault",
    "resolve_references",
]

Fit = Callable[[Json], Mismatch | None]


def compile_pattern(pattern: Json, *, references: bool = True) -> Fit:
    """Turn a pattern into a function that gives None for what fits, and else says why not.

    Where variables were filled in, resolve references before that, and pass `references=False`.
    """
    check = compile_comparison(resolve_references(pattern) if references else pattern)

    def fit(value: Json) -> Mismatch | None:
        seen: Seen = {}
        fault = check(value, seen)
        return None if fault is None else explain_fault(fault, seen)

    return fit


def compile_comparison(pattern: Json) -> Comparison:
    """The same for those who count calls: it takes an empty dict, and gives a fault to explain."""
    check_shape(pattern)
    return compile_node(pattern)


def explain_fault(fault: PatternFault, seen: Seen) -> Mismatch:
    """What a fault means, given the anchors that were seen on the way to it."""
    return fault.settle(anchors_missing=not all(seen.values()))
