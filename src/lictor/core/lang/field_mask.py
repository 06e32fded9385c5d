"""Selects parts of an object by dotted paths, which pass through arrays."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lictor.core.errors import FunctionError
from lictor.core.raw import Json, JsonObject

MaskObject: TypeAlias = Callable[[JsonObject], JsonObject]
# Names to the selection below them; None: everything.
_Tree: TypeAlias = "dict[str, _Tree | None]"

# What identifies an object: always kept in items of a list.
ALWAYS_LISTED = (
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.labels",
    "metadata.annotations",
)

_MOST_PATHS = 100
_LONGEST_PATH = 512
_MOST_PARTS = 32


def compile_field_mask(paths: Iterable[str], *, always: Iterable[str] = ()) -> MaskObject:
    """A copy of an object with these paths only, and those that are always kept.

    Raises FunctionError for an invalid path. Missing fields are omitted.
    """
    wanted = tuple(paths)
    if len(wanted) > _MOST_PATHS:
        raise FunctionError(f"{len(wanted)} field masks are more than {_MOST_PATHS}")
    tree: _Tree = {}
    for path in (*wanted, *always):
        _add(tree, path)
    return lambda found: _take(found, tree)


def _add(tree: _Tree, path: str) -> None:
    parts = path.split(".")
    if len(path) > _LONGEST_PATH or len(parts) > _MOST_PARTS or not all(parts):
        raise FunctionError(f"{path[:100]!r} is no field mask: names with dots between are")
    below: _Tree = tree
    for part in parts[:-1]:
        next_below = below.setdefault(part, {})
        if next_below is None:
            # Everything is selected already.
            return
        below = next_below
    below[parts[-1]] = None


def _take(found: JsonObject, tree: _Tree) -> JsonObject:
    return {
        name: found[name] if below is None else _take_value(found[name], below)
        for name, below in tree.items()
        if name in found and (below is None or isinstance(found[name], dict | list))
    }


def _take_value(value: Json, tree: _Tree) -> Json:
    if isinstance(value, list):
        return [_take_value(item, tree) for item in value if isinstance(item, dict | list)]
    return _take(value, tree)
