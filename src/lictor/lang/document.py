"""JSON documents with `{{ expressions }}` in their keys and values, compiled to fill them in."""

from collections.abc import Callable, Mapping

import msgspec

from lictor.errors import CompileError, EvaluationError
from lictor.lang.json_type import name_json_type
from lictor.lang.template import Fill, compile_template, unescape
from lictor.lang.written_size import check_written
from lictor.raw import Json

_MAX_DEPTH = 200


class Document(msgspec.Struct, frozen=True):
    """A compiled document: `fill` makes it; `constant` is it where nothing is to be filled."""

    fill: Fill
    is_constant: bool
    constant: Json = None


# An expression and the path at which it stands, to what computes it.
ResolveAt = Callable[[str, tuple[str, ...]], Fill]


def compile_document(document: Json, resolve: ResolveAt) -> Document:
    """Compile every key and string of `document`."""
    fill = _compile(document, resolve, ())
    if fill is None:
        constant = _unescape_all(document)
        return Document(lambda _: constant, is_constant=True, constant=constant)
    if isinstance(document, str):
        return Document(fill, is_constant=False)
    # The same large value may stand at many places of the document.
    return Document(lambda scope: check_written(fill(scope)), is_constant=False)


def _compile(node: Json, resolve: ResolveAt, path: tuple[str, ...]) -> Fill | None:
    if len(path) > _MAX_DEPTH:
        raise CompileError(f"nested more than {_MAX_DEPTH} deep")
    if isinstance(node, str):
        return compile_template(node, lambda expression: resolve(expression, path))
    if isinstance(node, dict):
        return _compile_object(node, resolve, path)
    if isinstance(node, list):
        return _compile_list(node, resolve, path)
    return None


def _compile_list(node: list[Json], resolve: ResolveAt, path: tuple[str, ...]) -> Fill | None:
    fills = [_compile(item, resolve, (*path, str(index))) for index, item in enumerate(node)]
    if all(fill is None for fill in fills):
        return None
    parts = [_or_constant(fill, item) for fill, item in zip(fills, node, strict=True)]
    return lambda scope: [part(scope) for part in parts]


def _compile_object(
    node: dict[str, Json], resolve: ResolveAt, path: tuple[str, ...]
) -> Fill | None:
    keys = {key: _compile(key, resolve, (*path, key)) for key in node}
    values = {key: _compile(value, resolve, (*path, key)) for key, value in node.items()}
    if all(fill is None for fill in (*keys.values(), *values.values())):
        return None
    parts = [(key, keys[key], _or_constant(values[key], value)) for key, value in node.items()]

    def fill(scope: Mapping[str, Json]) -> Json:
        made = {}
        for key, key_fill, value_fill in parts:
            made[key if key_fill is None else _as_key(key_fill(scope))] = value_fill(scope)
        return made

    return fill


def _as_key(value: Json) -> str:
    if not isinstance(value, str):
        raise EvaluationError(f"a key must become text, not {name_json_type(value)}")
    return value


def _or_constant(fill: Fill | None, value: Json) -> Fill:
    if fill is not None:
        return fill
    constant = _unescape_all(value)
    return lambda _: constant


def _unescape_all(node: Json) -> Json:
    if isinstance(node, str):
        return unescape(node)
    if isinstance(node, dict):
        return {unescape(key): _unescape_all(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_unescape_all(item) for item in node]
    return node
