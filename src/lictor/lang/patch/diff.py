"""What must change to make one JSON document another: the operations of a JSON Patch (RFC 6902)."""

from collections.abc import Iterator

from lictor.errors import TooLargeError
from lictor.lang.patch.pointer import escape_key
from lictor.lang.patch.sameness import is_same
from lictor.raw import Json, JsonObject


def diff(before: Json, after: Json) -> list[JsonObject]:
    """List the operations that turn `before` into `after`; none where they are the same."""
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
    """Leave equal ends alone; in between, change pair by pair, then remove or add the rest."""
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
