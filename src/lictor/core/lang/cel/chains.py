"""Closures for variables, selections on them (`object.spec.?image`), and the loops of macros."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lictor.core.lang.cel.calls import Frame, Run
from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.operators import follow, iterate, iterate_pairs
from lictor.core.lang.cel.state import UNSET
from lictor.core.lang.cel.values import (
    NONE,
    Optional,
    Value,
    decode_key,
    encode_key,
    find_key,
)

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


# Goes through the elements, setting the macro's variables; yields nothing of use.
Walk: TypeAlias = Callable[[Frame], Iterator[None]]
_Slots: TypeAlias = tuple[int, int]


def bind(slot: int, body: Run) -> Run:
    """cel.bind(): the variable is computed when the body first needs it."""

    def run(frame: Frame) -> Value:
        frame[slot] = UNSET
        return body(frame)

    return run


def map_optional(target: Run, slot: int, body: Run, *, wraps: bool) -> Run:
    """optMap() and optFlatMap()."""

    def run(frame: Frame) -> Value:
        value = target(frame)
        if type(value) is not Optional:
            raise no_overload("hasValue")
        if not value.has_value:
            return NONE
        frame[slot] = value.value
        made = body(frame)
        return Optional((made,)) if wraps else made

    return run


def build_loop(
    macro: str, ranged: Run, slots: _Slots, parts: Sequence[Run | None], cost: int
) -> Run:
    """The loop of a macro; `cost` is what one turn costs at most."""
    first, second = parts
    if macro in ("all", "exists") and first is not None:
        return _quantify(ranged, slots, first, cost, decisive=macro == "exists")
    walk = _walk(ranged, slots, cost)
    if macro == "exists_one" and first is not None:
        return _count_one(walk, first)
    if macro == "filter" and first is not None:
        return _filter(walk, slots[0], first)
    if second is None:
        raise LookupError(macro)
    if macro == "map":
        return _map(walk, first, second)
    if macro == "transformMap":
        return _transform_map(walk, slots[0], first, second)
    return _transform_entries(walk, first, second)


def _walk(ranged: Run, slots: _Slots, cost: int) -> Walk:
    first, second = slots

    def walk_elements(frame: Frame) -> Iterator[None]:
        items = frame[0].enter_loop(iterate(ranged(frame)), cost)
        for frame[first] in items:
            yield

    def walk_pairs(frame: Frame) -> Iterator[None]:
        pairs = frame[0].enter_loop(iterate_pairs(ranged(frame)), cost)
        for frame[first], frame[second] in pairs:
            yield

    return walk_pairs if second else walk_elements


def _quantify(ranged: Run, slots: _Slots, predicate: Run, cost: int, *, decisive: bool) -> Run:
    """all() and exists(), the most frequent loops."""
    other = not decisive
    first, second = slots
    read = iterate_pairs if second else iterate

    def run(frame: Frame) -> Value:
        failure: CelError | None = None
        for item in frame[0].enter_loop(read(ranged(frame)), cost):
            if second:
                frame[first], frame[second] = item
            else:
                frame[first] = item
            try:
                found = predicate(frame)
            except CelError as error:
                failure = failure or error
                continue
            if found is decisive:
                return decisive
            if found is not other:
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return other

    return run


def _passes(predicate: Run, frame: Frame) -> bool:
    found = predicate(frame)
    if found is True or found is False:
        return found
    raise no_overload()


def _count_one(walk: Walk, predicate: Run) -> Run:
    def run(frame: Frame) -> bool:
        count = 0
        for _ in walk(frame):
            count += _passes(predicate, frame)
        return count == 1

    return run


def _filter(walk: Walk, slot: int, predicate: Run) -> Run:
    def run(frame: Frame) -> list[Value]:
        return [frame[slot] for _ in walk(frame) if _passes(predicate, frame)]

    return run


def _map(walk: Walk, predicate: Run | None, transform: Run) -> Run:
    def run(frame: Frame) -> list[Value]:
        return [
            transform(frame) for _ in walk(frame) if predicate is None or _passes(predicate, frame)
        ]

    return run


def insert(made: dict[Value, Value], key: Value, value: Value) -> None:
    """Add an entry to a map that is being built; a key must not occur twice."""
    if find_key(made, key)[0]:
        raise CelError(f"insert failed: key {key} already exists")
    made[encode_key(key)] = value


def _transform_map(walk: Walk, slot: int, predicate: Run | None, transform: Run) -> Run:
    def run(frame: Frame) -> dict[Value, Value]:
        made: dict[Value, Value] = {}
        for _ in walk(frame):
            if predicate is None or _passes(predicate, frame):
                insert(made, frame[slot], transform(frame))
        return made

    return run


def _transform_entries(walk: Walk, predicate: Run | None, transform: Run) -> Run:
    def run(frame: Frame) -> dict[Value, Value]:
        made: dict[Value, Value] = {}
        for _ in walk(frame):
            if predicate is None or _passes(predicate, frame):
                entries = transform(frame)
                if type(entries) is not dict:
                    raise no_overload("cel.@mapInsert")
                for key, value in entries.items():
                    insert(made, decode_key(key), value)
        return made

    return run
