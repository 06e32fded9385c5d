"""Functions of lists, sets and optional values, Kubernetes' own and those of cel-go."""

from collections.abc import Callable, Hashable, Sequence
from functools import cmp_to_key

from lictor.core.lang.cel.chains import insert
from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.functions import Implementation, Library
from lictor.core.lang.cel.operators import MAX_ITEMS, add, contains, is_equal
from lictor.core.lang.cel.values import (
    NONE,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    UInt,
    Value,
    compare,
    decode_key,
    freeze,
    is_zero,
)

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}
_MAX_RANGE = 1_000_000


def _is_comparable(value: Value) -> bool:
    return not isinstance(value, dict | list | None | Opaque) or isinstance(
        value, Timestamp | Duration
    )


def _check_comparable(values: list[Value]) -> None:
    if not all(map(_is_comparable, values)):
        raise no_overload()


def _try_compare(left: Value, right: Value) -> int | None:
    """The order of two elements; None for those that have none, which cel-go passes over."""
    try:
        return compare(left, right, "")
    except CelError:
        return None


def _is_sorted(values: list[Value]) -> bool:
    for index, value in enumerate(values):
        _check_comparable([value])
        if index and _try_compare(values[index - 1], value) == 1:
            return False
    return True


def _sum(zero: Value) -> Implementation:
    def run(values: list[Value]) -> Value:
        total = zero
        for value in values:
            total = add(total, value)
        return total

    return run


def _extreme(name: str, preferred: int) -> Implementation:
    def run(values: list[Value]) -> Value:
        if not values:
            raise CelError(f"{name} called on empty list")
        _check_comparable(values)
        found = values[0]
        for value in values[1:]:
            if _try_compare(found, value) == preferred:
                found = value
        return found

    return run


def _index_of(values: list[Value], item: Value) -> int:
    return next((i for i, value in enumerate(values) if is_equal(value, item)), -1)


def _last_index_of(values: list[Value], item: Value) -> int:
    indexes = range(len(values) - 1, -1, -1)
    return next((i for i in indexes if is_equal(values[i], item)), -1)


def _includes(target: Value, item: Value) -> bool:
    if type(target) is list:
        return any(is_equal(value, item) for value in target)
    return is_equal(target, item)


def _templates(
    name: str, result: str, run: Callable[[str], Implementation], kinds: Sequence[str]
) -> list[tuple[str, Implementation]]:
    return [(f"list({kind})::{name}() -> {result or kind}", run(kind)) for kind in kinds]


KUBERNETES_LISTS = Library(
    *_templates("isSorted", "bool", lambda _: _is_sorted, _COMPARABLE),
    *_templates("sum", "", lambda kind: _sum(_ZEROS[kind]), tuple(_ZEROS)),
    *_templates("max", "", lambda _: _extreme("max", -1), _COMPARABLE),
    *_templates("min", "", lambda _: _extreme("min", 1), _COMPARABLE),
    ("list(A)::indexOf(A) -> int", _index_of),
    ("list(A)::lastIndexOf(A) -> int", _last_index_of),
)
INCLUDES = Library(("dyn::includes(dyn) -> bool", _includes))


# -- cel-go's lists, version 3


def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if len(values) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: Value, depth: Value = 1) -> list[Value]:
    if type(values) is not list or type(depth) is not int:
        raise no_overload("flatten")
    if depth < 0:
        raise CelError("level must be non-negative")
    made: list[Value] = []
    for value in values:
        if type(value) is list and depth > 0:
            made.extend(_flatten(value, depth - 1))
        else:
            made.append(value)
        if len(made) > MAX_ITEMS:
            raise CelError("the list is too long")
    return made


def _sort(values: Value, keys: Value = None) -> list[Value]:
    keys = values if keys is None else keys
    if type(values) is not list or type(keys) is not list:
        raise no_overload("sort")
    if not values:
        return values
    if not _is_comparable(keys[0]):
        raise CelError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys) and len(keys) > 1:
        raise CelError("list elements must have the same type")
    by_key = cmp_to_key(lambda left, right: _try_compare(left, right) or 0)
    order = sorted(range(len(values)), key=lambda index: by_key(keys[index]))
    return [values[index] for index in order]


def _range(count: int) -> list[Value]:
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    if count > _MAX_RANGE:
        raise CelError(f"lists.range: size {count} exceeds maximum allowed ({_MAX_RANGE})")
    return list(range(count))


def _old_range(count: int) -> list[Value]:
    return [] if count < 0 else _range(count)


