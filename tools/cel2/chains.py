"""Closures for variables and for selections on them: `object.spec.containers[0].?image`."""

from typing import TypeAlias

from cel2.calls import Frame, Run
from cel2.faults import CelError
from cel2.operators import follow
from cel2.state import UNSET
from cel2.values import NONE, Optional, Value

# A constant key, or what computes it, and whether the step is optional.
Step: TypeAlias = tuple[Value, Run | None, bool]


def load_variable(slot: int, name: str) -> Run:
    """A variable of the host, looked up when it is first needed."""

    def run(frame: Frame) -> Value:
        value = frame[slot]
        return _load(frame, slot, name) if value is UNSET else value

    return run


def _load(frame: Frame, slot: int, name: str) -> Value:
    try:
        value = frame[0].activation[name]
    except KeyError:
        raise CelError(f"no such attribute(s): {name}") from None
    frame[slot] = value
    return value


def load_local(slot: int, first: Run | None) -> Run:
    """A variable of a macro; that of cel.bind() is computed when it is first needed."""
    if first is None:
        return lambda frame: frame[slot]

    def run(frame: Frame) -> Value:
        value = frame[slot]
        if value is UNSET:
            value = frame[slot] = first(frame)
        return value

    return run


def load_slot(slot: int, name: str | None) -> Run:
    """What a slot holds; `name` for a variable of the host."""
    return load_local(slot, None) if name is None else load_variable(slot, name)


def build_chain(base: Run, steps: list[Step], *, is_test: bool) -> Run:
    """All steps of a selection in one closure."""
    if any(run is not None for _, run, _ in steps):
        return _computed(base, steps, is_test=is_test)
    first = _first_optional(steps)
    keys = tuple(key for key, _, _ in steps)
    if not all(type(key) is str for key in keys) or (is_test and first >= 0):
        fixed = tuple((key, optional) for key, _, optional in steps)
        return lambda frame: follow(base(frame), fixed, is_test=is_test)
    if is_test:
        return _test(base, keys)
    if first >= 0:
        return _select_optional(base, keys[:first], keys[first:], NONE, wraps=True)
    return _select(base, keys)


def _first_optional(steps: list[Step]) -> int:
    return next((i for i, (_, _, optional) in enumerate(steps) if optional), -1)


def select_or(base: Run, steps: list[Step], default: Value) -> Run | None:
    """`base.?key.?key.orValue(default)` in one closure; None if the steps have another shape."""
    keys = tuple(key for key, run, _ in steps if run is None and type(key) is str)
    first = _first_optional(steps)
    if len(keys) != len(steps) or first < 0:
        return None
    return _select_optional(base, keys[:first], keys[first:], default, wraps=False)


def _computed(base: Run, steps: list[Step], *, is_test: bool) -> Run:
    mixed = [(key if compute is None else compute, optional) for key, compute, optional in steps]
    return lambda frame: follow(base(frame), mixed, is_test=is_test, frame=frame)


# Plain JSON objects answer at once. For anything else Python raises one of these, and `follow`
# finds out what CEL makes of it.
_ODD = (KeyError, TypeError, IndexError)
_Keys: TypeAlias = tuple[str, ...]


def _follow_plain(start: Value, keys: _Keys, *, is_test: bool) -> Value:
    return follow(start, [(key, False) for key in keys], is_test=is_test)


def _select(base: Run, keys: _Keys) -> Run:
    def run(frame: Frame) -> Value:
        value = start = base(frame)
        try:
            for key in keys:
                value = value[key]
        except _ODD:
            return _follow_plain(start, keys, is_test=False)
        return value

    return run


def _follow_rest(start: Value, sure: _Keys, rest: _Keys, default: Value, *, wraps: bool) -> Value:
    steps = [*((key, False) for key in sure), *((key, True) for key in rest)]
    found = follow(start, steps, is_test=False)
    if wraps:
        return found
    return found.value if found.has_value else default


def _select_optional(base: Run, sure: _Keys, rest: _Keys, default: Value, *, wraps: bool) -> Run:
    def run(frame: Frame) -> Value:
        value = start = base(frame)
        try:
            for key in sure:
                value = value[key]
        except _ODD:
            return _follow_rest(start, sure, rest, default, wraps=wraps)
        for key in rest:
            if type(value) is not dict:
                return _follow_rest(start, sure, rest, default, wraps=wraps)
            if key not in value:
                return default
            value = value[key]
        return Optional((value,)) if wraps else value

    return run


def _test(base: Run, keys: _Keys) -> Run:
    def run(frame: Frame) -> Value:
        value = start = base(frame)
        try:
            for key in keys[:-1]:
                value = value[key]
        except _ODD:
            return _follow_plain(start, keys, is_test=True)
        is_plain = type(value) is dict
        return keys[-1] in value if is_plain else _follow_plain(start, keys, is_test=True)

    return run
