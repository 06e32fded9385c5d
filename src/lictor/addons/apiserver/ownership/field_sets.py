"""Sets of fields of an object, as `fieldsV1` of managedFields has them, and how objects differ.

A set is a tree: `f:name` a field, `k:{...}` an element of a list by its keys, `v:...` one by its
value. A node is a member where it has no children, or a `.` too. Sets share parts: none is changed.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import orjson

from lictor.core.errors import EvaluationError
from lictor.core.facts.schemas import DEDUCED, Form, ListForm, MapForm
from lictor.core.raw import Json, JsonObject

FieldSet: TypeAlias = dict[str, "FieldSet"]
# A member without children. Shared by all sets.
LEAF: FieldSet = {}
_SELF = "."
# Deeper than any object that the server takes.
_MAX_DEPTH = 200
_MAX_SHARED = 512
_SHARED: dict[bytes, FieldSet] = {}


def is_member(node: FieldSet) -> bool:
    """Is the place itself in the set, and not only something below it?"""
    return not node or _SELF in node


def mark_member(children: FieldSet | None) -> FieldSet:
    """The node of a place that is itself in the set, with what is below it."""
    return {_SELF: LEAF, **children} if children else LEAF


def unite(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in one of them or in both."""
    if not left or not right or left is right:
        return left or right
    united = dict(left)
    for key, node in right.items():
        held = united.get(key)
        united[key] = node if held is None or key == _SELF else _unite_nodes(held, node)
    return united


