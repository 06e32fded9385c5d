"""JSON Patch (RFC 6902) as the API server applies it.

Beyond the RFC, negative indices count from the end, `replace` adds a key that is missing, and the
copy of a missing key is null. `kyverno_patch` has the more lenient patches of Kyverno.
"""

import msgspec

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

PATCH_OPERATIONS = frozenset(("add", "copy", "move", "remove", "replace", "test"))


class JsonPatchOperation(msgspec.Struct, frozen=True):
    """One operation; `source` is its `from`."""

    name: str
    path: str
    value: Json
    source: str = ""


class _TestFailedError(EvaluationError):
    """A value is not the expected one; the API server then leaves out the whole patch."""


def apply_json_patch(
    document: JsonObject, operations: list[Json], *, must_pass_tests: bool = False
) -> Json:
    """Apply the operations in order as the API server does; none of them if a test fails.

    A failed test is an error only if all must pass, as for clients that send patches.
    """
    patched: Json = document
    try:
        for raw in operations:
            operation = _read_strictly(raw)
            patched = getattr(_STRICT, operation.name)(patched, operation)
    except _TestFailedError:
        if must_pass_tests:
            raise
        return document
    except RecursionError as error:
        raise TooLargeError("the document is nested too deeply to be patched") from error
    return check_copies(patched, operations)


def check_copies(patched: Json, operations: list[Json]) -> Json:
    """One copy is bounded; many copies of one value are small until they are serialized."""
    copies = any(isinstance(each, dict) and each.get("op") == "copy" for each in operations)
    return check_written(patched) if copies else patched


def _read_strictly(raw: Json) -> JsonPatchOperation:
    if not isinstance(raw, dict):
        raise EvaluationError("an operation must be an object")
    name = _read_text(raw, "op")
    if name not in PATCH_OPERATIONS:
        raise EvaluationError(f"Unexpected kind: {name}")
    source = _read_text(raw, "from") if name in ("copy", "move") else ""
    return JsonPatchOperation(name, _read_text(raw, "path"), raw.get("value"), source)


def _read_text(operation: JsonObject, field: str) -> str:
    value = operation.get(field, "")
    if not isinstance(value, str):
        raise EvaluationError(f"'{field}' of an operation must be text")
    return value


class StrictPatch:
    """The operations as the API server applies them."""

    def add(self, document: Json, operation: JsonPatchOperation) -> Json:
        if not operation.path:
            return operation.value
        return self._insert_at(document, operation, operation.value)

    def replace(self, document: Json, operation: JsonPatchOperation) -> Json:
        if not operation.path:
            return operation.value
        steps = self._find_parent(document, operation.name, operation.path)

        def put(parent: Json, step: PointerStep) -> None:
            position = self._position(parent, step, operation.name, operation.path)
            parent[position] = operation.value

        return rebuild(document, steps, put)

    def remove(self, document: Json, operation: JsonPatchOperation) -> Json:
        return self._remove_at(document, operation, operation.path)

    def move(self, document: Json, operation: JsonPatchOperation) -> Json:
        value = self._take(document, operation.name, operation.source)
        document = self._remove_at(document, operation, operation.source)
        return self._insert_at(document, operation, value)

    def copy(self, document: Json, operation: JsonPatchOperation) -> Json:
        value = check_copy(self._take(document, operation.name, operation.source))
        return self._insert_at(document, operation, value)

    def test(self, document: Json, operation: JsonPatchOperation) -> Json:
        path = operation.path
        found = self._take_tested(document, path) if path else document
        if not is_same(found, operation.value):
            raise _TestFailedError(f"testing value {path} failed: test failed")
        return document

    def _take_tested(self, document: Json, path: str) -> Json:
        return self._take(document, "test", path)

    def _find_parent(self, document: Json, name: str, path: str) -> tuple[PointerStep, ...]:
        """The steps of a path, of which all but the last must exist."""
        steps = parse_pointer(path)
        parent = follow(document, steps[:-1]) if steps else MISSING
        if not isinstance(parent, (dict, list)):
            raise missing_path(name, path)
        return steps

    def _take(self, document: Json, name: str, path: str) -> Json:
        """The value at a path; null for a missing key."""
        steps = self._find_parent(document, name, path)
        parent = follow(document, steps[:-1])
        found = get_child(parent, steps[-1])
        if found is not MISSING:
            return found
        if isinstance(parent, list):
            raise self._no_index(name, path, steps[-1])
        return None

    def _insert_at(self, document: Json, operation: JsonPatchOperation, value: Json) -> Json:
        steps = self._find_parent(document, operation.name, operation.path)

        def insert(parent: Json, step: PointerStep) -> None:
            if isinstance(parent, dict):
                parent[step.key] = value
            elif step.key == "-":
                parent.append(value)
            else:
                # One more position than there are elements: after the last.
                gaps = [None, *parent]
                position = self._position(gaps, step, operation.name, operation.path)
                parent.insert(position, value)

        return rebuild(document, steps, insert)

    def _remove_at(self, document: Json, operation: JsonPatchOperation, path: str) -> Json:
        steps = self._find_parent(document, operation.name, path)

        def remove(parent: Json, step: PointerStep) -> None:
            if isinstance(parent, dict) and step.key not in parent:
                raise EvaluationError(
                    f"error in {operation.name} for path: '{path}': "
                    f"Unable to remove nonexistent key: {step.key}: missing value"
                )
            del parent[self._position(parent, step, operation.name, path)]

        return rebuild(document, steps, remove)

    def _position(self, parent: Json, step: PointerStep, name: str, path: str) -> Json:
        """The key of a map, or the position in a list."""
        position = step.key if isinstance(parent, dict) else find_position(parent, step)
        if position is None:
            raise self._no_index(name, path, step)
        return position

    def _no_index(self, name: str, path: str, step: PointerStep) -> EvaluationError:
        return EvaluationError(
            f"error in {name} for path: '{path}': "
            f"Unable to access invalid index: {step.key}: invalid index referenced"
        )


def missing_path(name: str, path: str) -> EvaluationError:
    """The error for a path whose parent does not exist."""
    return EvaluationError(
        f'{name} operation does not apply: doc is missing path: "{path}": missing value'
    )


_STRICT = StrictPatch()
