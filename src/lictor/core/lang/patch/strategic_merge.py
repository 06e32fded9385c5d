"""Kubernetes' strategic merge patch as Kyverno applies it.

Maps are merged, null removes, lists are replaced, except for those in the merge table: their
elements are merged by key, and those of the patch come first. `$patch` is the only directive.
Unchanged parts are shared with the resource, which is returned itself if nothing changes.
"""

import operator
from contextlib import suppress

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.facts.merge_keys import PLAIN, MergedList, MergeShape, find_shape
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.patch.pointer import MISSING, is_same
from lictor.core.raw import Json, JsonObject

_DIRECTIVE = "$patch"
_DIRECTIVES = frozenset(("delete", "merge", "replace"))


def merge_strategic(resource: Json, patch: Json) -> Json:
    """Merge `patch` into `resource`; the kind of the resource decides how lists are merged."""
    require_kind(dict, resource)
    require_kind(dict, patch)
    try:
        merged = _merge_maps(resource, patch, None)
    except RecursionError as error:
        raise TooLargeError("the patch is nested too deeply") from error
    if merged is MISSING:
        raise EvaluationError("filter cannot create or delete objects")
    return merged


def require_kind(kind: type, value: Json) -> None:
    """Reject a value that is not of the type required at its path."""
    if name_kind(value) != _KINDS.get(kind, "ScalarNode"):
        # The value is not shown: it may be a secret.
        expected = _KINDS.get(kind, "ScalarNode")
        raise EvaluationError(f"wrong node kind: expected {expected} but got {name_kind(value)}")


_KINDS: dict[type, str] = {dict: "MappingNode", list: "SequenceNode"}


def name_kind(value: Json) -> str:
    """The type of a value for error messages."""
    return _KINDS.get(type(value), "ScalarNode")


def _merge_maps(current: JsonObject, patch: JsonObject, shape: MergeShape | None) -> Json:
    directive = _read_directive(patch)
    if directive == "delete":
        return MISSING
    if directive == "replace":
        return _build_map(patch, shape)
    if shape is None:
        shape = find_shape(current) or find_shape(patch)
    changes = {}
    for key, value in patch.items():
        if key == _DIRECTIVE:
            continue
        field = _get_field(shape, key)
        old = current.get(key, MISSING)
        new = _build(value, field) if old is MISSING else _merge(old, value, field)
        if new is not old:
            changes[key] = new
    return _apply(current, changes) if changes else current


def _apply(current: JsonObject, changes: JsonObject) -> JsonObject:
    merged = {**current, **changes}
    for key, value in changes.items():
        if value is MISSING:
            del merged[key]
    return merged


def _get_field(shape: MergeShape | None, key: str) -> MergeShape | MergedList | None:
    return None if shape is None else shape.get(key, PLAIN)


def _read_directive(patch: JsonObject) -> str | None:
    if _DIRECTIVE not in patch:
        return None
    directive = print_scalar(patch[_DIRECTIVE])
    if directive not in _DIRECTIVES:
        raise EvaluationError(f"unknown patch strategy '{directive}'")
    return directive


def _merge(old: Json, patch: Json, field: MergeShape | MergedList | None) -> Json:
    """Merge a patch into the current value; MISSING if nothing remains."""
    if patch is None:
        return MISSING
    if old is None:
        return _build(patch, field)
    require_kind(type(old), patch)
    if isinstance(old, dict):
        return _merge_maps(old, patch, _as_shape(field))
    if isinstance(old, list):
        if isinstance(field, MergedList):
            return _merge_lists(old, patch, field)
        return old if is_same(old, patch) else patch
    if isinstance(old, str) and not isinstance(patch, str):
        # A number or a boolean that replaces a text becomes a text, as in Kyverno.
        patch = print_scalar(patch)
    return old if is_same(old, patch) else patch


def _as_shape(field: MergeShape | MergedList | None) -> MergeShape | None:
    return PLAIN if isinstance(field, MergedList) else field


def _build(patch: Json, field: MergeShape | MergedList | None) -> Json:
    """The value of a patch if there is no current value."""
    if patch is None:
        return MISSING
    if isinstance(patch, dict):
        return MISSING if patch.get(_DIRECTIVE) == "delete" else _build_map(patch, _as_shape(field))
    if isinstance(patch, list) and isinstance(field, MergedList):
        return _merge_lists([], patch, field)
    return patch


def _build_map(patch: JsonObject, shape: MergeShape | None) -> JsonObject:
    if shape is None:
        shape = find_shape(patch)
    built = {key: _build(value, _get_field(shape, key)) for key, value in patch.items()}
    if _DIRECTIVE in built and print_scalar(built[_DIRECTIVE]) in _DIRECTIVES:
        del built[_DIRECTIVE]
    if len(built) == len(patch) and all([built[key] is patch[key] for key in built]):
        return patch
    return {key: value for key, value in built.items() if value is not MISSING}


