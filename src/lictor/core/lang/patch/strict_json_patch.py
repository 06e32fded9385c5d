"""JSON Patch as the API server applies it: missing values cannot be removed or traversed.

Beyond the RFC: negative indices count from the end, `replace` may add a key, and a copy of a
missing key is null. For Kyverno's more lenient patches see `json_patch`.
"""

from collections.abc import Callable

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.lang.patch.pointer import (
    MISSING,
    PointerStep,
    check_copy,
    find_position,
    follow,
    get_child,
    is_same,
    parse_pointer,
    rebuild,
)
from lictor.core.lang.written_size import check_written
from lictor.core.raw import Json, JsonObject

Steps = tuple[PointerStep, ...]


class _TestFailed(Exception):  # noqa: N818  (no error: the patch is then left out as a whole)
    pass


def apply_json_patch(
    document: JsonObject, operations: list[Json], *, must_pass_tests: bool = False
) -> Json:
    """Apply the operations in order; none of them if a test among them fails.

    A failed test is an error only if all must pass, as for clients that send patches.
    """
    patched: Json = document
    try:
        for operation in operations:
            patched = _apply(patched, operation)
    except _TestFailed as failure:
        if must_pass_tests:
            raise EvaluationError(f"testing value {failure} failed: test failed") from failure
        return document
    except RecursionError as error:
        raise TooLargeError("the document is nested too deeply to be patched") from error
    # One copy is bounded; many copies of one value are small until they are serialized.
    return check_written(patched) if any(map(_is_copy, operations)) else patched


def _is_copy(operation: Json) -> bool:
    return isinstance(operation, dict) and operation.get("op") == "copy"


def _apply(document: Json, operation: Json) -> Json:
    if not isinstance(operation, dict):
        raise EvaluationError("an operation must be an object")
    act = _OPERATIONS.get(_text(operation, "op"))
    if act is None:
        raise EvaluationError(f"Unexpected kind: {_text(operation, 'op')}")
    return act(document, operation)


def _text(operation: JsonObject, field: str) -> str:
    value = operation.get(field, "")
    if not isinstance(value, str):
        raise EvaluationError(f"'{field}' of an operation must be text")
    return value


def _add(document: Json, operation: JsonObject) -> Json:
    path = _text(operation, "path")
    value = operation.get("value")
    return value if not path else _insert_at(document, "add", path, value)


def _replace(document: Json, operation: JsonObject) -> Json:
    path = _text(operation, "path")
    value = operation.get("value")
    if not path:
        return value
    steps = _find_parent(document, "replace", path)

    def put(parent: Json, step: PointerStep) -> None:
        parent[_position(parent, step, "replace", path)] = value

    return rebuild(document, steps, put)


def _remove(document: Json, operation: JsonObject) -> Json:
    return _remove_at(document, "remove", _text(operation, "path"))


def _move(document: Json, operation: JsonObject) -> Json:
    source, path = _text(operation, "from"), _text(operation, "path")
    value = _take(document, "move", source)
    return _insert_at(_remove_at(document, "move", source), "move", path, value)


def _copy(document: Json, operation: JsonObject) -> Json:
    value = check_copy(_take(document, "copy", _text(operation, "from")))
    return _insert_at(document, "copy", _text(operation, "path"), value)


def _test(document: Json, operation: JsonObject) -> Json:
    path = _text(operation, "path")
    found = _take(document, "test", path) if path else document
    if not is_same(found, operation.get("value")):
        raise _TestFailed(path)
    return document


_OPERATIONS: dict[str, Callable[[Json, JsonObject], Json]] = {
    "add": _add,
    "copy": _copy,
    "move": _move,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
}


def _find_parent(document: Json, name: str, path: str) -> Steps:
    """The steps of a path, of which all but the last must exist."""
    steps = parse_pointer(path)
    parent = follow(document, steps[:-1]) if steps else MISSING
    if not isinstance(parent, (dict, list)):
        raise EvaluationError(
            f'{name} operation does not apply: doc is missing path: "{path}": missing value'
        )
    return steps


def _take(document: Json, name: str, path: str) -> Json:
    """The value at a path; null for a missing key."""
    steps = _find_parent(document, name, path)
    parent = follow(document, steps[:-1])
    found = get_child(parent, steps[-1])
    if found is not MISSING:
        return found
    if isinstance(parent, list):
        raise _no_index(name, path, steps[-1])
    return None


def _insert_at(document: Json, name: str, path: str, value: Json) -> Json:
    steps = _find_parent(document, name, path)

    def insert(parent: Json, step: PointerStep) -> None:
        if isinstance(parent, dict):
            parent[step.key] = value
        elif step.key == "-":
            parent.append(value)
        else:
            # One more position than there are elements: after the last.
            position = find_position([None] * (len(parent) + 1), step)
            if position is None:
                raise _no_index(name, path, step)
            parent.insert(position, value)

    return rebuild(document, steps, insert)


def _remove_at(document: Json, name: str, path: str) -> Json:
    steps = _find_parent(document, name, path)

    def remove(parent: Json, step: PointerStep) -> None:
        if isinstance(parent, dict) and step.key not in parent:
            raise EvaluationError(
                f"error in {name} for path: '{path}': "
                f"Unable to remove nonexistent key: {step.key}: missing value"
            )
        del parent[_position(parent, step, name, path)]

    return rebuild(document, steps, remove)


def _position(parent: Json, step: PointerStep, name: str, path: str) -> str | int:
    if isinstance(parent, dict):
        return step.key
    position = find_position(parent, step)
    if position is None:
        raise _no_index(name, path, step)
    return position


def _no_index(name: str, path: str, step: PointerStep) -> EvaluationError:
    return EvaluationError(
        f"error in {name} for path: '{path}': "
        f"Unable to access invalid index: {step.key}: invalid index referenced"
    )
