r"""Text and JSON documents with `{{ expressions }}`, compiled to callables that resolve them.

A text that is one expression returns the expression's value; otherwise values become text. Inner
expressions are resolved first, and their results are scanned again, except for `{{- x }}`; `\{{`
is a literal.
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

# From variables to value.
Fill: TypeAlias = Callable[[Mapping[str, Json]], Json]
# Compiles an expression: at compile time, and for generated text at run time.
Resolve: TypeAlias = Callable[[str], Fill]

# The text between braces; it may contain an object.
VARIABLE = re.compile(r"\{\{((?:\{[^{}]*\}|[^{}])*)\}\}")
_VARIABLE = re.compile(r"(^|[^\\])(\{\{(?:\{[^{}]*\}|[^{}])*\}\})")
_MANY_BRACES = re.compile(r"\{{4,}")
# Otherwise a policy, or a value in a request, could feed an expression with endlessly growing text:
# limits of the text, and of all texts scanned on the way.
_MAX_ROUNDS = 20
_MAX_LENGTH = 4 * 1024 * 1024
_MAX_WORK = _MAX_LENGTH


def has_variables(text: str) -> bool:
    """Whether the text has variables."""
    return "{{" in text and _VARIABLE.search(text) is not None


def find_expressions(text: str) -> list[str]:
    """The innermost expressions of `text`, without braces."""
    return [_strip(found)[0] for _, found in _VARIABLE.findall(text)]


def compile_template(text: str, resolve: Resolve) -> Fill | None:
    """Compile `text`; None if it has no variables (see `unescape`)."""
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
    """Replace escaped braces with braces."""
    return text.replace("\\{{", "{{") if "\\{{" in text else text


def _strip(variable: str) -> tuple[str, bool]:
    """The expression inside the braces, and whether its result must not be scanned again."""
    inner = variable.replace("{{", "").replace("}}", "").strip()
    if inner.startswith("-"):
        return inner[1:].strip(), True
    return inner, False


def _is_flat(text: str) -> bool:
    # Nested braces, shallow expressions and escapes take the general path.
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
        # Parts may be the same text many times: count before joining them.
        if sum(map(len, parts)) > _MAX_LENGTH:
            raise _outgrown()
        made = "".join(parts)
        # A value may contain braces; those are resolved too, as in Kyverno.
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
    """Like `_VARIABLE.finditer`, without testing each character in between."""
    found: list[re.Match[str]] = []
    start = end = 0
    while (start := text.find("{{", start)) >= 0:
        many = _MANY_BRACES.match(text, start)
        if many is not None:
            # Of many braces in a row, only the last three can start a variable.
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
    """Resolve these variables; also returns whether the last one must not be scanned again."""
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
    return TooLargeError("the text exceeds 4 MiB while its variables are resolved")


_MAX_DEPTH = 200


class CompiledDocument(msgspec.Struct, frozen=True):
    """A compiled document: `fill` resolves it; `constant` is its value without variables."""

    fill: Fill
    is_constant: bool
    constant: Json = None


# Compiles an expression at a path.
ResolveAt = Callable[[str, tuple[str, ...]], Fill]


def compile_document(document: Json, resolve: ResolveAt) -> CompiledDocument:
    """Compile every key and string of `document`."""
    if not _has_braces(document, 0):
        return CompiledDocument(lambda _: document, is_constant=True, constant=document)
    fill = _compile(document, resolve, ())
    if fill is None:
        constant = _unescape_all(document)
        return CompiledDocument(lambda _: constant, is_constant=True, constant=constant)
    if isinstance(document, str):
        return CompiledDocument(fill, is_constant=False)
    # The same large value may occur at many places of the document.
    return CompiledDocument(lambda scope: check_written(fill(scope)), is_constant=False)


def _has_braces(node: Json, depth: int) -> bool:
    """Whether a text in the document may have variables, or escaped braces."""
    if depth > _MAX_DEPTH:
        raise CompileError(f"nested more than {_MAX_DEPTH} deep")
    if isinstance(node, str):
        return "{{" in node
    if isinstance(node, dict):
        return any("{{" in key or _has_braces(value, depth + 1) for key, value in node.items())
    return isinstance(node, list) and any(_has_braces(item, depth + 1) for item in node)


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
