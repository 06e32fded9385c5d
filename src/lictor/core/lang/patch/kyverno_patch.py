"""JSON Patch as Kyverno applies it: parents are created, and missing values may be removed."""

from collections.abc import Callable
from itertools import pairwise

from lictor.core.errors import CompileError, EvaluationError, TooLargeError
from lictor.core.lang.json_type import name_json_type
from lictor.core.lang.patch.json_patch import (
    PATCH_OPERATIONS,
    JsonPatchOperation,
    StrictPatch,
    check_copies,
    missing_path,
)
from lictor.core.lang.patch.pointer import (
    MISSING,
    PointerStep,
    find_position,
    follow,
    get_child,
    parse_pointer,
)
from lictor.core.raw import Json, JsonObject

Change = Callable[[Json], Json]
# Kyverno fills a list with null up to the index of `add`; a typo must not fill the memory.
_MAX_PADDING = 10_000


def parse_json_patch(text: str) -> list[Json]:
    """Parse `patchesJson6902`: JSON if it starts with `[`, YAML otherwise."""
    operations = _read_json(text) if text.startswith("[") else _read_yaml(text)
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise CompileError("a JSON patch must be a list of operations")
    return operations


def _read_json(text: str) -> Json:
    import orjson

    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise CompileError(f"the JSON patch is not valid JSON: {error}") from error


def _read_yaml(text: str) -> Json:
    # A circular import, which works in this order only.
    import lictor.core.lang.jmespath  # noqa: F401
    from lictor.core.lang.yaml.build import parse_yaml_text

    try:
        return parse_yaml_text(text)
    except ValueError as error:
        raise CompileError(f"failed to convert patchesJSON6902 to JSON: {error}") from error


def compile_json_patch(operations: Json) -> Change:
    """Compile the operations of a Kyverno policy to a function from document to document."""
    if not isinstance(operations, list):
        raise CompileError("a JSON patch must be a list of operations")
    compiled = [_compile_operation(at, operation) for at, operation in enumerate(operations, 1)]

    def patch(document: Json) -> Json:
        for at, operation in enumerate(compiled, 1):
            try:
                document = getattr(_LENIENT, operation.name)(document, operation)
            except EvaluationError as error:
                raise EvaluationError(f"operation {at}: {error}") from error
            except RecursionError as error:
                raise TooLargeError(f"operation {at}: nested too deeply") from error
        return check_copies(document, operations)

    return patch


def _compile_operation(at: int, operation: Json) -> JsonPatchOperation:
    if not isinstance(operation, dict):
        raise CompileError(f"operation {at}: an operation must be an object")
    name = operation.get("op")
    if not isinstance(name, str) or name not in PATCH_OPERATIONS:
        shown = repr(name) if isinstance(name, str) else name_json_type(name)
        raise CompileError(f"operation {at}: unsupported operation {shown}")
    if name in ("add", "replace") and "value" not in operation:
        message = "failed to decode 'value': operation is missing value field"
        raise CompileError(f"operation {at} ({name}): {message}")
    try:
        source = _read_path(operation, "from") if name in ("copy", "move") else ""
        path = _read_path(operation, "path")
        if name == "move" and not source:
            raise CompileError("unable to move entire document to another path")
    except CompileError as error:
        raise CompileError(f"operation {at} ({name}): {error.message}") from error
    # A test without value expects null, which also matches a missing value.
    return JsonPatchOperation(name, path, operation.get("value"), source)


def _read_path(operation: JsonObject, field: str) -> str:
    path = operation.get(field)
    if not isinstance(path, str):
        raise CompileError(f"failed to decode '{field}': operation is missing {field} field")
    parse_pointer(path)
    return path


