"""JSON Patch (RFC 6902) as Kyverno applies it.

Beyond the RFC: negative indices count from the end, `add` creates missing parents, and removing a
missing value is no error.
"""

from collections.abc import Callable
from itertools import pairwise

from lictor.core.errors import CompileError, EvaluationError, TooLargeError
from lictor.core.lang.json_type import name_json_type
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

Change = Callable[[Json], Json]
Steps = tuple[PointerStep, ...]

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
    """Compile a list of operations to a function from document to patched document."""
    if not isinstance(operations, list):
        raise CompileError("a JSON patch must be a list of operations")
    changes = [_compile_operation(at, operation) for at, operation in enumerate(operations, 1)]
    copies = any(operation["op"] == "copy" for operation in operations)

    def patch(document: Json) -> Json:
        for at, change in enumerate(changes, 1):
            try:
                document = change(document)
            except EvaluationError as error:
                raise EvaluationError(f"operation {at}: {error}") from error
            except RecursionError as error:
                raise TooLargeError(f"operation {at}: nested too deeply") from error
        return check_written(document) if copies else document

    return patch


def _compile_operation(at: int, operation: Json) -> Change:
    if not isinstance(operation, dict):
        raise CompileError(f"operation {at}: an operation must be an object")
    name = operation.get("op")
    build = _OPERATIONS.get(name) if isinstance(name, str) else None
    if build is None:
        shown = repr(name) if isinstance(name, str) else name_json_type(name)
        raise CompileError(f"operation {at}: unsupported operation {shown}")
    try:
        return build(operation)
    except CompileError as error:
        raise CompileError(f"operation {at} ({name}): {error.message}") from error


def _take_path(operation: JsonObject, field: str) -> str:
    path = operation.get(field)
    if not isinstance(path, str):
        raise CompileError(f"failed to decode '{field}': operation is missing {field} field")
    return path


def _take_value(operation: JsonObject) -> Json:
    if "value" not in operation:
        raise CompileError("failed to decode 'value': operation is missing value field")
    return operation["value"]


def _build_add(operation: JsonObject) -> Change:
    value, path = _take_value(operation), _take_path(operation, "path")
    if not path:
        return _build_new_document("add", value)
    return _place("add", path, value, makes_way=True)


def _build_new_document(name: str, value: Json) -> Change:
    def change(_: Json) -> Json:
        if not isinstance(value, (dict, list)):
            raise EvaluationError(f"{name} operation value must be object or array")
        return value

    return change


def _build_remove(operation: JsonObject) -> Change:
    path = _take_path(operation, "path")
    steps = parse_pointer(path)

    def change(document: Json) -> Json:
        parent = follow(document, steps[:-1]) if steps else MISSING
        if isinstance(parent, list) and steps[-1].index is None:
            raise EvaluationError(f"error in remove for path: '{path}': no index of a list")
        if get_child(parent, steps[-1] if steps else _NOWHERE) is MISSING:
            return document
        return rebuild(document, steps, _drop)

    return change


def _build_replace(operation: JsonObject) -> Change:
    value, path = _take_value(operation), _take_path(operation, "path")
    if not path:
        return _build_new_document("replace", value)
    steps = parse_pointer(path)

    def change(document: Json) -> Json:
        if not steps or follow(document, steps) is MISSING:
            raise EvaluationError(
                f"replace operation does not apply: doc is missing key: {path}: missing value"
            )
        return rebuild(document, steps, lambda parent, step: _assign(parent, step, value))

    return change


def _build_move(operation: JsonObject) -> Change:
    source, path = _take_path(operation, "from"), _take_path(operation, "path")
    if not source:
        raise CompileError("unable to move entire document to another path")
    take = _build_take("move", source)
    remove = _build_remove({"path": source})

    def change(document: Json) -> Json:
        value = take(document)
        return _place("move", path, value, makes_way=False)(remove(document))

    return change


def _build_copy(operation: JsonObject) -> Change:
    source, path = _take_path(operation, "from"), _take_path(operation, "path")
    take = _build_take("copy", source)

    def change(document: Json) -> Json:
        value = check_copy(take(document))
        return _place("copy", path, value, makes_way=False)(document)

    return change


