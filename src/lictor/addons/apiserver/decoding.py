"""Pruning of built-in kinds, and Kubernetes' message for the first value of a wrong type."""

import base64
import binascii
import re

from lictor.core.facts.facts import NO_FACTS, find_type_name, load_section, load_type_facts
from lictor.core.facts.field_types import ANYTHING, FieldType
from lictor.core.facts.schemas import DEDUCED, UNTYPED, Form
from lictor.core.lang.quantity import parse_quantity
from lictor.core.raw import Json, JsonObject

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

    Unknown fields are removed, and with them nulls, empty lists and all that Go omits if it is
    empty; quantities are written in their shortest form. The same value is returned if nothing
    changes. `is_suspicious`: a value may be of a wrong type.
    """

    __slots__ = ("is_suspicious",)

    def __init__(self) -> None:
        self.is_suspicious = False

    def prune(self, value: Json, place: FieldType) -> Json:
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

    def _prune_map(self, value: JsonObject, place: FieldType) -> JsonObject:
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

    def _prune_list(self, value: list[Json], element: FieldType) -> list[Json]:
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


def _is_left_out(value: Json, key: str, holder: FieldType, place: FieldType) -> bool:
    """Does Go leave this empty value out?"""
    if isinstance(value, list) or (isinstance(value, dict) and place.is_map):
        return key not in holder.kept
    return not isinstance(value, dict) and key in holder.silent


def _make_empty(place: FieldType) -> Json:
    """What null counts as inside a list."""
    if place.scalar is None:
        return [] if place.element is not None else {}
    return next((kind() for kind in (str, int, bool) if kind in place.scalar), None)


_GO_TYPES = {"string": "string", "boolean": "bool", "number": "int32"}
_LIMITS = {"int32": 2**31, "int64": 2**63}
_QUANTITY = "api.resource.Quantity"
_TIMES = frozenset(("meta.v1.Time", "meta.v1.MicroTime"))
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def explain_mismatch(api_version: str, kind: str, document: JsonObject) -> str:
    """What stands in the way of reading it; empty where nothing does."""
    name = find_type_name(api_version, kind)
    if name is None:
        return ""
    return _visit(document, f"={name}", _Position("", "", ""))


class _Position:
    """Where we are: the Go struct, the path of fields, and the format of a number there."""

    __slots__ = ("form", "path", "struct")

    def __init__(self, struct: str, path: str, form: str) -> None:
        self.struct = struct
        self.path = path
        self.form = form

    def describe(self, value: Json, expected: str) -> str:
        where = f"Go struct field {self.struct}.{self.path}" if self.path else "Go value"
        return f"json: cannot unmarshal {_name(value, expected)} into {where} of type {expected}"


def _name(value: Json, expected: str) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {value}" if expected in _LIMITS else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _visit(value: Json, form: Json, place: _Position) -> str:
    if value is None or form in ("deduced", "untyped"):
        return ""
    if isinstance(form, str):
        return _visit_type(value, form[1:], place) if form[0] == "=" else _check(value, form, place)
    if isinstance(form.get("atomic"), str):
        return _visit(value, form["atomic"], place)
    element = form.get("list") or form.get("set") or form.get("keyed")
    if element is not None:
        return _visit_list(value, element, form, place)
    return _visit_map(value, form, place)


def _visit_type(value: Json, name: str, place: _Position) -> str:
    form = load_section("types").get(name, "deduced")
    if name == _QUANTITY:
        return _check_quantity(value)
    if name in _TIMES:
        return _check_time(value, place)
    if isinstance(form, str) or "fields" not in form:
        return _visit(value, form, place)
    if not isinstance(value, dict):
        return place.describe(value, _go_type(f"={name}"))
    facts = load_type_facts().get(name, NO_FACTS)
    struct = name.rpartition(".")[2]
    for field, inner in value.items():
        path = f"{place.path}.{field}" if place.path else field
        form_of_field = form["fields"].get(field, "deduced")
        found = _visit(inner, form_of_field, _Position(struct, path, facts.formats.get(field, "")))
        if found:
            return found
    return ""


def _visit_list(value: Json, element: Json, form: Json, place: _Position) -> str:
    if not isinstance(value, list):
        return place.describe(value, _go_type(form))
    return next((found for each in value if (found := _visit(each, element, place))), "")


def _visit_map(value: Json, form: Json, place: _Position) -> str:
    if not isinstance(value, dict):
        return place.describe(value, _go_type(form))
    inner = form.get("map", "deduced")
    return next((found for each in value.values() if (found := _visit(each, inner, place))), "")


def _check(value: Json, form: str, place: _Position) -> str:
    match form:
        case "string":
            if place.form == "byte" and isinstance(value, str):
                return _check_bytes(value)
            fits = isinstance(value, str)
        case "boolean":
            fits = isinstance(value, bool)
        case "number":
            return _check_number(value, place)
        case _:
            # An int-or-string.
            fits = isinstance(value, (str, int)) and not isinstance(value, bool)
    return "" if fits else place.describe(value, _GO_TYPES.get(form, "int32"))


def _check_number(value: Json, place: _Position) -> str:
    kind = "float64" if place.form == "double" else place.form or "int32"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return place.describe(value, kind)
    limit = _LIMITS.get(kind)
    fits = limit is None or (isinstance(value, int) and -limit <= value < limit)
    return "" if fits else place.describe(value, kind)


def _check_bytes(value: str) -> str:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        wrong = re.search(r"[^A-Za-z0-9+/\r\n]", value)
        position = wrong.start() if wrong else len(value) // 4 * 4
        return f"illegal base64 data at input byte {position}"
    return ""


def _check_quantity(value: Json) -> str:
    try:
        parse_quantity(str(value))
    except ValueError as error:
        return str(error)
    return ""


def _check_time(value: Json, place: _Position) -> str:
    if not isinstance(value, str):
        return place.describe(value, "string")
    if _TIME.fullmatch(value):
        return ""
    layout = "2006-01-02T15:04:05Z07:00"
    return f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'


def _go_type(form: Json) -> str:
    """A type as Go prints it, nearly."""
    if isinstance(form, str):
        if not form.startswith("="):
            return _GO_TYPES.get(form, "interface {}")
        parts = form[1:].split(".")
        return ".".join(parts[-2:])
    element = form.get("list") or form.get("set") or form.get("keyed")
    if element is not None:
        return f"[]{_go_type(element)}"
    inner = form.get("map", "deduced")
    return "v1.ResourceList" if inner == f"={_QUANTITY}" else f"map[string]{_go_type(inner)}"


def explain_metadata(metadata: Json) -> str:
    """What stands in the way of reading the metadata of a custom kind; empty where nothing does."""
    if metadata is None:
        return ""
    return _visit(metadata, "=meta.v1.ObjectMeta", _Position("ObjectMeta", "", ""))
