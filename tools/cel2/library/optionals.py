"""Optional values."""

from cel2.faults import CelError, no_overload
from cel2.functions import Library
from cel2.values import NONE, Optional, Value, is_zero


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