def _distinct(values: list[Value]) -> list[Value]:
    try:
        known: dict[Hashable, Value] = {}
        for value in values:
            known.setdefault(freeze(value), value)
        return list(known.values())
    except TypeError:
        return [v for i, v in enumerate(values) if not any(is_equal(v, o) for o in values[:i])]


EXTENDED_LISTS = Library(
    ("list(T)::slice(int, int) -> list(T)", _slice),
    ("list(list(T))::flatten() -> list(T)", _flatten),
    ("list(dyn)::flatten(int) -> list(dyn)", _flatten),
    *[(f"list({kind})::sort() -> list({kind})", _sort) for kind in _COMPARABLE],
    *[(f"list(T)::@sortByAssociatedKeys(list({kind})) -> list(T)", _sort) for kind in _COMPARABLE],
    ("lists.range(int) -> list(int)", _range),
    ("list(T)::reverse() -> list(T)", lambda values: values[::-1]),
    ("list(T)::distinct() -> list(T)", _distinct),
    single=("sort", "@sortByAssociatedKeys", "flatten"),
)
OLD_RANGE = Library(("lists.range(int) -> list(int)", _old_range))


# -- sets and maps


def _contains_all(values: list[Value], others: list[Value]) -> bool:
    try:
        return set(map(freeze, others)) <= set(map(freeze, values))
    except TypeError:
        return all(contains(other, values) for other in others)


def _intersects(left: list[Value], right: list[Value]) -> bool:
    try:
        return not set(map(freeze, left)).isdisjoint(map(freeze, right))
    except TypeError:
        return any(contains(value, right) for value in left)


SETS = Library(
    ("sets.contains(list(T), list(T)) -> bool", _contains_all),
    (
        "sets.equivalent(list(T), list(T)) -> bool",
        lambda left, right: _contains_all(left, right) and _contains_all(right, left),
    ),
    ("sets.intersects(list(T), list(T)) -> bool", _intersects),
)


def _insert_entry(target: dict[Value, Value], key: Value, value: Value) -> dict[Value, Value]:
    made = dict(target)
    insert(made, key, value)
    return made


def _insert_entries(target: dict[Value, Value], entries: dict[Value, Value]) -> dict[Value, Value]:
    made = dict(target)
    for key, value in entries.items():
        insert(made, decode_key(key), value)
    return made


MAP_INSERTION = Library(
    ("cel.@mapInsert(map(K, V), K, V) -> map(K, V)", _insert_entry),
    ("cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)", _insert_entries),
)


def _of_non_zero(value: Value) -> Optional:
    return NONE if is_zero(value) else Optional((value,))


def _unwrap(values: list[Value]) -> list[Value]:
    made = []
    for value in values:
        if type(value) is not Optional:
            raise CelError("value is not an optional")
        if value.has_value:
            made.append(value.value)
    return made


def _special(*_: Value) -> Value:
    raise no_overload()


_ROWS = (
    ("optional.of(V) -> optional(V)", lambda value: Optional((value,))),
    ("optional.ofNonZeroValue(V) -> optional(V)", _of_non_zero),
    ("optional.none() -> optional(V)", lambda: NONE),
    ("optional(V)::value() -> V", lambda optional: optional.value),
    ("optional(V)::hasValue() -> bool", lambda optional: optional.has_value),
    ("optional(V)::or(optional(V)) -> optional(V)", _special),
    ("optional(V)::orValue(V) -> V", _special),
    ("_[?_](list(V), int) -> optional(V)", _special),
    ("_[?_](optional(list(V)), int) -> optional(V)", _special),
    ("_[?_](map(K, V), K) -> optional(V)", _special),
    ("_[?_](optional(map(K, V)), K) -> optional(V)", _special),
    ("_[_](optional(list(V)), int) -> optional(V)", _special),
    ("_[_](optional(map(K, V)), K) -> optional(V)", _special),
    (
        "list(V)::last() -> optional(V)",
        lambda values: Optional((values[-1],)) if values else NONE,
    ),
    (
        "list(V)::first() -> optional(V)",
        lambda values: Optional((values[0],)) if values else NONE,
    ),
    ("optional.unwrap(list(optional(V))) -> list(V)", _unwrap),
    ("list(optional(V))::unwrapOpt() -> list(V)", _unwrap),
)
# `single` marks that or() and orValue() refuse what is no optional.
OPTIONALS = Library(*_ROWS, single=("or", "orValue"), types=("optional_type",))
LENIENT_OPTIONALS = Library(*_ROWS, types=("optional_type",))


def _or_value(value: Value, otherwise: Value) -> Value:
    if type(value) is not Optional:
        return value
    return value.value if value.has_value else otherwise


OR_VALUE = Library(("__orValueCompat__(dyn, dyn) -> dyn", _or_value))
