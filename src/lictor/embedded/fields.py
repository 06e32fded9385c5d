"""Which fields of an object does its form know? What it does not is told, or taken away."""

from functools import cache

from lictor.embedded.builtin_table import load_builtin_table, load_fields
from lictor.lang.kind_schema import DEDUCED, UNTYPED, Form, ListForm, MapForm, find_form
from lictor.lang.quantity import parse_quantity
from lictor.raw import Json, JsonObject

_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset((str,)),
    # A float may be one too many: whoever explains faults knows.
    "number": frozenset((int,)),
    "boolean": frozenset((bool,)),
    "scalar": frozenset((str, int, float)),
    "": frozenset(),
}
# No range: whether a float is in one takes for ever.
_LIMIT = 2**31


def list_unknown_fields(value: Json, form: Form) -> list[str]:
    """Paths of fields that the form does not have, such as `spec.foo`."""
    found: list[str] = []
    _search(value, form, "", found)
    return found


def _search(value: Json, form: Form, path: str, found: list[str]) -> None:
    if form is UNTYPED or form is DEDUCED:
        return
    if form.map is not None and isinstance(value, dict):
        for key, inner in value.items():
            place = f"{path}.{key}" if path else key
            expected = form.map.fields.get(key, form.map.others)
            if expected is None:
                found.append(place)
            elif isinstance(inner, (dict, list)):
                _search(inner, expected, place, found)
    elif form.list is not None and isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, (dict, list)):
                _search(inner, form.list.element, f"{path}[{index}]", found)


@cache
def _quantity_form() -> Form | None:
    """The form that all quantities share."""
    found = find_form("v1", "ResourceQuota")
    for field in ("spec", "hard"):
        found = found.map.fields[field] if found and found.map else None
    return found.map.others if found and found.map else None


def _make_empty(form: Form) -> Json:
    """What null counts as inside a list."""
    if form.map is not None:
        return {}
    if form.list is not None:
        return []
    return {"number": 0, "boolean": False}.get(form.scalar, "")


@cache
def _required_collections() -> frozenset[str]:
    """Names of lists and maps that are kept though they are empty, since they must be there."""
    fields = load_fields()["types"]
    return frozenset(
        name
        for type_name, facts in load_builtin_table().types.items()
        for name in facts.required
        if isinstance(fields.get(type_name), dict)
        and isinstance(fields[type_name].get("fields", {}).get(name), dict)
    )


def _is_collection(value: Json, form: Form) -> bool:
    """Is it a list, or a map with keys of the author's choice? `emptyDir: {}` says something."""
    if isinstance(value, list):
        return True
    others = form.map.others if form.map is not None else None
    return isinstance(value, dict) and others not in (None, DEDUCED, UNTYPED)


class Pruner:
    """Takes unknown fields, nulls and empty lists away, and writes quantities as Kubernetes does.

    The very same value comes back where there is nothing to do. `is_suspicious` tells that
    something is of a wrong type, or nearly.
    """

    __slots__ = ("_quantity", "_required", "is_suspicious")

    def __init__(self) -> None:
        self.is_suspicious = False
        self._quantity = _quantity_form()
        self._required = _required_collections()

    def prune(self, value: Json, form: Form) -> Json:
        """One value of this form."""
        if form is UNTYPED or form is DEDUCED:
            return value
        if isinstance(value, dict) and form.map is not None:
            return self._prune_map(value, form.map)
        if isinstance(value, list) and form.list is not None:
            return self._prune_list(value, form.list)
        if form is self._quantity:
            return self._write_quantity(value)
        if type(value) not in _TYPES[form.scalar] or (
            type(value) is int and not -_LIMIT <= value < _LIMIT
        ):
            self.is_suspicious = True
        return value

    def _prune_map(self, value: JsonObject, form: MapForm) -> JsonObject:
        fields, others = form.fields, form.others
        kept: JsonObject | None = None
        for key, inner in value.items():
            expected = fields.get(key, others)
            if expected is None or inner is None:
                kept = dict(value) if kept is None else kept
                del kept[key]
                continue
            pruned = self.prune(inner, expected)
            if not pruned and key not in self._required and _is_collection(inner, expected):
                kept = dict(value) if kept is None else kept
                del kept[key]
            elif pruned is not inner:
                kept = dict(value) if kept is None else kept
                kept[key] = pruned
        return value if kept is None else kept

    def _prune_list(self, value: list[Json], form: ListForm) -> list[Json]:
        element = form.element
        pruned = [
            _make_empty(element) if inner is None else self.prune(inner, element) for inner in value
        ]
        changed = any(new is not old for new, old in zip(pruned, value, strict=True))
        return pruned if changed else value

    def _write_quantity(self, value: Json) -> Json:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self.is_suspicious = True
            return value
        try:
            text = str(parse_quantity(str(value)))
        except ValueError:
            self.is_suspicious = True
            return value
        return value if text == value else text
