"""Kubernetes' structured merge: an apply configuration merged into an object.

This is server-side apply without field owners, and the `applyConfiguration` of a policy: maps are
merged, lists by their keys, and changing atomic values is refused, so that nothing is lost by
accident. Unchanged parts are shared with the object. Before that, the values are checked against
the form of their kind.
"""

import orjson

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.facts.schemas import DEDUCED, Form, ListForm, MapForm, find_form
from lictor.core.lang.patch.pointer import MISSING, is_same
from lictor.core.raw import Json, JsonObject

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
    """List what does not match the form, each as `path: fault`.

    Stored objects may contain nulls and elements with the same key; configurations of an author may
    not. Objects applied to an API server may contain nulls too.
    """
    faults: list[str] = []
    allows_nulls = allows_nulls or is_stored
    _Inspector(faults, is_stored=is_stored, allows_nulls=allows_nulls).visit(value, form, "")
    return faults


def element_key(element: Json, form: ListForm) -> str:
    """The key of an element of a merged list, as in a path."""
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


# An object keeps its kind, even if the configuration has another one.
_IDENTITY = frozenset(("apiVersion", "kind"))


def apply_configuration(
    resource: JsonObject, configuration: JsonObject, *, replaces_atomic: bool = False
) -> JsonObject:
    """Merge `configuration` into `resource`, whose kind decides how.

    `replaces_atomic`: replace atomic lists and maps as a whole, instead of an error.
    """
    form = _find_form(resource)
    part = {key: value for key, value in configuration.items() if key not in _IDENTITY}
    try:
        _require(check_form(part, form), "failed to convert patch object to typed object")
        if not replaces_atomic:
            _refuse_wholes(part, form)
        faults = check_form(resource, form, is_stored=True)
        _require(faults, "failed to convert original object to typed object")
        merged = merge_values(resource, part, form)
    except RecursionError as error:
        raise TooLargeError("the object is nested too deeply to be merged") from error
    return merged if isinstance(merged, dict) else resource


def _find_form(resource: JsonObject) -> Form:
    api_version, kind = resource.get("apiVersion"), resource.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return DEDUCED
    return find_form(api_version, kind) or DEDUCED


def _require(faults: list[str], what: str) -> None:
    if len(faults) == 1:
        raise EvaluationError(f"{what}: {faults[0]}")
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise EvaluationError(f"{what}: errors:{lines}")


def _refuse_wholes(part: Json, form: Form) -> None:
    wholes = _find_wholes(part, form, "")
    if wholes:
        raise EvaluationError(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            + ", ".join(wholes)
        )


def _find_wholes(value: Json, form: Form, path: str) -> list[str]:
    """The paths at which the author would replace more than is written there."""
    found = []
    if isinstance(value, dict) and form.map is not None:
        if form.map.is_atomic:
            found.append(path)
        for key, inner in value.items():
            # Nothing is checked below arbitrary keys, as in Kubernetes.
            if key in form.map.fields:
                found += _find_wholes(inner, form.map.fields[key], f"{path}.{key}")
    elif isinstance(value, list) and form.list is not None:
        if form.list.is_atomic:
            found.append(path)
        for index, inner in enumerate(value):
            found += _find_wholes(inner, form.list.element, f"{path}[{index}]")
    return found


def merge_values(old: Json, new: Json, form: Form) -> Json:
    """Merge the new value into the old one; MISSING means that there is none."""
    if old is MISSING:
        return new
    if new is MISSING:
        return old
    if form.map is not None and not form.map.is_atomic and _is_or_null(old, new, dict):
        return _merge_maps(old, new, form.map)
    if form.list is not None and not form.list.is_atomic and _is_or_null(old, new, list):
        return _merge_lists(old, new, form.list)
    return old if is_same(old, new) else new


def _is_or_null(old: Json, new: Json, kind: type) -> bool:
    """Whether one is of the type, and the other too or null, which counts as empty."""
    if isinstance(old, kind):
        return (new is None and bool(old)) or isinstance(new, kind)
    return old is None and isinstance(new, kind)


def _merge_maps(old: JsonObject | None, new: JsonObject | None, form: MapForm) -> JsonObject:
    if not old:
        return old if old == new and old is not None else new or {}
    merged = dict(old)
    changed = False
    for key, value in (new or {}).items():
        current = old.get(key, MISSING)
        inner = form.fields.get(key) or form.others or DEDUCED
        result = merge_values(current, value, inner)
        if result is not current:
            merged[key] = result
            changed = True
    return merged if changed else old


def _merge_lists(old: list[Json] | None, new: list[Json] | None, form: ListForm) -> list[Json]:
    if not old or not new:
        return old or new or []
    old_keys = [element_key(element, form) for element in old]
    new_keys = [element_key(element, form) for element in new]
    # Duplicates in the object have no owner: the new element replaces all of them.
    found: dict[str, Json] = {}
    for key, value in zip(old_keys, old, strict=True):
        found[key] = None if key in found else value
    given = dict(zip(new_keys, new, strict=True))
    merged = []
    for key, index in _interleave(old_keys, new_keys):
        if key in given:
            merged.append(merge_values(found.get(key, MISSING), given[key], form.element))
        else:
            merged.append(old[index])
    same = len(merged) == len(old) and all(a is b for a, b in zip(merged, old, strict=True))
    return old if same else merged


def _interleave(old: list[str], new: list[str]) -> list[tuple[str, int]]:
    """The order of the merged list: the new one's, with elements of the old one in between.

    Each entry is a key and, for an element of the old list only, its index there.
    """
    present, given = set(old), set(new)
    shared = [key for key in new if key in present]
    order: list[tuple[str, int]] = []
    at = 0
    for key in new:
        while at < len(old) and old[at] != key:
            if old[at] not in given:
                order.append((old[at], at))
            elif not shared:
                at += 1  # a duplicate that was emitted already
                break
            elif old[at] == shared[0]:
                break  # emitted later, after the elements before it in the new list
            at += 1
        if at < len(old) and old[at] == key:
            at += 1
        order.append((key, -1))
        if shared and shared[0] == key:
            del shared[0]
    return order + [(old[index], index) for index in range(at, len(old)) if old[index] not in given]