def _unite_nodes(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        return mark_member(_children(left or right))
    return unite(left, right)


def subtract(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in the first and not in the second; a place does not stand for what is below it."""
    if not left or not right:
        return left
    rest: FieldSet = {}
    for key, node in left.items():
        taken = right.get(key)
        if taken is None or key == _SELF:
            rest[key] = node
            continue
        children = subtract(_children(node), _children(taken))
        if is_member(node) and not is_member(taken):
            rest[key] = mark_member(children)
        elif children:
            rest[key] = children
    return rest


def intersect(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in both."""
    shared: FieldSet = {}
    for key, node in left.items():
        other = right.get(key)
        if other is None or key == _SELF:
            continue
        children = intersect(_children(node), _children(other))
        if is_member(node) and is_member(other):
            shared[key] = mark_member(children)
        elif children:
            shared[key] = children
    return shared


def exclude(left: FieldSet, right: FieldSet) -> FieldSet:
    """The first without the members of the second and all that is below them."""
    if not left or not right:
        return left
    rest: FieldSet = {}
    for key, node in left.items():
        taken = right.get(key)
        if taken is None:
            rest[key] = node
        elif not is_member(taken):
            children = exclude(_children(node), taken)
            if is_member(node):
                rest[key] = mark_member(children)
            elif children:
                rest[key] = children
    return rest


def _children(node: FieldSet) -> FieldSet:
    if _SELF not in node:
        return node
    return {key: inner for key, inner in node.items() if key != _SELF}


def has_path(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Is the place in the set?"""
    node: FieldSet | None = fields
    for element in path:
        node = None if node is None else node.get(element)
    return node is not None and is_member(node)


def list_paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All paths in the set, in Kubernetes' order."""
    elements = sorted(key for key in fields if key != _SELF)
    for element in elements:
        if is_member(fields[element]):
            yield (*prefix, element)
    for element in elements:
        yield from list_paths(fields[element], (*prefix, element))


def print_path(path: tuple[str, ...]) -> str:
    """Such as `.spec.containers[name="app"].image`."""
    return "".join(map(_print_element, path))


def _print_element(element: str) -> str:
    kind, _, text = element.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "v":
        return f"[={text}]"
    if kind != "k":
        return f"[{text}]"
    keys = orjson.loads(text)
    return f"[{','.join(f'{key}={orjson.dumps(keys[key]).decode()}' for key in sorted(keys))}]"


def share_fields(fields: FieldSet) -> FieldSet:
    """One shared object for equal sets.

    Objects created alike have equal sets; thousands of copies would fill the memory.
    """
    if len(_SHARED) >= _MAX_SHARED:
        _SHARED.clear()
    try:
        return _SHARED.setdefault(orjson.dumps(fields), fields)
    except orjson.JSONEncodeError:
        # Nested deeper than it writes.
        return fields


def is_field_set(value: object, depth: int = _MAX_DEPTH) -> bool:
    """Can it be read as a set? Clients may send what they like."""
    if not isinstance(value, dict) or depth == 0:
        return False
    return all(_is_element(key) and is_field_set(node, depth - 1) for key, node in value.items())


def _is_element(key: object) -> bool:
    if not isinstance(key, str):
        return False
    kind, colon, text = key.partition(":")
    if key == _SELF or (colon and kind == "f"):
        return True
    if not colon or kind not in ("k", "v", "i"):
        return False
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return kind != "k" or isinstance(read, dict)


class FieldComparison(NamedTuple):
    """What became of the fields of an object."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def collect_fields(value: JsonObject, form: Form) -> FieldSet:
    """The fields that an applied object claims."""
    return _collect(value, form) or {}


def _collect(value: Json, form: Form) -> FieldSet | None:
    if isinstance(value, dict) and (fields := _find_map(form)):
        return _collect_map(value, fields)
    if isinstance(value, list) and (items := _find_list(form)):
        return _collect_list(value, items)
    return LEAF


def _collect_map(value: JsonObject, form: MapForm) -> FieldSet | None:
    fields: FieldSet = {}
    for key, inner in value.items():
        declared = form.fields.get(key)
        node = _collect(inner, declared or form.others or DEDUCED)
        if inner is None or inner == {}:
            fields[f"f:{key}"] = LEAF
        elif declared is None:
            fields[f"f:{key}"] = mark_member(node)
        elif node is not None:
            fields[f"f:{key}"] = node
    return fields or None


def _collect_list(value: list[Json], form: ListForm) -> FieldSet | None:
    fields: FieldSet = {}
    for element, items in _index(value, form).items():
        twice = len(items) > 1
        fields[element] = LEAF if twice else mark_member(_collect(items[0], form.element))
    return fields or None


def name_element(item: Json, form: ListForm) -> str:
    """The identity of an element of a merged list, as fieldsV1 writes it."""
    if not form.keys:
        if item is None or isinstance(item, (dict, list)):
            raise EvaluationError("a set has an element that is no scalar")
        return f"v:{orjson.dumps(item).decode()}"
    if not isinstance(item, dict):
        raise EvaluationError("associative list with keys may not have non-map elements")
    keys = {key: item.get(key, default) for key, default in form.keys.items()}
    found = {key: value for key, value in keys.items() if value is not None}
    if not found:
        names = ", ".join(form.keys)
        raise EvaluationError(
            f"associative list has an element that omits all key fields ({names})"
        )
    return f"k:{orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()}"


def _index(value: list[Json], form: ListForm) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for item in value:
        found.setdefault(name_element(item, form), []).append(item)
    return found


def compare_fields(old: JsonObject, new: JsonObject, form: Form) -> FieldComparison:
    """What changed from `old` to `new`. Unlike what is claimed, it includes all parents."""
    comparison = FieldComparison({}, {}, {})
    if form.map is not None:
        _compare_maps(old, new, form.map, comparison)
    return comparison


def _compare_maps(old: JsonObject, new: JsonObject, form: MapForm, into: FieldComparison) -> None:
    fields, others = form.fields, form.others or DEDUCED
    for key, value in new.items():
        if key not in old:
            into.added[f"f:{key}"] = _list_all(value, fields.get(key, others))
            continue
        before = old[key]
        if before is not value and before != value:
            _compare(before, value, fields.get(key, others), into, f"f:{key}")
    for key, value in old.items():
        if key not in new:
            into.removed[f"f:{key}"] = _list_all(value, fields.get(key, others))


def _compare_lists(old: list[Json], new: list[Json], form: ListForm, into: FieldComparison) -> None:
    before, after = _index(old, form), _index(new, form)
    for element, items in after.items():
        held = before.get(element)
        if held is None:
            into.added[element] = _list_items(items, form)
        elif len(items) > 1 and len(held) > 1:
            if items != held:
                into.modified[element] = LEAF
        elif len(items) > 1 or len(held) > 1:
            # Duplicates have no owner: their fields are removed or added as a whole.
            into.removed[element] = _list_items(held, form)
            into.added[element] = _list_items(items, form)
        elif items != held:
            _compare(held[0], items[0], form.element, into, element)
    for element, items in before.items():
        if element not in after:
            into.removed[element] = _list_items(items, form)


def _compare(old: Json, new: Json, form: Form, into: FieldComparison, element: str) -> None:
    """Two values of one place that are not the same."""
    inner = FieldComparison({}, {}, {})
    # A null counts as empty, but null and empty differ.
    if (old or new) and _are(old, new, dict) and (fields := _find_map(form)):
        _compare_maps(old or {}, new or {}, fields, inner)
    elif (old or new) and _are(old, new, list) and (items := _find_list(form)):
        _compare_lists(old or [], new or [], items, inner)
    else:
        into.modified[element] = LEAF
        inner.removed.update(_without_self(_list_all(old, form)))
        inner.added.update(_without_self(_list_all(new, form)))
    for whole, part in zip(into, inner, strict=True):
        if part:
            whole[element] = part


def _are(old: Json, new: Json, kind: type) -> bool:
    return (old is None or isinstance(old, kind)) and (new is None or isinstance(new, kind))


def _list_all(value: Json, form: Form) -> FieldSet:
    """A place and all that is below it."""
    if isinstance(value, dict) and value and (shape := _find_map(form)):
        fields, others = shape.fields, shape.others or DEDUCED
        return mark_member(
            {f"f:{key}": _list_all(inner, fields.get(key, others)) for key, inner in value.items()}
        )
    if isinstance(value, list) and value and (items := _find_list(form)):
        found = _index(value, items).items()
        return mark_member({element: _list_items(same, items) for element, same in found})
    return LEAF


def _list_items(items: list[Json], form: ListForm) -> FieldSet:
    return LEAF if len(items) > 1 else _list_all(items[0], form.element)


def _without_self(node: FieldSet) -> FieldSet:
    return {key: inner for key, inner in node.items() if key != "."}


def add_named(fields: FieldSet, form: Form) -> FieldSet:
    """The set with all declared parents of its members, which no manager claims explicitly."""
    named: FieldSet = {}
    for element, node in fields.items():
        if element == ".":
            named[element] = node
            continue
        declared, inner = _descend(element, form)
        children = add_named(node, inner) if node else LEAF
        named[element] = mark_member(_without_self(children)) if declared else children
    return named


def _descend(element: str, form: Form) -> tuple[bool, Form]:
    if element.startswith("f:") and form.map is not None:
        declared = form.map.fields.get(element[2:])
        return declared is not None, declared or form.map.others or DEDUCED
    if form.list is not None:
        return False, form.list.element
    return False, DEDUCED


def remove_fields(value: JsonObject, fields: FieldSet, form: Form) -> JsonObject:
    """The object without the members of the set; what becomes empty by that goes too."""
    return _remove(value, fields, form) or {}


def _remove(value: Json, fields: FieldSet, form: Form) -> Json:
    if isinstance(value, dict) and value:
        shape = _find_map(form)
        return None if shape is None else _remove_from_map(value, fields, shape)
    if isinstance(value, list) and value:
        items = _find_list(form)
        return None if items is None else _remove_from_list(value, fields, items)
    return value


def _remove_from_map(value: JsonObject, fields: FieldSet, form: MapForm) -> JsonObject | None:
    rest: JsonObject = {}
    for key, inner in value.items():
        node = fields.get(f"f:{key}")
        if node is None:
            rest[key] = inner
        elif not is_member(node):
            kept = _remove(inner, node, form.fields.get(key) or form.others or DEDUCED)
            if kept is not None:
                rest[key] = kept
    return rest or None


def _remove_from_list(value: list[Json], fields: FieldSet, form: ListForm) -> list[Json] | None:
    rest: list[Json] = []
    for item in value:
        node = fields.get(name_element(item, form))
        if node is None:
            rest.append(item)
        elif not is_member(node):
            rest.append(_remove(item, node, form.element))
    return rest or None


def _find_map(form: Form) -> MapForm | None:
    """How its fields are merged; None where it is taken as a whole."""
    return None if form.map is None or form.map.is_atomic else form.map


def _find_list(form: Form) -> ListForm | None:
    return None if form.list is None or form.list.is_atomic else form.list
