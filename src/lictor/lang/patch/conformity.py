"""Does a value have the form that its kind asks for? Faults, each with its place."""

import orjson

from lictor.errors import EvaluationError
from lictor.lang.kind_schema import Form, ListForm, MapForm
from lictor.raw import Json, JsonObject

_EXPECTED = {
    "string": "string",
    "number": "numeric (int or float)",
    "boolean": "boolean",
    "scalar": "any scalar",
}
_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset((str,)),
    "number": frozenset((int, float)),
    "boolean": frozenset((bool,)),
    "scalar": frozenset((str, int, float, bool)),
    "": frozenset(),
}


def check_form(
    value: Json, form: Form, *, is_stored: bool = False, allows_nulls: bool = False
) -> list[str]:
    """List what does not fit, each as `place: fault`.

    What is stored may hold nulls, and elements with the same key; what an author wants may not.
    What is applied to an API server may hold nulls too.
    """
    faults: list[str] = []
    allows_nulls = allows_nulls or is_stored
    _Inspector(faults, is_stored=is_stored, allows_nulls=allows_nulls).visit(value, form, "")
    return faults


def element_key(element: Json, form: ListForm) -> str:
    """What tells an element of a merged list from the others, as it stands in a path."""
    if not form.keys:
        if element is None or isinstance(element, (dict, list)):
            raise EvaluationError("a set has an element that is no scalar")
        return f"[={_print(element)}]"
    if not isinstance(element, dict):
        raise EvaluationError("associative list with keys may not have non-map elements")
    parts = []
    for key, default in sorted(form.keys.items()):
        value = element.get(key, default)
        if value is not None:
            parts.append(f"{key}={_print(value)}")
    if not parts:
        keys = ", ".join(form.keys)
        raise EvaluationError(f"associative list has an element that omits all key fields ({keys})")
    return f"[{','.join(parts)}]"


def _print(value: Json) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):
        return repr(value)


class _Inspector:
    def __init__(self, faults: list[str], *, is_stored: bool, allows_nulls: bool) -> None:
        self._faults = faults
        self._is_stored = is_stored
        self._allows_nulls = allows_nulls

    def visit(self, value: Json, form: Form, path: str) -> None:
        if type(value) in _TYPES[form.scalar] or (value is None and self._allows_nulls):
            return
        if isinstance(value, dict) and form.map is not None:
            self._visit_map(value, form.map, path)
        elif isinstance(value, list) and form.list is not None:
            self._visit_list(value, form.list, path)
        else:
            self._faults.append(f"{path}: expected {_expected(form)}, got {_name(value)}")

    def _visit_map(self, value: JsonObject, form: MapForm, path: str) -> None:
        fields, others = form.fields, form.others
        for key, inner in value.items():
            expected = fields.get(key, others)
            if expected is None:
                self._faults.append(f"{path}.{key}: field not declared in schema")
            elif type(inner) not in _TYPES[expected.scalar]:
                self.visit(inner, expected, f"{path}.{key}")

    def _visit_list(self, value: list[Json], form: ListForm, path: str) -> None:
        seen: set[str] = set()
        for index, inner in enumerate(value):
            place = f"[{index}]"
            if not form.is_atomic:
                try:
                    place = element_key(inner, form)
                except EvaluationError as error:
                    self._faults.append(f"{path}: element {index}: {error}")
                    return
                if place in seen and not self._is_stored:
                    self._faults.append(f"{path}: duplicate entries for key {place}")
                seen.add(place)
            self.visit(inner, form.element, path + place)


def _expected(form: Form) -> str:
    # In the order in which Kubernetes tries them.
    if form.map is not None:
        return "map"
    return _EXPECTED.get(form.scalar, "list")


def _name(value: Json) -> str:
    # Not the value itself: it may be a secret.
    return _NAMES.get(type(value), "number")


_NAMES: dict[type, str] = {
    dict: "map",
    list: "list",
    str: "string",
    bool: "boolean",
    type(None): "null",
}
