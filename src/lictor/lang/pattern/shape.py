"""Is this document fit to be read as a pattern at all?"""

from lictor.errors import CompileError
from lictor.raw import Json

MAX_DEPTH = 100
_LEAVES = (str, int, float, type(None))


def check_shape(document: Json) -> None:
    """Raise CompileError for keys that are no texts, values that are no JSON, and bottomless nests.

    All that follows may then recurse without fear.
    """
    level, depth = [document], 0
    while level:
        if depth > MAX_DEPTH:
            raise CompileError(f"the pattern is nested more than {MAX_DEPTH} levels deep")
        level = [child for node in level for child in _list_children(node)]
        depth += 1


def _list_children(node: Json) -> list[Json]:
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str):
                raise CompileError(f"the key {key!r} of a pattern is not a text")
        return list(node.values())
    if isinstance(node, list):
        return node
    if not isinstance(node, _LEAVES):
        raise CompileError(f"a pattern cannot hold a value of type {type(node).__name__}")
    return []
