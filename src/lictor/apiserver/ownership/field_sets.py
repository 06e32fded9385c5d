"""Sets of fields of an object, in the very form in which `fieldsV1` of managedFields keeps them.

A set is a tree: `f:name` a field, `k:{...}` an element of a list by its keys, `v:...` one by its
value. A node without children is a member, one with children is a member where it has a `.` too.
Sets share their parts, so none is ever changed once it is made.
"""

from collections.abc import Iterator
from typing import TypeAlias

import orjson

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
    """All places in the set, in the order in which Kubernetes tells them."""
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
    """The same set, and the very same object for all who ask with an equal one.

    Objects that are made alike have owners alike; thousands of them shall not fill the memory.
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
