"""Which fields of an object does its form know? What it does not is told, or taken away."""

from lictor.apiserver.kinds.builtin_forms import ANYTHING, Place
from lictor.lang.kind_schema import DEDUCED, UNTYPED, Form
from lictor.lang.quantity import parse_quantity
from lictor.raw import Json, JsonObject

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


class Pruner:
    """Writes objects of built-in kinds as Kubernetes does.

    Unknown fields go, and with them nulls, empty lists and all that Go leaves out where it is
    empty; quantities are written in their shortest form. The very same value comes back where there
    is nothing to do. `is_suspicious` tells that something is of a wrong type, or nearly.
    """

    __slots__ = ("is_suspicious",)

    def __init__(self) -> None:
        self.is_suspicious = False

    def prune(self, value: Json, place: Place) -> Json:
        """One value that stands at this place."""
        if place is ANYTHING:
            return value
        if place.is_quantity:
            return self._write_quantity(value)
        kind = type(value)
        if place.scalar is not None:
            if kind not in place.scalar or (kind is int and not -_LIMIT <= value < _LIMIT):
                self.is_suspicious = True
        elif kind is list and place.element is not None:
            return self._prune_list(value, place.element)
        elif kind is dict and place.element is None:
            return self._prune_map(value, place)
        else:
            self.is_suspicious = True
        return value

    def _prune_map(self, value: JsonObject, place: Place) -> JsonObject:
        fields, others = place.fields, place.others
        kept: JsonObject | None = None
        for key, inner in value.items():
            expected = fields.get(key, others)
            if expected is None or inner is None:
                kept = dict(value) if kept is None else kept
                del kept[key]
                continue
            pruned = self.prune(inner, expected)
            if not pruned and _is_left_out(pruned, key, place, expected):
                kept = dict(value) if kept is None else kept
                del kept[key]
            elif pruned is not inner:
                kept = dict(value) if kept is None else kept
                kept[key] = pruned
        return value if kept is None else kept

    def _prune_list(self, value: list[Json], element: Place) -> list[Json]:
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


def _is_left_out(value: Json, key: str, holder: Place, place: Place) -> bool:
    """Does Go leave this empty value out?"""
    if isinstance(value, list) or (isinstance(value, dict) and place.is_map):
        return key not in holder.kept
    return not isinstance(value, dict) and key in holder.silent


def _make_empty(place: Place) -> Json:
    """What null counts as inside a list."""
    if place.scalar is None:
        return [] if place.element is not None else {}
    return next((kind() for kind in (str, int, bool) if kind in place.scalar), None)
