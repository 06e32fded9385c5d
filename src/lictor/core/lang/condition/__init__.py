"""Compiles the operators of preconditions and deny conditions to functions of key and value.

Variables are resolved before; any and all are handled elsewhere.
"""

import operator
from collections.abc import Callable
from functools import partial

from lictor.core.errors import CompileError
from lictor.core.lang.condition.comparison import (
    build_duration_order,
    build_equality,
    build_inequality,
    build_order,
)
from lictor.core.lang.condition.membership import (
    build_all_in,
    build_all_not_in,
    build_any_in,
    build_any_not_in,
    build_in,
    build_not_in,
)
from lictor.core.raw import Json

__all__ = ["OPERATORS", "compile_operator", "compile_operator_with"]

Holds = Callable[[Json], bool]
Builder = Callable[[Json], Holds]

_BUILDERS: dict[str, Builder] = {
    "Equal": build_equality,
    "Equals": build_equality,
    "NotEqual": build_inequality,
    "NotEquals": build_inequality,
    "In": build_in,
    "AnyIn": build_any_in,
    "AllIn": build_all_in,
    "NotIn": build_not_in,
    "AnyNotIn": build_any_not_in,
    "AllNotIn": build_all_not_in,
    "GreaterThanOrEquals": partial(build_order, operator.ge),
    "GreaterThan": partial(build_order, operator.gt),
    "LessThanOrEquals": partial(build_order, operator.le),
    "LessThan": partial(build_order, operator.lt),
    "DurationGreaterThanOrEquals": partial(build_duration_order, operator.ge),
    "DurationGreaterThan": partial(build_duration_order, operator.gt),
    "DurationLessThanOrEquals": partial(build_duration_order, operator.le),
    "DurationLessThan": partial(build_duration_order, operator.lt),
}
# The result if the key is one of the values.
_WHERE_FOUND: dict[Builder, bool] = {
    build_in: True,
    build_any_in: True,
    build_all_in: True,
    build_not_in: False,
    build_any_not_in: False,
    build_all_not_in: False,
}
_NAMES = {name.lower(): name for name in _BUILDERS}

OPERATORS = frozenset(_BUILDERS)


def compile_operator(name: str) -> Callable[[Json, Json], bool]:
    """The function of key and value for an operator."""
    build = _find_builder(name)
    found = _WHERE_FOUND.get(build)
    if found is None:
        return lambda key, value: build(value)(key)

    def compare(key: Json, value: Json) -> bool:
        # A text that is literally in a list: nothing has to be compiled to find it.
        if key.__class__ is str and value.__class__ is list and key in value:
            return found
        return build(value)(key)

    return compare


def compile_operator_with(name: str, value: Json) -> Holds:
    """The function of the key only, for a value that is the same for every request."""
    return _find_builder(name)(value)


def _find_builder(name: str) -> Builder:
    known = _NAMES.get(name.lower()) if isinstance(name, str) else None
    if known is not None:
        return _BUILDERS[known]
    # Imported on demand: misspelt operators are rare, and start-up time matters.
    from difflib import get_close_matches

    close = get_close_matches(str(name).lower(), _NAMES, n=1)
    hint = f"; did you mean {_NAMES[close[0]]}?" if close else ""
    raise CompileError(f"{name!r} is not an operator of conditions{hint}")
