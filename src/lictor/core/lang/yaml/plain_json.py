"""Plain JSON by the rules of Kubernetes' YAML reader: its numbers, and how deep it may nest.

Nothing here loads libyaml: most of what is read needs it not, and start-up counts.
"""

from collections.abc import Iterable
from operator import is_not
from typing import Final

from lictor.core.lang.yaml.scalars import settle
from lictor.core.raw import Json

# Deeper than anything that Kubernetes takes, and shallow enough for plain recursion.
MAX_DEPTH: Final = 200


class YamlFault(Exception):  # noqa: N818  (never leaves this room: it becomes a LoadError with a file)
    """Something wrong at a line and column of one document, counted from zero."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def settle_json(value: Json) -> Json:
    """JSON with its numbers as Kubernetes' YAML reader holds them; `check_depth` comes first.

    Where there is nothing to change, the same object: most odd numbers are versions in texts.
    """
    if isinstance(value, dict):
        made = {key: settle_json(item) for key, item in value.items()}
        return made if any(made[key] is not item for key, item in value.items()) else value
    if isinstance(value, list):
        items = [settle_json(item) for item in value]
        return items if any(map(is_not, items, value)) else value
    return settle(value)


def check_depth(value: Json, most: int = MAX_DEPTH) -> None:
    """Raise YamlFault for JSON that is nested too deep to walk."""
    level = [value]
    for _ in range(most + 1):
        level = [item for holder in level for item in _contents(holder)]
        if not level:
            return
    raise YamlFault(f"nested deeper than {most} levels")


def cut_depth(value: Json, levels: int) -> None:
    """Empty, in place, the holders that are as many levels below this one."""
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
