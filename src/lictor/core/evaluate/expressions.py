"""Expressions of rules: `{{ }}` and bare JMESPath, compiled once each and shared between rules.

`[@, @] | [@, @] | ...` doubles its answer with every step: sixty of them fill any memory. Such a
query is known from its text alone, and refused.
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
    """The same compiler, which knows the last few documents that it was given."""
    known: dict[bytes, Made] = {}

    def compile_filled(filled: Json) -> Made:
        ensure_room(filled)
        try:
            key = orjson.dumps(filled)
        except TypeError:
            # Not what a file can hold, such as a number beyond 64 bits; rare, so made anew.
            return compile_one(filled)
        made = known.get(key)
        if made is None:
            if len(known) >= _MAX_FILLED:
                known.clear()
            made = known[key] = compile_one(filled)
        return made

    return compile_filled


MAX_GROWTH: Final = 1000
# Only what stands between commas can be given twice, so fewer commas cannot grow beyond the bound.
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
    """Raise CompileError for a query whose answer can be beyond all proportion."""
    if text.count(",") >= _HARMLESS_COMMAS:
        _measure(parse_query(text), 1)


def _measure(node: JsonObject, size: int) -> int:
    """How large the answer is, where what it is asked about has this size."""
    grown = _choose_measure(node["type"])(node, size)
    if grown > MAX_GROWTH:
        raise CompileError(f"its answer can be more than {MAX_GROWTH} times what it is asked about")
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
    """What has parts holds them all; what has none is one of what is there."""
    return sum(_measure_each(node, size)) if _children(node) else size


def _measure_chain(node: JsonObject, size: int) -> int:
    for child in _children(node):
        size = _measure(child, size)
    return size


def _measure_small(node: JsonObject, size: int) -> int:
    """The answer is small, but its parts are looked at all the same."""
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
# Longer texts are not kept for policies that come later: of deleted ones they would fill memory.
_MAX_SHARED_TEXT = 256
_IDENTIFIER = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")


class Expressions:
    """Compiles the expressions of many policies; each text only once."""

    def __init__(self, now: Callable[[], datetime], queries: dict[str, Fill] | None = None) -> None:
        """`queries`: what was compiled before for the same clock, by its text alone."""
        self._now = now
        self._queries: dict[str, Fill] = {} if queries is None else queries
        self._long_queries: dict[str, Fill] = {}
        self._folding = FoldingBudget()

    def begin_policy(self) -> None:
        """What is compiled from now on belongs to another policy, with a budget of its own."""
        self._folding = FoldingBudget()

    def query(self, text: str) -> Fill:
        """A bare JMESPath expression. One that does not parse fails where it is used, not here.

        Kyverno looks at an expression only when it needs its value, and a rule that is skipped
        before that is skipped all the same. `lint` tells of such expressions beforehand.
        """
        text = text.strip()
        known = self._queries if len(text) <= _MAX_SHARED_TEXT else self._long_queries
        found = known.get(text)
        if found is None:
            if len(known) >= _MAX_CACHED:  # text made at run time must not fill the memory
                known.clear()
            found = known[text] = self._compile(text)
        return found

    def variable(self, text: str) -> Fill:
        """An expression inside `{{ }}`: on DELETE the old object stands for the object."""
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
        """A document with `{{ }}` in keys and values; `{{@}}` is the value at the same place."""
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
        try:
            query = compile_query(text, now=self._now, folding=self._folding)
            check_growth(text)
        except CompileError as error:
            return _failing(f"incorrect query {text}: {error.message}")
        return _told(query, text)


def _told(query: Query, text: str) -> Fill:
    # Not by way of the query's own call: this runs for every expression of every rule.
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
