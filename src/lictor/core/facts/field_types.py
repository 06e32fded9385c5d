"""Field types of objects of built-in kinds, linked to each other on demand.

The forms of `lang.kind_schema` describe how fields are merged; these describe how they are
written.
"""

from collections.abc import Mapping
from functools import cache

from lictor.core.facts.facts import NO_FACTS, find_type_name, load_section, load_type_facts
from lictor.core.raw import Json

_QUANTITY = "api.resource.Quantity"
_SCALARS: dict[str, frozenset[type]] = {
    "string": frozenset((str,)),
    # A float may be a false positive: callers that explain faults check it.
    "number": frozenset((int,)),
    "boolean": frozenset((bool,)),
    "scalar": frozenset((str, int, float)),
}


class FieldType:
    """What is allowed at a field. Without any parts, everything."""

    __slots__ = (
        *("description", "element", "enums", "fields", "is_quantity"),
        *("kept", "others", "required", "scalar", "silent"),
    )

    def __init__(self) -> None:
        # Scalar types that are allowed here.
        self.scalar: frozenset[type] | None = None
        self.fields: dict[str, FieldType] = {}
        # What is allowed under other names; None if nothing is.
        self.others: FieldType | None = None
        self.element: FieldType | None = None
        self.is_quantity = False
        # Fields that are omitted if they are "", 0 or false ...
        self.silent: frozenset[str] = frozenset()
        # ... and lists and maps that are written even if empty.
        self.kept: frozenset[str] = frozenset()
        self.required: frozenset[str] = frozenset()
        # The enums of fields, by field; other values are refused.
        self.enums: Mapping[str, tuple[str, ...]] = NO_FACTS.enums
        # Descriptions of custom kinds; built-in kinds have none here.
        self.description = ""

    @property
    def is_map(self) -> bool:
        """Whether it has only arbitrary keys; `emptyDir: {}` has not."""
        return not self.fields and self.others is not None and self.others is not ANYTHING


ANYTHING = FieldType()


def find_field_type(api_version: str, kind: str) -> FieldType | None:
    """The type of a built-in kind; None for other kinds."""
    name = find_type_name(api_version, kind)
    return None if name is None else link_type(name)


@cache
def find_metadata() -> FieldType:
    """The type of the metadata of every object."""
    return link_type("meta.v1.ObjectMeta")


_LINKED: dict[str, FieldType] = {}


def link_type(name: str) -> FieldType:
    """The type with this name in the tables."""
    place = _LINKED.get(name)
    if place is None:
        form = load_section("types").get(name, "deduced")
        if isinstance(form, str):
            place = _LINKED[name] = _read(form)
            place.is_quantity = name == _QUANTITY
            return place
        # Registered before it is filled: types may be recursive.
        place = _LINKED[name] = FieldType()
        _fill(place, form)
        facts = load_type_facts().get(name, NO_FACTS)
        place.silent = frozenset(facts.silent)
        place.kept = frozenset(facts.kept)
        place.required = frozenset(facts.required)
        place.enums = facts.enums
    return place


def _read(form: Json) -> FieldType:
    if isinstance(form, str):
        if form.startswith("="):
            return link_type(form[1:])
        if form not in _SCALARS:
            return ANYTHING
        place = FieldType()
        place.scalar = _SCALARS[form]
        return place
    whole = form.get("atomic")
    if isinstance(whole, str):
        return link_type(whole[1:])
    place = FieldType()
    _fill(place, form)
    return place


def _fill(place: FieldType, form: Json) -> None:
    element = form.get("list") or form.get("set") or form.get("keyed")
    if element is not None:
        place.element = _read(element)
        return
    place.fields = {key: _read(inner) for key, inner in form.get("fields", {}).items()}
    if "map" in form:
        place.others = _read(form["map"])