class _LenientPatch(StrictPatch):
    """The operations as Kyverno applies them."""

    def add(self, document: Json, operation: JsonPatchOperation) -> Json:
        if not operation.path:
            return _check_document(operation)
        document = _make_parents(document, operation)
        return self._insert_at(document, operation, operation.value)

    def replace(self, document: Json, operation: JsonPatchOperation) -> Json:
        path = operation.path
        if not path:
            return _check_document(operation)
        steps = parse_pointer(path)
        if not steps or follow(document, steps) is MISSING:
            raise EvaluationError(
                f"replace operation does not apply: doc is missing key: {path}: missing value"
            )
        return super().replace(document, operation)

    def _remove_at(self, document: Json, operation: JsonPatchOperation, path: str) -> Json:
        steps = parse_pointer(path)
        parent = follow(document, steps[:-1]) if steps else MISSING
        if isinstance(parent, list) and steps[-1].index is None:
            raise EvaluationError(f"error in remove for path: '{path}': no index of a list")
        if parent is MISSING or get_child(parent, steps[-1]) is MISSING:
            return document
        return super()._remove_at(document, operation, path)

    def _take(self, document: Json, name: str, path: str) -> Json:
        steps = parse_pointer(path)
        value = follow(document, steps) if steps or not path else MISSING
        if value is MISSING:
            raise EvaluationError(
                f"{name} operation does not apply: doc is missing from path: {path}"
            )
        return value

    def _take_tested(self, document: Json, path: str) -> Json:
        steps = parse_pointer(path)
        parent = follow(document, steps[:-1]) if steps else MISSING
        if not isinstance(parent, (dict, list)):
            raise EvaluationError(
                f"test operation does not apply: is missing path: {path}: missing value"
            )
        found = get_child(parent, steps[-1])
        return None if found is MISSING and isinstance(parent, dict) else found

    def _insert_at(self, document: Json, operation: JsonPatchOperation, value: Json) -> Json:
        return super()._insert_at(document, operation, value) if operation.path else value

    def _no_index(self, name: str, path: str, step: PointerStep) -> EvaluationError:
        if step.index is None:
            return missing_path(name, path)
        return _invalid_index(step.index)


_LENIENT = _LenientPatch()


def _check_document(operation: JsonPatchOperation) -> Json:
    if not isinstance(operation.value, (dict, list)):
        raise EvaluationError(f"{operation.name} operation value must be object or array")
    return operation.value


def _make_parents(document: Json, operation: JsonPatchOperation) -> Json:
    """Create the missing maps and lists on a path, in a copy of the document."""
    steps = parse_pointer(operation.path)
    if not steps or not isinstance(document, (dict, list)):
        raise missing_path(operation.name, operation.path)
    root = node = document.copy()
    for step, following in pairwise(steps):
        child = get_child(node, step)
        if child is MISSING or child is None:
            child = _make_container(following)
            _insert_container(node, step, child, operation)
        elif isinstance(child, (dict, list)):
            child = child.copy()
            _assign(node, step, child)
        else:
            raise missing_path(operation.name, operation.path)
        node = child
    return root


def _assign(node: Json, step: PointerStep, child: Json) -> None:
    node[step.key if isinstance(node, dict) else step.index] = child


def _make_container(following: PointerStep) -> Json:
    """Create the next container: a list for an index or `-`, a map for a key."""
    if following.index is None:
        return [] if following.key == "-" else {}
    if following.index < -1:
        raise EvaluationError(
            "Unable to ensure path for negative index other than -1: "
            f"{following.index}: invalid index referenced"
        )
    return _pad([], following.index)


def _insert_container(
    node: Json, step: PointerStep, child: Json, operation: JsonPatchOperation
) -> None:
    if isinstance(node, dict):
        node[step.key] = child
        return
    if step.index is None:
        # Not even `-`: it is a position for a value, not for a parent.
        raise missing_path(operation.name, operation.path)
    position = find_position([None, *_pad(node, step.index)], step)
    if position is None:
        raise _invalid_index(step.index)
    node.insert(position, child)


def _pad(container: list[Json], length: int) -> list[Json]:
    if length > _MAX_PADDING:
        raise _invalid_index(length)
    container.extend([None] * (length - len(container)))
    return container


def _invalid_index(index: int) -> EvaluationError:
    return EvaluationError(f"Unable to access invalid index: {index}: invalid index referenced")
