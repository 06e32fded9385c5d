"""What do values look like that stand in a policy: lists, objects and texts with variables?"""

from collections.abc import Iterable
from functools import reduce

from lictor.kubernetes.field_types import ANYTHING, FieldType
from lictor.raw import Json

# Further in, nobody asks what a value is.
_MAX_DEPTH = 30


def type_literal(value: Json, depth: int = 0) -> FieldType:
    """The type of a value. What a variable fills in whole may be anything."""
    if depth > _MAX_DEPTH:
        return ANYTHING
    place = FieldType()
    match value:
        case dict():
            _fill(place, value, depth + 1)
        case list():
            place.element = _merge_all(type_literal(each, depth + 1) for each in value)
        case str() if value.strip().startswith("{{") and value.strip().endswith("}}"):
            return ANYTHING
        case bool() | str():
            place.scalar = frozenset((type(value),))
        case int() | float():
            place.scalar = frozenset((int, float))
    return place


def _fill(place: FieldType, value: dict[str, Json], depth: int) -> None:
    place.fields = {
        name: type_literal(inner, depth) for name, inner in value.items() if "{{" not in name
    }
    if len(place.fields) < len(value):
        place.others = ANYTHING


def _merge_all(types: Iterable[FieldType]) -> FieldType:
    listed = list(types)
    return reduce(_merge, listed) if listed else ANYTHING


def _merge(left: FieldType, right: FieldType) -> FieldType:
    """The type of what is one or the other."""
    place = FieldType()
    if left.scalar is not None and right.scalar is not None:
        place.scalar = left.scalar | right.scalar
    elif left.element is not None and right.element is not None:
        place.element = _merge(left.element, right.element)
    elif left.fields and right.fields:
        place.fields = {**left.fields, **right.fields}
        for name in left.fields.keys() & right.fields.keys():
            place.fields[name] = _merge(left.fields[name], right.fields[name])
        place.others = left.others or right.others
    return place
