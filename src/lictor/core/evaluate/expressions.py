"""Compiles expressions of rules, `{{ }}` and bare JMESPath, once each and shared between rules.

`[@, @] | [@, @] | ...` doubles its result with every step: sixty of them exhaust any memory. Such a
query is recognized by its text, and rejected.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeVar

import orjson

from lictor.core.errors import CompileError, EvaluationError, TooLargeError, UnknownKeyError
from lictor.core.lang.jmespath import (
    FoldingBudget,
    NativeInteger,
    Query,
    compile_query,
    parse_query,
)
from lictor.core.lang.template import CompiledDocument, Fill, compile_document
from lictor.core.lang.written_size import ensure_room
from lictor.core.raw import Json, JsonObject

Made = TypeVar("Made")

_MAX_FILLED = 64


def remember_compiled(compile_one: Callable[[Json], Made]) -> Callable[[Json], Made]:
    """The same compiler with a cache of the last few documents."""
    known: dict[bytes, Made] = {}

    def compile_filled(filled: Json) -> Made:
        ensure_room(filled)
        try:
            key = orjson.dumps(filled)
        except TypeError:
            # No value from a file, such as a number beyond 64 bits; rare, so not cached.
            return compile_one(filled)
        made = known.get(key)
        if made is None:
            if len(known) >= _MAX_FILLED:
                known.clear()
            made = known[key] = compile_one(filled)
        return made

    return compile_filled


MAX_GROWTH: Final = 1000
# Only values between commas can be duplicated, so fewer commas stay within the limit.
_HARMLESS_COMMAS = MAX_GROWTH.bit_length() - 1

_CHAINS = frozenset(
    (
        "ASTPipe",
        "ASTSubexpression",
        "ASTIndexExpression",
        "ASTProjection",
        "ASTValueProjection",
        "ASTExpRef",
        "ASTFlatten",
        "ASTKeyValPair",
    )
)
_CHOICES = frozenset(("ASTOrExpression", "ASTAndExpression"))
_SMALL = frozenset(("ASTComparator", "ASTNotExpression", "ASTLiteral"))


def check_growth(text: str) -> None:
    """Raise CompileError for a query whose result can be disproportionately large."""
    if text.count(",") >= _HARMLESS_COMMAS:
        _measure(parse_query(text), 1)


def _measure(node: JsonObject, size: int) -> int:
    """The size of the result for an input of this size."""
    grown = _choose_measure(node["type"])(node, size)
    if grown > MAX_GROWTH:
        raise CompileError(f"its result can be more than {MAX_GROWTH} times as large as its input")
    return grown


def _choose_measure(kind: str) -> Callable[[JsonObject, int], int]:
    if kind in _CHAINS:
        return _measure_chain
    if kind in _CHOICES:
        return lambda node, size: max(_measure_each(node, size))
    if kind in _SMALL:
        return _measure_small
    return _OTHERS.get(kind, _measure_all)


def _measure_each(node: JsonObject, size: int) -> list[int]:
    return [_measure(child, size) for child in _children(node)]


def _measure_all(node: JsonObject, size: int) -> int:
    """A node with parts contains them all; one without parts is an existing value."""
    return sum(_measure_each(node, size)) if _children(node) else size


def _measure_chain(node: JsonObject, size: int) -> int:
    for child in _children(node):
        size = _measure(child, size)
    return size


def _measure_small(node: JsonObject, size: int) -> int:
    """The result is small, but its parts are measured anyway."""
    _measure_each(node, size)
    return 1


def _measure_filter(node: JsonObject, size: int) -> int:
    left, right, condition = _children(node)
    size = _measure(left, size)
    _measure(condition, size)
    return _measure(right, size)


def _measure_call(node: JsonObject, size: int) -> int:
    children = _children(node)
    if node["value"] == "map" and len(children) == 2:
        return _measure(children[0], _measure(children[1], size))
    return _measure_all(node, size)


_OTHERS: Final[dict[str, Callable[[JsonObject, int], int]]] = {
    "ASTFilterProjection": _measure_filter,
    "ASTFunctionExpression": _measure_call,
}


def _children(node: JsonObject) -> list[Json]:
    return list(node.get("children", ()))


_MAX_CACHED = 4_000
# Longer texts are not cached for later policies: those of deleted policies would fill memory.
_MAX_SHARED_TEXT = 256
_IDENTIFIER = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")


class Expressions:
    """Compiles the expressions of many policies; each text only once."""

    def __init__(self, now: Callable[[], datetime], queries: dict[str, Fill] | None = None) -> None:
        """`queries`: already compiled for the same clock, by text."""
        self._now = now
        self._queries: dict[str, Fill] = {} if queries is None else queries
        self._long_queries: dict[str, Fill] = {}
        # Created for the first expression: most policies have none.
        self._folding: FoldingBudget | None = None

    def begin_policy(self) -> None:
        """Start another policy, with its own budget."""
        self._folding = None

    def query(self, text: str) -> Fill:
        """A bare JMESPath expression. A syntax error is raised on use, not here.

        Kyverno parses an expression only when it needs the value, and a rule that is skipped before
        that is still skipped. `lint` reports such expressions.
        """
        text = text.strip()
        known = self._queries if len(text) <= _MAX_SHARED_TEXT else self._long_queries
        found = known.get(text)
        if found is None:
            if len(known) >= _MAX_CACHED:  # generated text must not fill the memory
                known.clear()
            found = known[text] = self._compile(text)
        return found

    def variable(self, text: str) -> Fill:
        """An expression inside `{{ }}`: on DELETE the old object replaces the object."""
        plain = self.query(text)
        if "request.object" not in text:
            return plain
        deleting = self.query(text.replace("request.object", "request.oldObject"))

        def fill(scope: Mapping[str, Json]) -> Json:
            request = scope["request"]
            if isinstance(request, dict) and request.get("operation") == "DELETE":
                return deleting(scope)
            return plain(scope)

        return fill

    def template(self, text: str) -> CompiledDocument:
        return self.document(text)

    def document(self, document: Json) -> CompiledDocument:
        """A document with `{{ }}` in keys and values; `{{@}}` is the value at the same path."""
        return compile_document(document, self._resolve)

    def _resolve(self, expression: str, path: tuple[str, ...]) -> Fill:
        if expression != "@":
            return self.variable(expression)
        place = _place(path)
        on_target, on_object = self.query(f"target{place}"), self.variable(f"request.object{place}")
        return lambda scope: (on_target if "target" in scope else on_object)(scope)

    def _compile(self, text: str) -> Fill:
        if not text:
            return _failing("invalid query (nil)")
        if self._folding is None:
            self._folding = FoldingBudget()
        try:
            query = compile_query(text, now=self._now, folding=self._folding)
            check_growth(text)
        except CompileError as error:
            return _failing(f"incorrect query {text}: {error.message}")
        return _told(query, text)


def _told(query: Query, text: str) -> Fill:
    # Bypasses the query's call: this runs for every expression of every rule.
    run = query.run

    def fill(scope: Mapping[str, Json]) -> Json:
        try:
            result = run(scope)
        except RecursionError as error:
            raise TooLargeError(f"{text}: the value is nested too deeply") from error
        except UnknownKeyError as error:
            raise UnknownKeyError(f"failed to resolve {text}: {error}") from error
        except EvaluationError as error:
            raise EvaluationError(f"failed to resolve {text}: {error}") from error
        return int(result) if type(result) is NativeInteger else result

    return fill


def _failing(message: str) -> Fill:
    def fill(_: Mapping[str, Json]) -> Json:
        raise EvaluationError(message)

    return fill


def _place(path: tuple[str, ...]) -> str:
    parts = []
    for part in path:
        name = _without_anchor(part)
        if name.isdigit():
            parts.append(f"[{name}]")
        elif name and not set(name) - _IDENTIFIER and not name[0].isdigit():
            parts.append(f".{name}")
        else:
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'."{quoted}"')
    return "".join(parts)


def _without_anchor(key: str) -> str:
    if key.endswith(")"):
        start = key.find("(")
        if start in (0, 1):
            return key[start + 1 : -1]
    return key