def _merge_lists(old: list[Json], patch: list[Json], field: MergedList) -> Json:
    directive, elements = _read_list_directive(patch)
    if directive == "delete":
        return MISSING
    if directive == "replace":
        old = []
    if not field.keys:
        return _share(old, _unite(elements, old))
    keys = _find_used_keys([*old, *elements], field.keys)
    if len(keys) == 1:
        return _share(old, _merge_by_key(old, elements, keys[0], field.element))
    return _share(old, _merge_by_keys(old, elements, keys, field.element))


def _share(old: list[Json], new: list[Json]) -> list[Json]:
    return old if len(old) == len(new) and all(map(operator.is_, old, new)) else new


def _read_list_directive(patch: list[Json]) -> tuple[str | None, list[Json]]:
    """A directive for the whole list is the only key of the first element that has one."""
    for element in patch:
        if isinstance(element, dict) and _DIRECTIVE in element:
            if len(element) > 1:
                break
            directive = _read_directive(element)
            return directive, [other for other in patch if not is_same(other, element)]
    return None, patch


def _unite(first: list[Json], second: list[Json]) -> list[Json]:
    """Join scalars without duplicates."""
    united: dict[str, Json] = {}
    for value in (*first, *second):
        if value is not None:
            require_kind(str, value)
            united.setdefault(print_scalar(value), value)
    return list(united.values())


def _find_used_keys(elements: list[Json], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Drop keys that no element has: ports, for example, often have no protocol."""
    first, *others = keys
    used = [key for key in others if any([_read_key(element, key) for element in elements])]
    return (first, *used)


def _read_key(element: Json, key: str) -> str:
    if not element:
        return ""
    require_kind(dict, element)
    value = element.get(key)
    return "" if value is None or isinstance(value, (dict, list)) else print_scalar(value)


def _require_key(element: Json, key: str) -> str:
    value = _read_key(element, key)
    if not value:
        raise EvaluationError(f"an element of the patch does not contain the merge key {key}")
    return value


def _merge_by_key(old: list[Json], patch: list[Json], key: str, shape: MergeShape) -> list[Json]:
    """Elements of the patch come first, in its order; of duplicates the last counts."""
    rest, unnamed = _index(old, key)
    merged: dict[str, Json] = {}
    for element in patch:
        name = _require_key(element, key)
        current = merged.pop(name, MISSING)
        if current is MISSING:
            current = rest.pop(name, MISSING)
        new = _build(element, shape) if current is MISSING else _merge(current, element, shape)
        if new is not MISSING:
            merged[name] = new
    return [*merged.values(), *rest.values(), *unnamed]


def _index(elements: list[Json], key: str) -> tuple[dict[str, Json], list[Json]]:
    """Elements by the texts of their keys, and those without any."""
    # A loop over a long list calls this once for each element: the usual case is fast.
    with suppress(KeyError, TypeError):
        names = list(map(operator.itemgetter(key), elements))
        index = dict(zip(names, elements, strict=True))
        # Joining fails if one is not a string.
        if "".join(names) and "" not in index:
            return index, []
    index = {_read_key(element, key): element for element in elements if element}
    index.pop("", None)
    return index, [element for element in elements if element and not _read_key(element, key)]


def _merge_by_keys(
    old: list[Json], patch: list[Json], keys: tuple[str, ...], shape: MergeShape
) -> list[Json]:
    """New elements come first; existing ones keep their positions."""
    present = [element for element in old if element]
    added: list[Json] = []
    for element in patch:
        _require_key(element, keys[0])
        wanted = [_read_key(element, key) for key in keys]
        place, position = _find_element(wanted, keys, (present, added))
        if place is None:
            added.append(_build(element, shape))
        else:
            place[position] = _merge(place[position], element, shape)
    return [element for element in (*added, *present) if element is not MISSING]


def _find_element(
    wanted: list[str], keys: tuple[str, ...], places: tuple[list[Json], ...]
) -> tuple[list[Json] | None, int]:
    """Find the element with equal keys, or otherwise one that lacks some of them."""
    candidates = [
        (place, position, [_read_key(element, key) for key in keys])
        for place in places
        for position, element in enumerate(place)
        if element is not MISSING
    ]
    for fits in (list.__eq__, _agree):
        for place, position, found in candidates:
            if fits(wanted, found):
                return place, position
    return None, 0


def _agree(wanted: list[str], found: list[str]) -> bool:
    pairs = zip(wanted, found, strict=True)
    return wanted[0] == found[0] and all(
        [one == other or not (one and other) for one, other in pairs]
    )


def print_scalar(value: Json) -> str:
    """A scalar as in JSON, a text without quotes; empty for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return dump_go_json(value)
    return "null" if value is None else ""
