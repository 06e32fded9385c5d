"""Builtins over arrays, objects and sets: patches, subsets, graphs, JSON."""

from collections.abc import Callable
from typing import TypeAlias

import orjson

from lictor.core.errors import FunctionError
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.rego.operands import (
    BuiltinRun,
    Function,
    Functions,
    name_type,
    take_array,
    take_bool,
    take_elements,
    take_object,
    take_text,
)
from lictor.core.lang.rego.values import (
    RegoSet,
    RegoValue,
    is_equal,
    is_object,
    list_pairs,
    make_object,
    sort_key,
    to_json,
)

_MOST_ELEMENTS = 1_000_000
_CHECK_EVERY = 4096


def _marshal(run: BuiltinRun, arguments: list[RegoValue]) -> str:
    """JSON with line breaks, depending on the options."""
    options = take_object(arguments[1])
    unknown = set(options) - {"prefix", "indent", "pretty"}
    if unknown:
        raise FunctionError(f"object contained unknown key {min(unknown)}")
    prefix = take_text(options.get("prefix", ""))
    indent = take_text(options.get("indent", "\t"))
    pretty = take_bool(options.get("pretty", bool({"prefix", "indent"} & set(options))))
    value = to_json(arguments[0])
    if not pretty:
        return dump_go_json(value)
    writer = _PrettyWriter(prefix, indent, run.output_bytes)
    writer.write(value, 0)
    return prefix + "".join(writer.parts)


