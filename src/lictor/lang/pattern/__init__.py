"""Kyverno's validation patterns into functions.

Variables are filled in before; no policy is known here, and no resource is changed.
"""

from collections.abc import Callable

from lictor.lang.pattern.anchor import check_shape, resolve_references
from lictor.lang.pattern.mismatch import Mismatch
from lictor.lang.pattern.tree import Seen, compile_node
from lictor.raw import Json

__all__ = ["Fit", "Mismatch", "compile_pattern", "resolve_references"]

Fit = Callable[[Json], Mismatch | None]


def compile_pattern(pattern: Json, *, references: bool = True) -> Fit:
    """Turn a pattern into a function that gives None for what fits, and else says why not.

    Where variables were filled in, resolve references before that, and pass `references=False`.
    """
    check_shape(pattern)
    check = compile_node(resolve_references(pattern) if references else pattern)

    def fit(value: Json) -> Mismatch | None:
        seen: Seen = {}
        fault = check(value, seen)
        if fault is None:
            return None
        return fault.settle(anchors_missing=not all(seen.values()))

    return fit