def _build_take(name: str, source: str) -> Change:
    steps = parse_pointer(source)

    def take(document: Json) -> Json:
        value = follow(document, steps) if steps or not source else MISSING
        if value is MISSING:
            raise EvaluationError(
                f"{name} operation does not apply: doc is missing from path: {source}"
            )
        return value

    return take


def _build_test(operation: JsonObject) -> Change:
    # A test without value expects null, which also matches a missing value.
    value, path = operation.get("value"), _take_path(operation, "path")
    steps = parse_pointer(path)

    def change(document: Json) -> Json:
        found = document
        if path:
            parent = follow(document, steps[:-1]) if steps else MISSING
            if not isinstance(parent, (dict, list)):
                raise EvaluationError(
                    f"test operation does not apply: is missing path: {path}: missing value"
                )
            found = get_child(parent, steps[-1])
            found = None if found is MISSING and isinstance(parent, dict) else found
        if not is_same(found, value):
            raise EvaluationError(f"testing value {path} failed: test failed")
        return document

    return change


_NOWHERE = PointerStep("", None)
_OPERATIONS: dict[str, Callable[[JsonObject], Change]] = {
    "add": _build_add,
    "remove": _build_remove,
    "replace": _build_replace,
    "move": _build_move,
    "copy": _build_copy,
    "test": _build_test,
}


def _assign(container: Json, step: PointerStep, value: Json) -> None:
    if isinstance(container, dict):
        container[step.key] = value
    else:
        container[step.index] = value


def _drop(container: Json, step: PointerStep) -> None:
    del container[step.key if isinstance(container, dict) else step.index]


def _place(name: str, path: str, value: Json, *, makes_way: bool) -> Change:
    """Add a value: set a key, or insert into a list."""
    steps = parse_pointer(path)

    def change(document: Json) -> Json:
        if not path:
            return value
        try:
            return _walk_and_insert(document, steps, value, makes_way=makes_way)
        except LookupError as error:
            raise EvaluationError(
                f'{name} operation does not apply: doc is missing path: "{path}": missing value'
            ) from error

    return change


def _walk_and_insert(document: Json, steps: Steps, value: Json, *, makes_way: bool) -> Json:
    if not steps or not isinstance(document, (dict, list)):
        raise LookupError
    root = node = document.copy()
    for step, following in pairwise(steps):
        child = get_child(node, step)
        if makes_way and (child is MISSING or child is None):
            child = _make_container(following)
            _make_room(node, step)
            _insert(node, step, child)
        elif isinstance(child, (dict, list)):
            child = child.copy()
            _assign(node, step, child)
        else:
            raise LookupError
        node = child
    _insert(node, steps[-1], value)
    return root


def _make_container(following: PointerStep) -> Json:
    """Create the next container: a list for an index or `-`, a map for a key."""
    if following.index is None:
        return [] if following.key == "-" else {}
    if following.index < -1:
        raise EvaluationError(
            "Unable to ensure path for negative index other than -1: "
            f"{following.index}: invalid index referenced"
        )
    container: list[Json] = []
    _pad(container, following.index)
    return container


def _make_room(container: Json, step: PointerStep) -> None:
    if isinstance(container, list):
        if step.index is None:
            # Not even `-`: it is a position for a value, not for a parent.
            raise LookupError
        _pad(container, step.index)


def _pad(container: list[Json], length: int) -> None:
    if length > _MAX_PADDING:
        raise EvaluationError(f"Unable to access invalid index: {length}: invalid index referenced")
    container.extend([None] * (length - len(container)))


def _insert(container: Json, step: PointerStep, value: Json) -> None:
    if isinstance(container, dict):
        container[step.key] = value
    elif step.key == "-":
        container.append(value)
    elif step.index is None:
        raise LookupError
    else:
        container.insert(_find_gap(container, step), value)


def _find_gap(container: list[Json], step: PointerStep) -> int:
    gaps = [None] * (len(container) + 1)
    position = find_position(gaps, step)
    if position is None:
        raise EvaluationError(
            f"Unable to access invalid index: {step.index}: invalid index referenced"
        )
    return position
