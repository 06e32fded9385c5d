"""What do values look like that stand in a policy: lists, objects and texts with variables?"""

from collections.abc import Iterable
from functools import reduce

from lictor.kubernetes.field_types import ANYTHING, FieldType
from lictor.raw import Json


def type_literal(value: Json) -> FieldType:
    """The type of a value. What a variable fills in whole may be anything."""
    place = FieldType()
    match value:
        case dict():
            _fill(place, value)
        case list():
            place.element = _merge_all(map(type_literal, value))
        case str() if value.strip().startswith("{{") and value.strip().endswith("}}"):
            return ANYTHING
        case bool() | str():
            place.scalar = frozenset((type(value),))
        case int() | float():
            place.scalar = frozenset((int, float))
    return place


def _fill(place: FieldType, value: dict[str, Json]) -> None:
    place.fields = {name: type_literal(inner) for name, inner in value.items() if "{{" not in name}
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
