"""Closures for macros: loops over lists and maps, and bound variables."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from cel2.calls import Frame, Run
from cel2.faults import CelError, no_overload
from cel2.operators import iterate, iterate_pairs
from cel2.state import UNSET
from cel2.values import (
    NONE,
    Optional,
    Value,
    decode_key,
    encode_key,
    find_key,
)

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
