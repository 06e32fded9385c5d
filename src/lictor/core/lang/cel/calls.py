"""Closures for operators and calls, with short paths for the shapes that policies have."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import TypeAlias

from lictor.core.lang.cel import operators
from lictor.core.lang.cel.faults import CelError, CostExceededError, no_overload
from lictor.core.lang.cel.functions import Cost, Implementation
from lictor.core.lang.cel.syntax import CelNode, ListNode, Literal
from lictor.core.lang.cel.values import Optional, Value, compare, encode_key, equal

Frame: TypeAlias = list[Value]
Run: TypeAlias = Callable[[Frame], Value]


def constant(value: Value) -> Run:
    """A closure that returns one value."""
    return lambda _: value


def call(implementation: Implementation, runs: Sequence[Run]) -> Run:
    """A call with all arguments computed first."""
    if len(runs) == 1:
        (only,) = runs
        return lambda frame: implementation(only(frame))
    if len(runs) == 2:
        first, second = runs
        return lambda frame: implementation(first(frame), second(frame))
    return lambda frame: implementation(*[run(frame) for run in runs])


def call_measured(implementation: Implementation, runs: Sequence[Run], cost: Cost) -> Run:
    """A call whose cost depends on its arguments."""

    def run(frame: Frame) -> Value:
        args = [compute(frame) for compute in runs]
        try:
            amount = cost(args)
        except (TypeError, AttributeError, LookupError):
            # Arguments of other types; the call reports them.
            amount = 1
        frame[0].spend(amount)
        return implementation(*args)

    return run


def exceed_cost(_: Frame) -> Value:
    """A call that no budget allows."""
    raise CostExceededError


# -- logic


def build_logic(runs: Sequence[Run], *, is_and: bool) -> Run:
    """`&&` or `||`: the decisive operand absorbs errors of the others."""
    decisive = not is_and
    if len(runs) == 2:
        return _logic_of_two(runs[0], runs[1], decisive=decisive)

    def run(frame: Frame) -> Value:
        failure: CelError | None = None
        for compute in runs:
            try:
                value = compute(frame)
            except CelError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is not (not decisive):
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return not decisive

    return run


def _logic_of_two(first: Run, second: Run, *, decisive: bool) -> Run:
    other = not decisive

    def run(frame: Frame) -> Value:
        try:
            left = first(frame)
        except CelError as error:
            return _absorb(second, frame, error, decisive=decisive)
        if left is decisive:
            return left
        if left is not other:
            return _absorb(second, frame, no_overload(), decisive=decisive)
        right = second(frame)
        if right is True or right is False:
            return right
        raise no_overload()

    return run


def _absorb(second: Run, frame: Frame, failure: CelError, *, decisive: bool) -> Value:
    try:
        right = second(frame)
    except CelError:
        raise failure from None
    if right is decisive:
        return decisive
    raise failure


def choose(condition: Run, first: Run, second: Run) -> Run:
    """`condition ? first : second`."""

    def run(frame: Frame) -> Value:
        chosen = condition(frame)
        if chosen is True:
            return first(frame)
        if chosen is False:
            return second(frame)
        raise no_overload()

    return run


def choose_optional(first: Run, second: Run, *, unwraps: bool, lenient: bool) -> Run:
    """or() and orValue(): the second operand is computed only where the first has no value.

    `lenient`: what is no optional counts as a value, as before Kubernetes 1.36.
    """

    def run(frame: Frame) -> Value:
        value = first(frame)
        if type(value) is not Optional:
            if lenient:
                return value
            raise no_overload()
        if value.has_value:
            return value.value if unwraps else value
        return second(frame)

    return run


# -- operators


def _equals(first: Run, second: Run) -> Run:
    def run(frame: Frame) -> bool:
        left, right = first(frame), second(frame)
        if type(left) is list or type(left) is dict:
            frame[0].spend(len(left))
        return equal(left, right)

    return run


def _differs(first: Run, second: Run) -> Run:
    test = _equals(first, second)
    return lambda frame: not test(frame)


def _contains(first: Run, second: Run) -> Run:
    def run(frame: Frame) -> bool:
        element, container = first(frame), second(frame)
        if type(container) is list:
            frame[0].spend(len(container))
        return operators.contains(element, container)

    return run


def _equals_constant(run: Run, fixed: Value) -> Run | None:
    if type(fixed) is str:
        # No other type's value equals a str in Python either.
        return lambda frame: run(frame) == fixed
    if fixed is None or type(fixed) is bool:
        return lambda frame: run(frame) is fixed
    if type(fixed) is int and abs(fixed) < 1 << 53:

        def test(frame: Frame) -> bool:
            value = run(frame)
            return value == fixed and type(value) is not bool

        return test
    return None


def _differs_constant(run: Run, fixed: Value) -> Run | None:
    test = _equals_constant(run, fixed)
    return None if test is None else lambda frame: not test(frame)


def _ordering(name: str, *, has_nan_order: bool = False) -> Callable[[Run, Run], Run]:
    accepted = {"_<_": (-1,), "_<=_": (-1, 0), "_>_": (1,), "_>=_": (1, 0)}[name]

    def build(first: Run, second: Run) -> Run:
        def run(frame: Frame) -> bool:
            left, right = first(frame), second(frame)
            if type(left) is int and type(right) is int:
                order = (left > right) - (left < right)
            elif has_nan_order and _is_nan(left, right):
                return False
            else:
                order = compare(left, right, name)
            return order in accepted

        return run

    return build


def _is_nan(left: Value, right: Value) -> bool:
    return (type(left) is float and isnan(left)) or (type(right) is float and isnan(right))


def _binary(operation: Callable[[Value, Value], Value]) -> Callable[[Run, Run], Run]:
    return lambda first, second: lambda frame: operation(first(frame), second(frame))


_BINARY: dict[str, Callable[[Run, Run], Run]] = {
    "_==_": _equals,
    "_!=_": _differs,
    **{name: _ordering(name) for name in ("_<_", "_<=_", "_>_", "_>=_")},
    "_+_": _binary(operators.add),
    "_-_": _binary(operators.subtract),
    "_*_": _binary(operators.multiply),
    "_/_": _binary(operators.divide),
    "_%_": _binary(operators.modulo),
    "@in": _contains,
}
_UNARY: dict[str, Callable[[Value], Value]] = {
    "!_": operators.invert,
    "-_": operators.negate,
    "size": operators.size,
}


def build_operator(
    name: str, parts: Sequence[CelNode], runs: Sequence[Run], *, has_nan_order: bool
) -> Run | None:
    """The closure of an operator; None for functions."""
    if has_nan_order and name in ("_<_", "_<=_", "_>_", "_>=_"):
        return _ordering(name, has_nan_order=True)(runs[0], runs[1])
    if name in _BINARY:
        short = _build_short(name, parts, runs)
        return short if short is not None else _BINARY[name](runs[0], runs[1])
    if name in _UNARY:
        operation, run = _UNARY[name], runs[0]
        return lambda frame: operation(run(frame))
    return None


def _build_short(name: str, parts: Sequence[CelNode], runs: Sequence[Run]) -> Run | None:
    left, right = parts
    if name in ("_==_", "_!=_"):
        build = _equals_constant if name == "_==_" else _differs_constant
        if isinstance(right, Literal):
            return build(runs[0], right.value)
        if isinstance(left, Literal):
            return build(runs[1], left.value)
    if name == "@in" and isinstance(right, ListNode) and not right.optionals:
        return _in_texts(runs[0], right.elements)
    if name == "@in" and isinstance(left, Literal) and type(left.value) is str:
        return _has_text(left.value, runs[1])
    return None


def _in_texts(run: Run, elements: Sequence[CelNode]) -> Run | None:
    texts = [element.value for element in elements if isinstance(element, Literal)]
    if len(texts) != len(elements) or not all(type(text) is str for text in texts):
        return None
    known = frozenset(texts)

    def test(frame: Frame) -> bool:
        value = run(frame)
        return type(value) is str and value in known

    return test


def _has_text(text: str, run: Run) -> Run:
    """A text in a map, or in a list: Python's `in` compares both as CEL does."""

    def test(frame: Frame) -> bool:
        container = run(frame)
        if type(container) is dict or type(container) is list:
            return text in container
        return operators.contains(text, container)

    return test


# -- aggregates


def build_list(runs: Sequence[Run], optionals: frozenset[int]) -> Run:
    """A list with optional elements."""

    def run(frame: Frame) -> Value:
        made = []
        for index, compute in enumerate(runs):
            value = compute(frame)
            if index not in optionals:
                made.append(value)
            elif check_optional(value).has_value:
                made.append(value.value)
        return made

    return run


def check_optional(value: Value) -> Optional:
    """The value of an optional entry."""
    if type(value) is not Optional:
        raise CelError("cannot initialize optional entry from non-optional value")
    return value


def build_map(pairs: Sequence[tuple[Run, Run, bool]]) -> Run:
    """A map from the closures of its keys and values, and whether an entry is optional."""

    def run(frame: Frame) -> Value:
        made: dict[Value, Value] = {}
        for read_key, read_value, optional in pairs:
            key, value = read_key(frame), read_value(frame)
            if optional:
                if not check_optional(value).has_value:
                    continue
                value = value.value
            made[key if type(key) is str else encode_key(key)] = value
        return made

    return run
