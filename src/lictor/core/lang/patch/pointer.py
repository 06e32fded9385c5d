"""JSON Pointers (RFC 6901), strict equality of JSON, and diffs as JSON Patch."""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from lictor.core.errors import CompileError, EvaluationError, TooLargeError
from lictor.core.raw import Json, JsonObject


def diff(before: Json, after: Json) -> list[JsonObject]:
    """List the operations that turn `before` into `after`; none if they are equal."""
    try:
        return list(_compare(before, after, ""))
    except RecursionError as error:
        raise TooLargeError("the documents are nested too deeply to be compared") from error


def _compare(before: Json, after: Json, path: str) -> Iterator[JsonObject]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _compare_maps(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(before, after, path)
    elif not is_same(before, after):
        yield {"op": "replace", "path": path, "value": after}


def _compare_maps(before: JsonObject, after: JsonObject, path: str) -> Iterator[JsonObject]:
    for key, value in before.items():
        place = f"{path}/{escape_key(key)}"
        if key not in after:
            yield {"op": "remove", "path": place}
        else:
            yield from _compare(value, after[key], place)
    for key, value in after.items():
        if key not in before:
            yield {"op": "add", "path": f"{path}/{escape_key(key)}", "value": value}


def _compare_lists(before: list[Json], after: list[Json], path: str) -> Iterator[JsonObject]:
    """Keep equal ends; in between, change pair by pair, then remove or add the rest."""
    head = _count_same(before, after)
    tail = _count_same(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    pairs = min(len(old), len(new))
    for index in range(pairs):
        yield from _compare(old[index], new[index], f"{path}/{head + index}")
    for index in reversed(range(pairs, len(old))):
        yield {"op": "remove", "path": f"{path}/{head + index}"}
    for index in range(pairs, len(new)):
        yield {"op": "add", "path": f"{path}/{head + index}", "value": new[index]}


def _count_same(left: list[Json], right: list[Json]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if not is_same(one, other):
            break
        count += 1
    return count


def is_same(left: Json, right: Json) -> bool:
    """Compare by type and value; shared parts are equal without being compared."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            [is_same(value, right[key]) for key, value in left.items()]
        )
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(left == right)


# The API server's limit for copies by one patch.
MAX_COPY = 3 * 1024 * 1024
# The approximate overhead of an element.
_ELEMENT = 8


def check_copy(value: Json) -> Json:
    """The same value; raises TooLargeError if it is too large to copy."""
    left = MAX_COPY
    waiting = [value]
    while waiting:
        item = waiting.pop()
        left -= _ELEMENT
        if isinstance(item, str):
            left -= len(item)
        elif isinstance(item, dict):
            left -= sum(map(len, item))
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        if left < 0:
            raise TooLargeError("what a copy operation copies is too large")
    return value


# Nothing is nested deeper; each step can create a list.
_MAX_STEPS = 200
_INDEX = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

# A missing value; null is a value.
MISSING: Final = object()


class PointerStep(msgspec.Struct, frozen=True):
    """One step of a path: a key, and the index if it is a number."""

    key: str
    index: int | None


def parse_pointer(text: str) -> tuple[PointerStep, ...]:
    """Parse a pointer to steps. Like Kyverno, this ignores the text before the first slash."""
    if text.count("/") > _MAX_STEPS:
        raise CompileError(f"a path of more than {_MAX_STEPS} steps is too long")
    return tuple([_parse_step(part) for part in text.split("/")[1:]])


def _parse_step(part: str) -> PointerStep:
    index = int(part) if _INDEX.fullmatch(part) else None
    return PointerStep(part.replace("~1", "/").replace("~0", "~"), index)


def escape_key(key: Json) -> str:
    """Escape a key as a segment of a pointer."""
    if not isinstance(key, str):
        raise EvaluationError(f"{key!r} cannot be the key of a JSON object")
    return key.replace("~", "~0").replace("/", "~1")


def find_position(values: list[Json], step: PointerStep) -> int | None:
    """The position of an existing element; negative indices count from the end."""
    index = step.index
    if index is None or not -len(values) <= index < len(values):
        return None
    return index % len(values)


def get_child(container: Json, step: PointerStep) -> Json:
    """Go one step down; MISSING if there is nothing."""
    if isinstance(container, dict):
        return container.get(step.key, MISSING)
    if isinstance(container, list):
        position = find_position(container, step)
        return MISSING if position is None else container[position]
    return MISSING


def follow(document: Json, steps: tuple[PointerStep, ...]) -> Json:
    """Go all steps down; MISSING if there is nothing."""
    for step in steps:
        document = get_child(document, step)
        if document is MISSING:
            return MISSING
    return document


def rebuild(
    document: Json, steps: tuple[PointerStep, ...], act: Callable[[Json, PointerStep], None]
) -> Json:
    """Copy the maps and lists on the path, and let `act` change the copy of the last one."""
    root = node = document.copy()
    for step in steps[:-1]:
        child = get_child(node, step).copy()
        node[step.key if isinstance(node, dict) else step.index] = child
        node = child
    act(node, steps[-1])
    return root
