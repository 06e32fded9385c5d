"""Plain JSON by the rules of Kubernetes' YAML parser: its numbers and its nesting limit.

Nothing here imports libyaml: most input does not need it, and start-up time matters.
"""

from collections.abc import Iterable
from operator import is_not
from typing import Final

from lictor.core.lang.yaml.scalars import settle
from lictor.core.raw import Json

# Deeper than anything that Kubernetes accepts, and shallow enough for recursion.
MAX_DEPTH: Final = 200
_HOLDERS: Final = (dict, list)


class YamlFault(Exception):  # noqa: N818  (becomes a LoadError with a file)
    """An error at a line and column of one document, counted from zero."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def settle_json(value: Json) -> Json:
    """JSON with numbers as in Kubernetes' YAML parser; `check_depth` comes first.

    Returns the same object if nothing changes: most odd numbers are versions in texts.
    """
    if isinstance(value, dict):
        made = {key: settle_json(item) for key, item in value.items()}
        return made if any(made[key] is not item for key, item in value.items()) else value
    if isinstance(value, list):
        items = [settle_json(item) for item in value]
        return items if any(map(is_not, items, value)) else value
    return settle(value)


def check_depth(value: Json, most: int = MAX_DEPTH) -> None:
    """Raise YamlFault for JSON that is nested too deeply for recursion."""
    level = [value] if isinstance(value, _HOLDERS) else []
    for _ in range(most):
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(item, _HOLDERS)
        ]
        if not level:
            return
    if not any(level):
        return
    raise YamlFault(f"nested deeper than {most} levels")


def cut_depth(value: Json, levels: int) -> None:
    """Empty, in place, the containers that are this many levels deep."""
    level = [value]
    for _ in range(levels):
        level = [item for holder in level for item in _contents(holder)]
        if not level:
            return
    for holder in level:
        if isinstance(holder, (dict, list)):
            holder.clear()


def _contents(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
