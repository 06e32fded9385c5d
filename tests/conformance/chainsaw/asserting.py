"""Operations that look: assert waits until an object is as told, error until none is."""

import time
from typing import Any

from chainsaw.api import key_of
from chainsaw.case import Object
from chainsaw.expressions import Bindings, fill, find_mismatches
from chainsaw.surroundings import POLL, OperationFailedError, Surroundings
from chainsaw.writing import read_objects_like

_SHOWN = 4


def assert_objects(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Wait until some object fits each tree."""
    for tree in at.read_bodies(operation, bindings):
        _assert_one(at, operation, bindings, _resolve(at, operation, bindings, tree))
    return {}


def _assert_one(at: Surroundings, operation: Object, bindings: Bindings, tree: Object) -> None:
    deadline = at.deadline("assert", operation)
    while True:
        time.sleep(POLL)
        nearest = _find_nearest(at, bindings, tree)
        if nearest is None:
            return
        if time.monotonic() > deadline:
            raise OperationFailedError(nearest)


def _find_nearest(at: Surroundings, bindings: Bindings, tree: Object) -> str | None:
    """What is wrong with the object that fits best; None where one fits."""
    if not _names_kind(tree):
        wrong = find_mismatches(tree, None, bindings)
        return _show("", wrong) if wrong else None
    nearest: tuple[str, list[str]] | None = None
    for candidate in read_objects_like(at, tree):
        wrong = find_mismatches(tree, candidate, bindings)
        if not wrong:
            return None
        if nearest is None or len(wrong) < len(nearest[1]):
            nearest = str(key_of(candidate)), wrong
    return _show(*nearest) if nearest else f"{key_of(tree)}: not found"


def _show(name: str, wrong: list[str]) -> str:
    more = f" (and {len(wrong) - _SHOWN} more)" if len(wrong) > _SHOWN else ""
    return f"{name}: {'; '.join(wrong[:_SHOWN])}{more}"


def refuse_objects(at: Surroundings, operation: Object, bindings: Bindings) -> dict[str, Any]:
    """Wait until no object fits any of the trees."""
    for given in at.read_bodies(operation, bindings):
        tree = _resolve(at, operation, bindings, given)
        deadline = at.deadline("error", operation)
        while True:
            time.sleep(POLL)
            found = _find_fitting(at, bindings, tree)
            if found is None:
                break
            if time.monotonic() > deadline:
                raise OperationFailedError(f"{found}: there is an object as there should be none")
    return {}


def _find_fitting(at: Surroundings, bindings: Bindings, tree: Object) -> str | None:
    if not _names_kind(tree):
        return None if find_mismatches(tree, None, bindings) else "the expression"
    for candidate in read_objects_like(at, tree):
        if not find_mismatches(tree, candidate, bindings):
            return str(key_of(candidate))
    return None


def _names_kind(tree: Object) -> bool:
    return bool(tree.get("apiVersion") and tree.get("kind"))


def _resolve(at: Surroundings, operation: Object, bindings: Bindings, tree: Object) -> Object:
    """The tree with what says which objects are meant filled in; the rest stays a tree."""
    if not _names_kind(tree):
        return tree
    if at.fills(operation):
        metadata = dict(tree.get("metadata") or {})
        for name in ("name", "namespace", "labels"):
            value = metadata.get(name)
            if isinstance(value, str):
                metadata[name] = fill(value, bindings)
            elif name == "labels" and isinstance(value, dict):
                metadata[name] = {
                    key: fill(item, bindings) if isinstance(item, str) else item
                    for key, item in value.items()
                }
        tree = {**tree, "metadata": metadata} if metadata else tree
    return at.place(tree)
