"""Compares a resource with the signed manifest, leaf by leaf."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.lang.go_number import format_general, is_number
from lictor.core.raw import Json

# An element of a list, within a path, not at its end.
_INDEX = re.compile(r"\.[0-9]+\.")
# Far above any resource in a cluster: all paths together, and a bit for each.
_MAX_PATHS, _PATH_COST = 24 << 20, 200
_MAX_DEPTH = 500
_EXACT = 1 << 53
_REGISTRY, _TAG = "docker.io/", ":latest"


class SignedDifference(msgspec.Struct, frozen=True):
    """A leaf, by its dotted path; None if one side has none. `before` is the signed value."""

    key: str
    before: Json
    after: Json


def find_differences(manifest: Json, resource: Json) -> list[SignedDifference]:
    """The leaves that differ, by key.

    Three differences are ignored, as clusters cause them: moved list elements, an empty text
    instead of none, and an image's full name.
    """
    before, after = flatten(manifest), flatten(resource)
    plain: list[SignedDifference] = []
    other: list[SignedDifference] = []
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is not None and new is not None and _name_type(old) != _name_type(new):
            other.append(SignedDifference(key, _format_typed(old), _format_typed(new)))
        elif old != new:
            plain.append(SignedDifference(key, old, new))
    kept = [each for each in _drop_moved(plain) if not _is_harmless(each)]
    return sorted(kept + other, key=lambda each: each.key)


def flatten(body: Json) -> dict[str, Json]:
    """The leaves of a resource by their paths; null and empty values have none."""
    leaves: dict[str, Json] = {}
    left = _MAX_PATHS
    stack: list[tuple[str, Json, int]] = [("", body, 0)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, (dict, list)):
            left -= (len(path) + _PATH_COST) * len(value)
            if depth >= _MAX_DEPTH or left < 0:
                raise TooLargeError("too large, or nested too deeply, to be compared")
            stack.extend((_join(path, key), item, depth + 1) for key, item in _items(value))
        elif path in leaves:
            # `a.b` and `b` within `a`: it is unknown which of them was signed.
            raise EvaluationError(f"two fields have the path {path}")
        elif value is not None:
            leaves[path] = _settle(value)
    return leaves


def _items(value: Json) -> Iterable[tuple[Json, Json]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _join(path: str, key: Json) -> str:
    return f"{path}.{key}" if path else str(key)


def _settle(value: Json) -> Json:
    """All numbers are 64-bit floats in Go."""
    if isinstance(value, (str, bool)):
        return value
    if not is_number(value):
        raise EvaluationError(f"{type(value).__name__} is not JSON")
    if isinstance(value, int) and not -_EXACT <= value <= _EXACT:
        try:
            return float(value)
        except OverflowError:
            raise EvaluationError("a number is out of range") from None
    return value


def _name_type(value: Json) -> str:
    if isinstance(value, str):
        return "string"
    return "bool" if isinstance(value, bool) else "float64"


def _format_typed(value: Json) -> str:
    name = _name_type(value)
    if name == "string":
        return f"(type: string) {value}"
    text = str(value).lower() if name == "bool" else format_general(value)
    return f"(type: {name}) %!s({name}={text})"


def _drop_moved(items: list[SignedDifference]) -> Iterator[SignedDifference]:
    """Without leaves that only moved to another element of the same list."""
    gone = {_trace(each.key, each.before) for each in items if each.after is None}
    come = {_trace(each.key, each.after) for each in items if each.before is None}
    for each in items:
        if _INDEX.search(each.key):
            if each.after is None and _trace(each.key, each.before) in come:
                continue
            if each.before is None and _trace(each.key, each.after) in gone:
                continue
        yield each


def _trace(key: str, value: Json) -> tuple[str, str, Json]:
    return _INDEX.sub(".#.", key), _name_type(value), value


def _is_harmless(each: SignedDifference) -> bool:
    before, after = each.before, each.after
    if before is None or after is None:
        return "" in (before, after)
    if not each.key.endswith("image") or not isinstance(before, str):
        return False
    return after in (_REGISTRY + before, before + _TAG)
