"""Builders of closures for the parts of an expression, from the closures of their operands."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from lictor.core.errors import EvaluationError
from lictor.core.lang.assertion.values import is_number
from lictor.core.lang.jmespath.functions.spec import equals, is_false
from lictor.core.lang.written_size import check_written
from lictor.core.raw import Json

# The value of a variable by its name without the `$`.
Lookup: TypeAlias = Callable[[str], Json]
Evaluate: TypeAlias = Callable[[Json, Lookup], Json]
Function: TypeAlias = Callable[[list[Json]], Json]


def identity(value: Json, lookup: Lookup) -> Json:  # noqa: ARG001
    """The current value."""
    return value


def nothing(value: Json, lookup: Lookup) -> Json:  # noqa: ARG001
    """The root `$`: null in an assertion, which has none."""
    return None


def build_literal(literal: Json) -> Evaluate:
    """A constant."""
    return lambda _value, _lookup: literal


def build_field(name: str) -> Evaluate:
    """A member of an object; null if it is missing."""
    return lambda value, _lookup: value.get(name) if isinstance(value, dict) else None


def build_variable(name: str) -> Evaluate:
    """`$name`."""
    return lambda _value, lookup: lookup(name)


def build_index(left: Evaluate, at: int) -> Evaluate:
    """`left[at]`; null beyond the end."""

    def index(value: Json, lookup: Lookup) -> Json:
        items = left(value, lookup)
        if not isinstance(items, list) or not -len(items) <= at < len(items):
            return None
        return items[at]

    return index


def build_slice(left: Evaluate, part: slice, right: Evaluate) -> Evaluate:
    """`left[a:b:c]`, with `each` applied to each item; of a text, a substring."""

    def cut(value: Json, lookup: Lookup) -> Json:
        whole = left(value, lookup)
        if isinstance(whole, str):
            return whole[part] if part.step != 0 else None
        if not isinstance(whole, list):
            return None
        if part.step == 0:
            raise EvaluationError("invalid slice, step cannot be 0")
        return _project(whole[part], right, lookup)

    return cut


def _project(items: list[Json], right: Evaluate, lookup: Lookup) -> list[Json]:
    if right is identity:
        return [item for item in items if item is not None]
    return [made for item in items if (made := right(item, lookup)) is not None]


def _try(part: Evaluate, value: Json, lookup: Lookup) -> Json:
    """The value of a part; null if it fails: some projections read their input so."""
    try:
        return part(value, lookup)
    except EvaluationError:
        return None


def build_projection(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left[*]` with the rest applied to each item."""

    def project(value: Json, lookup: Lookup) -> Json:
        items = left(value, lookup)
        return _project(items, right, lookup) if isinstance(items, list) else None

    return project


