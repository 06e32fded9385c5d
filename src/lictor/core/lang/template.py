r"""Text and JSON documents with `{{ expressions }}`, compiled to callables that fill them in.

A text that is one expression gives the expression's value as it is; otherwise values become text.
Inner expressions are filled first, what they give is looked at again, `{{- x }}` is not, and `\{{`
stands for itself.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError, EvaluationError, TooLargeError
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.json_type import name_json_type
from lictor.core.lang.written_size import check_written
from lictor.core.raw import Json

# Variables in, value out.
Fill: TypeAlias = Callable[[Mapping[str, Json]], Json]
# An expression in, what computes it out: at compile time, and for text made at run time.
Resolve: TypeAlias = Callable[[str], Fill]

# What stands between braces; an object may be in it.
VARIABLE = re.compile(r"\{\{((?:\{[^{}]*\}|[^{}])*)\}\}")
_VARIABLE = re.compile(r"(^|[^\\])(\{\{(?:\{[^{}]*\}|[^{}])*\}\})")
_MANY_BRACES = re.compile(r"\{{4,}")
# A policy, or a value in a request, could otherwise feed an expression with text that grows for
# ever: bounds for the text, and for all texts that are looked through on the way to it.
_MAX_ROUNDS = 20
_MAX_LENGTH = 4 * 1024 * 1024
_MAX_WORK = _MAX_LENGTH


def has_variables(text: str) -> bool:
    """Say whether there is anything to fill in."""
    return "{{" in text and _VARIABLE.search(text) is not None


def find_expressions(text: str) -> list[str]:
    """The innermost expressions of `text`, without braces."""
    return [_strip(found)[0] for _, found in _VARIABLE.findall(text)]


def compile_template(text: str, resolve: Resolve) -> Fill | None:
    """Compile `text`; None means that nothing depends on variables (see `unescape`)."""
    if not has_variables(text):
        return None
    whole = _VARIABLE.fullmatch(text)
    if whole is not None and not whole[1]:
        expression, _ = _strip(text)
        return resolve(expression)
    if _is_flat(text):
        return _compile_flat(text, resolve)
    return lambda scope: _fill(text, scope, resolve)


def unescape(text: str) -> str:
    """Turn escaped braces into braces."""
    return text.replace("\\{{", "{{") if "\\{{" in text else text


def _strip(variable: str) -> tuple[str, bool]:
    """The expression inside the braces, and whether it asks not to be looked at again."""
    inner = variable.replace("{{", "").replace("}}", "").strip()
    if inner.startswith("-"):
        return inner[1:].strip(), True
    return inner, False


def _is_flat(text: str) -> bool:
    # Nested braces, shallow expressions and escapes take the general way.
    return (
        "\\{{" not in text
        and "{{-" not in text.replace("{{ ", "{{")
        and text.count("{{") == len(_split(text)) // 2
        and "{{{" not in text
        and "}}}" not in text
    )


def _split(text: str) -> list[str]:
    return re.split(r"(\{\{(?:\{[^{}]*\}|[^{}])*\}\})", text)


def _compile_flat(text: str, resolve: Resolve) -> Fill:
    pieces = _split(text)
    literals, fills = pieces[::2], [resolve(_strip(piece)[0]) for piece in pieces[1::2]]

    def fill(scope: Mapping[str, Json]) -> Json:
        parts = [literals[0]]
        for literal, part in zip(literals[1:], fills, strict=True):
            value = part(scope)
            parts.append(value if isinstance(value, str) else dump_go_json(value))
            parts.append(literal)
        # Parts may be one and the same text again and again: count before they are put together.
        if sum(map(len, parts)) > _MAX_LENGTH:
            raise _outgrown()
        made = "".join(parts)
        # A value may hold braces itself; those are filled too, as they always were.
        return _fill(made, scope, resolve) if "{{" in made else made

    return fill


def _fill(text: str, scope: Mapping[str, Json], resolve: Resolve) -> Json:
    work = 0
    for _ in range(_MAX_ROUNDS):
        found = _find_variables(text)
        if not found:
            return unescape(text)
        if found[0][2] == text:
            return resolve(_strip(text)[0])(scope)
        text, shallow = _fill_once(text, found, scope, resolve)
        work += len(text)
        if work > _MAX_WORK:
            raise _outgrown()
        if shallow:
            return unescape(text)
    raise TooLargeError(f"variables are nested more than {_MAX_ROUNDS} deep")


def _find_variables(text: str) -> list[re.Match[str]]:
    """What `_VARIABLE.finditer` would find, without looking at each character in between."""
    found: list[re.Match[str]] = []
    start = end = 0
    while (start := text.find("{{", start)) >= 0:
        many = _MANY_BRACES.match(text, start)
        if many is not None:
            # Of many braces in a row, only the last three can begin a variable.
            start = many.end() - 3
        # The character before the braces is part of the match, and of no other one.
        variable = _VARIABLE.match(text, max(start - 1, end))
        if variable is None:
            start += 1
        else:
            found.append(variable)
            start = end = variable.end()
    return found


def _fill_once(
    text: str, found: list[re.Match[str]], scope: Mapping[str, Json], resolve: Resolve
) -> tuple[str, bool]:
    """Fill in these variables, and tell whether the last one asks to be left as it is then."""
    parts: list[str] = []
    at, size, shallow = 0, len(text), False
    for variable in found:
        expression, shallow = _strip(variable[2])
        value = resolve(expression)(scope)
        made = value if isinstance(value, str) else dump_go_json(value)
        size += len(made)
        if size > _MAX_LENGTH:
            raise _outgrown()
        parts += (text[at : variable.start(2)], made.replace("{{", "\\{{") if shallow else made)
        at = variable.end(2)
    return "".join((*parts, text[at:])), shallow


def _outgrown() -> TooLargeError:
    return TooLargeError("the text grows beyond 4 MiB while its variables are filled in")


_MAX_DEPTH = 200


class CompiledDocument(msgspec.Struct, frozen=True):
    """A compiled document: `fill` makes it; `constant` is it where nothing is to be filled."""

    fill: Fill
    is_constant: bool
    constant: Json = None


# An expression and the path at which it stands, to what computes it.
ResolveAt = Callable[[str, tuple[str, ...]], Fill]


def compile_document(document: Json, resolve: ResolveAt) -> CompiledDocument:
    """Compile every key and string of `document`."""
    fill = _compile(document, resolve, ())
    if fill is None:
        constant = _unescape_all(document)
        return CompiledDocument(lambda _: constant, is_constant=True, constant=constant)
    if isinstance(document, str):
        return CompiledDocument(fill, is_constant=False)
    # The same large value may stand at many places of the document.
    return CompiledDocument(lambda scope: check_written(fill(scope)), is_constant=False)


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