class _PrettyWriter:
    """JSON with one line for each element; raises ValueError if it would be too long."""

    def __init__(self, prefix: str, indent: str, limit: int) -> None:
        self._prefix = prefix
        self._indent = indent
        self._left = limit
        self.parts: list[str] = []

    def _add(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("the text would be too long")
        self.parts.append(text)

    def _break(self, depth: int) -> None:
        # Checked in advance: an indent may be as long as any text.
        if len(self._indent) * depth > self._left:
            raise ValueError("the text would be too long")
        self._add(f"\n{self._prefix}{self._indent * depth}")

    def write(self, value: RegoValue, depth: int) -> None:
        if not isinstance(value, (dict, list)) or not value:
            self._add(dump_go_json(value))
            return
        is_list = isinstance(value, list)
        self._add("[" if is_list else "{")
        for at, each in enumerate(value if is_list else sorted(value)):
            self._add("," if at else "")
            self._break(depth + 1)
            if not is_list:
                self._add(f"{dump_go_json(each)}: ")
            self.write(each if is_list else value[each], depth + 1)
        self._break(depth)
        self._add("]" if is_list else "}")


def _is_subset(run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    whole, part = arguments
    if isinstance(whole, list) and isinstance(part, RegoSet):
        return _contains_all(whole, part)
    kinds = [name_type(each) for each in arguments]
    if kinds[0] != kinds[1] or kinds[0] not in ("array", "object", "set"):
        raise FunctionError("both must be of the same kind, or an array and a set")
    return _value_subset(run, whole, part)


def _contains_all(whole: "list[RegoValue] | RegoSet", part: RegoSet) -> bool:
    return {sort_key(each) for each in part} <= {sort_key(each) for each in whole}


def _object_subset(run: BuiltinRun, whole: RegoValue, part: RegoValue) -> bool:
    found = {sort_key(key): value for key, value in list_pairs(whole)}
    for key, value in list_pairs(part):
        if sort_key(key) not in found or not _value_subset(run, found[sort_key(key)], value):
            return False
    return True


def _value_subset(run: BuiltinRun, whole: RegoValue, part: RegoValue) -> bool:
    if is_object(whole) and is_object(part):
        return _object_subset(run, whole, part)
    if isinstance(whole, RegoSet) and isinstance(part, RegoSet):
        return _contains_all(whole, part)
    if isinstance(whole, list) and isinstance(part, list):
        return _array_subset(run, whole, part)
    return is_equal(whole, part)


def _array_subset(run: BuiltinRun, whole: list[RegoValue], part: list[RegoValue]) -> bool:
    keys, wanted = [sort_key(each) for each in whole], [sort_key(each) for each in part]
    size = len(wanted)
    places = run.watch(range(len(keys) - size + 1))
    return any(keys[at : at + size] == wanted for at in places)


class _Paths:
    """Paths through a graph, of which there may be many more than edges."""

    def __init__(self, run: BuiltinRun, graph: RegoValue) -> None:
        self._run = run
        self._graph = {sort_key(key): value for key, value in list_pairs(graph)}
        self._left = _MOST_ELEMENTS
        self.found: list[RegoValue] = []

    def start(self, node: RegoValue) -> None:
        key = sort_key(node)
        if key in self._graph:
            self._follow(self._graph[key], [node], frozenset((key,)))

    def _follow(self, edges: RegoValue, path: list[RegoValue], seen: frozenset[object]) -> None:
        neighbours = take_elements(edges) if isinstance(edges, (list, RegoSet)) else []
        if not neighbours:
            self.found.append(path)
        for each in neighbours:
            if len(path) > 1 and sort_key(each) in seen:
                self.found.append(path)
            else:
                self._walk(each, path, seen)

    def _walk(self, node: RegoValue, path: list[RegoValue], seen: frozenset[object]) -> None:
        self._left -= len(path) + 1
        if self._left < 0:
            raise ValueError("there are too many paths")
        if self._left % _CHECK_EVERY <= len(path):
            self._run.check_time()
        key = sort_key(node)
        if key not in self._graph:
            self.found.append(path)
        else:
            self._follow(self._graph[key], [*path, node], seen | {key})


def _reachable_paths(run: BuiltinRun, arguments: list[RegoValue]) -> RegoSet:
    if not is_object(arguments[0]):
        raise FunctionError("a graph is an object")
    paths = _Paths(run, arguments[0])
    for node in take_elements(arguments[1]):
        paths.start(node)
    return RegoSet(paths.found)


def _patch(run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    """JSON patches, with paths as texts or arrays, also into sets."""
    value: RegoValue = arguments[0]
    # None if the root was removed.
    root: list[RegoValue] = [value]
    for operation in take_array(arguments[1]):
        run.check_time()
        root = _apply(root, take_object(operation))
        # Copies of copies share their values until they are serialized.
        if take_object(operation).get("op") == "copy":
            _check_size(root)
    if not root:
        raise FunctionError("nothing is left")
    return root[0]


def _check_size(values: list[RegoValue]) -> None:
    waiting, left = list(values), _MOST_ELEMENTS
    while waiting:
        value = waiting.pop()
        left -= 1
        if left < 0:
            raise ValueError("the value would be too large")
        if isinstance(value, list):
            waiting += value
        elif is_object(value):
            waiting += [each for _, each in list_pairs(value)]
        elif isinstance(value, RegoSet):
            waiting += value.elements


_Path: TypeAlias = list[RegoValue]


def _read_path(operation: dict[str, RegoValue], field: str) -> _Path:
    if field not in operation:
        raise FunctionError(f"missing required attribute {field!r}")
    path = operation[field]
    if isinstance(path, str):
        parts = path.lstrip("/").split("/") if path else []
        return [part.replace("~1", "/").replace("~0", "~") for part in parts]
    return take_array(path)


def _apply(root: list[RegoValue], operation: dict[str, RegoValue]) -> list[RegoValue]:
    path = _read_path(operation, "path")
    kind = take_text(operation.get("op"))
    if kind == "remove":
        return _remove(root, path)
    if kind in ("move", "copy"):
        source = _read_path(operation, "from")
        found = _find(root, source)
        return _insert(_remove(root, source) if kind == "move" else root, path, found)
    if kind not in ("add", "replace", "test"):
        raise FunctionError(f"unrecognized op: {kind!r}")
    if "value" not in operation:
        raise FunctionError("missing required attribute 'value'")
    if kind == "test":
        if not is_equal(_find(root, path), operation["value"]):
            raise FunctionError("the value is not the one of the test")
        return root
    return _insert(_remove(root, path) if kind == "replace" else root, path, operation["value"])


def _find(root: list[RegoValue], path: _Path) -> RegoValue:
    if not root:
        raise FunctionError("the value was removed")
    value = root[0]
    for step in path:
        value = _child(value, step)
    return value


def _child(value: RegoValue, step: RegoValue) -> RegoValue:
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        return value[step]
    if isinstance(value, list):
        position = _position(value, step, len(value) - 1)
        return value[position]
    for key, item in list_pairs(value) if is_object(value) else [(e, e) for e in _members(value)]:
        if is_equal(key, step):
            return item
    raise FunctionError("a path does not exist")


def _members(value: RegoValue) -> list[RegoValue]:
    return value.elements if isinstance(value, RegoSet) else []


def _position(value: list[RegoValue], step: RegoValue, last: int) -> int:
    if step == "-":
        at = len(value)
    elif isinstance(step, int) and not isinstance(step, bool):
        at = step
    elif isinstance(step, str) and step.isascii() and step.isdecimal() and len(step) < 10:
        if step != "0" and step.startswith("0"):
            raise FunctionError("leading zeros are not allowed in JSON paths")
        at = int(step)
    else:
        raise FunctionError("not an index")
    if not 0 <= at <= last:
        raise FunctionError("an index is out of bounds")
    return at


def _edit(
    value: RegoValue, path: _Path, act: Callable[[RegoValue, RegoValue], RegoValue]
) -> RegoValue:
    """The value in which `act` has changed the container at the end of the path."""
    if len(path) == 1:
        return act(value, path[0])
    changed = _edit(_child(value, path[0]), path[1:], act)
    if isinstance(value, list):
        at = _position(value, path[0], len(value) - 1)
        return [*value[:at], changed, *value[at + 1 :]]
    if isinstance(value, RegoSet):
        kept = [each for each in value if not is_equal(each, path[0])]
        return RegoSet([*kept, changed])
    return _set_key(value, path[0], changed)


def _set_key(value: RegoValue, key: RegoValue, item: RegoValue) -> RegoValue:
    if isinstance(value, dict) and isinstance(key, str):
        return {**value, key: item}
    kept = [pair for pair in list_pairs(value) if not is_equal(pair[0], key)]
    return make_object([*kept, (key, item)])


def _insert(root: list[RegoValue], path: _Path, item: RegoValue) -> list[RegoValue]:
    def act(value: RegoValue, step: RegoValue) -> RegoValue:
        if isinstance(value, list):
            at = _position(value, step, len(value))
            return [*value[:at], item, *value[at:]]
        if isinstance(value, RegoSet):
            if not is_equal(step, item):
                raise FunctionError("the key of a set is not the value")
            return RegoSet([*value, item])
        if not is_object(value):
            raise FunctionError("there is no container for the value")
        return _set_key(value, step, item)

    if not path:
        return [item]
    if not root:
        raise FunctionError("the value was removed")
    return [_edit(root[0], path, act)]


def _remove(root: list[RegoValue], path: _Path) -> list[RegoValue]:
    def act(value: RegoValue, step: RegoValue) -> RegoValue:
        _child(value, step)
        if isinstance(value, list):
            at = _position(value, step, len(value) - 1)
            return [*value[:at], *value[at + 1 :]]
        if isinstance(value, RegoSet):
            return RegoSet([each for each in value if not is_equal(each, step)])
        return make_object([pair for pair in list_pairs(value) if not is_equal(pair[0], step)])

    if not root:
        raise FunctionError("the value was removed")
    return [_edit(root[0], path, act)] if path else []


def _take_kind(test: Callable[[RegoValue], bool], name: str) -> Function:
    def check(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
        if not test(arguments[0]):
            raise FunctionError(f"expected {name}")
        return arguments[0]

    return check


def _make_set(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoSet:
    return RegoSet(take_elements(arguments[0]))


def _make_array(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    return take_elements(arguments[0])


def _runtime(_run: BuiltinRun, _arguments: list[RegoValue]) -> RegoValue:
    # OPA returns its environment here; there is none.
    return {}


def _is_json(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    """Newer compilers include it in the module; older policies call the host."""
    try:
        orjson.loads(take_text(arguments[0]))
    except (FunctionError, orjson.JSONDecodeError):
        return False
    return True


STRUCTURE_BUILTINS: Functions = {
    "json.is_valid": _is_json,
    "json.marshal_with_options": _marshal,
    "json.patch": _patch,
    "object.subset": _is_subset,
    "graph.reachable_paths": _reachable_paths,
    "opa.runtime": _runtime,
    "cast_array": _make_array,
    "cast_set": _make_set,
    "cast_boolean": _take_kind(lambda value: isinstance(value, bool), "boolean"),
    "cast_null": _take_kind(lambda value: value is None, "null"),
    "cast_object": _take_kind(is_object, "object"),
    "cast_string": _take_kind(lambda value: isinstance(value, str), "string"),
}