def build_flatten(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left[]` with the rest applied to each item."""

    def flatten(value: Json, lookup: Lookup) -> Json:
        items = _try(left, value, lookup)
        if not isinstance(items, list):
            return None
        flat: list[Json] = []
        for item in items:
            if isinstance(item, list):
                flat.extend(item)
            else:
                flat.append(item)
        return _project(flat, right, lookup)

    return flatten


def build_filter(left: Evaluate, right: Evaluate, condition: Evaluate) -> Evaluate:
    """`left[?condition]` with the rest applied to each item."""

    def select(value: Json, lookup: Lookup) -> Json:
        items = _try(left, value, lookup)
        if not isinstance(items, list):
            return None
        chosen = [item for item in items if not is_false(condition(item, lookup))]
        return _project(chosen, right, lookup)

    return select


def build_value_projection(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left.*` with the rest applied to each item."""

    def project(value: Json, lookup: Lookup) -> Json:
        members = _try(left, value, lookup)
        if not isinstance(members, dict):
            return None
        return _project(list(members.values()), right, lookup)

    return project


def build_sub(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left.right`: null stays null."""

    def descend(value: Json, lookup: Lookup) -> Json:
        inner = left(value, lookup)
        return None if inner is None else right(inner, lookup)

    return descend


def build_pipe(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left | right`: also evaluates right for null."""
    return lambda value, lookup: right(left(value, lookup), lookup)


def build_or(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left || right`."""

    def choose(value: Json, lookup: Lookup) -> Json:
        first = left(value, lookup)
        return right(value, lookup) if is_false(first) else first

    return choose


def build_and(left: Evaluate, right: Evaluate) -> Evaluate:
    """`left && right`."""

    def choose(value: Json, lookup: Lookup) -> Json:
        first = left(value, lookup)
        return first if is_false(first) else right(value, lookup)

    return choose


def build_not(inner: Evaluate) -> Evaluate:
    """`!inner`."""
    return lambda value, lookup: is_false(inner(value, lookup))


def build_list(parts: Sequence[Evaluate]) -> Evaluate:
    """`[a, b]`."""
    return lambda value, lookup: check_written([part(value, lookup) for part in parts])


def build_object(parts: Mapping[str, Evaluate]) -> Evaluate:
    """`{x: a, y: b}`."""
    return lambda value, lookup: check_written(
        {key: part(value, lookup) for key, part in parts.items()}
    )


def build_reference(inner: Evaluate) -> Evaluate:
    """`&inner`, for functions that apply it to each item."""
    return lambda _value, lookup: lambda item: inner(item, lookup)


def build_call(function: Function, arguments: Sequence[Evaluate]) -> Evaluate:
    """`function(a, b)`."""
    return lambda value, lookup: function([each(value, lookup) for each in arguments])


def bind(lookup: Lookup, name: str, bound: Json) -> Lookup:
    """The variables with one added."""
    check_written(bound)
    return lambda wanted: bound if wanted == name else lookup(wanted)


def build_let(parts: Sequence[tuple[str, Evaluate]], body: Evaluate) -> Evaluate:
    """`let $x = a, $y = b in body`; the bindings do not see each other."""

    def evaluate(value: Json, lookup: Lookup) -> Json:
        inner = lookup
        for name, part in parts:
            inner = bind(inner, name, part(value, lookup))
        return body(value, inner)

    return evaluate


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return math.copysign(math.inf, left) if left else math.nan


def _floor(value: float) -> float:
    return math.floor(value) if math.isfinite(value) else value


_LARGEST = 1 << 63
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "\u00d7": lambda left, right: left * right,
    "/": _divide,
    "//": lambda left, right: _floor(_divide(left, right)),
    "%": lambda left, right: math.fmod(left, right) if right else math.nan,
}


def build_comparison(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """`left == right` and the like; an order of anything but numbers is null."""
    if sign == "==":
        return lambda value, lookup: equals(left(value, lookup), right(value, lookup))
    if sign == "!=":
        return lambda value, lookup: not equals(left(value, lookup), right(value, lookup))
    compare = _COMPARISONS[sign]

    def order(value: Json, lookup: Lookup) -> Json:
        one, other = left(value, lookup), right(value, lookup)
        return compare(one, other) if is_number(one) and is_number(other) else None

    return order


def build_arithmetic(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """`left + right` and the like; null for anything but numbers."""
    operate = _ARITHMETIC[sign]

    def calculate(value: Json, lookup: Lookup) -> Json:
        one, other = left(value, lookup), right(value, lookup)
        if not is_number(one) or not is_number(other):
            return None
        try:
            result = operate(one, other)
            # Integers must not grow without limit: beyond 64 bits they lose digits, as in Go.
            return result if -_LARGEST < result < _LARGEST else float(result)
        except (OverflowError, ValueError) as error:
            raise EvaluationError(f"{one} {sign} {other}: {error}") from error

    return calculate


def build_sign(sign: str, inner: Evaluate) -> Evaluate:
    """`+inner` or `-inner`."""

    def change(value: Json, lookup: Lookup) -> Json:
        number = inner(value, lookup)
        if not is_number(number):
            return None
        return -number if sign == "-" else number

    return change
