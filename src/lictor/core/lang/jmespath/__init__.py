"""JMESPath as in Kyverno's policies: compiles a query to a callable. No I/O."""

import json
from collections.abc import Callable
from datetime import datetime

import msgspec

from lictor.core.errors import SyntaxFaultError, TooLargeError
from lictor.core.lang.go_number import format_general
from lictor.core.lang.jmespath.closures import FoldingBudget, Run
from lictor.core.lang.jmespath.compiler import Compiler
from lictor.core.lang.jmespath.functions import FUNCTIONS, FunctionSpec, JmesPathHost
from lictor.core.lang.jmespath.functions.spec import NativeInteger
from lictor.core.lang.jmespath.parser import parse
from lictor.core.lang.jmespath.syntax import Node, NodeKind, Token, node_to_json
from lictor.core.raw import Json


def render_node(node: Node, indent: int = 0) -> str:
    """Render a node and its children. The braces after children stay open, as in Kyverno."""
    outer, inner = " " * indent, " " * (indent + 2)
    lines = [f"{outer}{node.kind} {{\n"]
    if node.value is not None:
        lines.append(f"{inner}value: {_render_value(node)}\n")
    if node.children:
        lines.append(f"{inner}children: {{\n")
        lines.extend(render_node(child, indent + 4) for child in node.children)
    lines.append(f"{outer}}}\n")
    return "".join(lines)


def _render_value(node: Node) -> str:
    if isinstance(node.value, Token):
        return node.value.value
    if node.kind is NodeKind.SLICE:
        # Kyverno prints addresses of numbers here; the numbers are more useful.
        return ":".join("" if part is None else str(part) for part in node.value)
    if node.kind is NodeKind.INDEX:
        return str(node.value)
    return _write_literal(node.value)


def _write_literal(value: Json) -> str:
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return format_general(float(value))
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_write_literal, value))}}}"
    if isinstance(value, dict):
        entries = (f"{_quote(key)}:{_write_literal(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{', '.join(entries)}}}"
    return _quote(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_HOST = JmesPathHost()


class Query(msgspec.Struct, frozen=True):
    """A compiled query. `roots`: the root keys that it reads; `takes_all`: it reads all."""

    text: str
    roots: frozenset[str]
    takes_all: bool
    run: Run

    def __call__(self, value: Json) -> Json:
        """Evaluate; raises UnknownKeyError, FunctionError or another EvaluationError."""
        try:
            result = self.run(value)
        except RecursionError as error:
            raise TooLargeError(f"{self.text}: the value is nested too deeply") from error
        return int(result) if type(result) is NativeInteger else result


def compile_query(
    text: str,
    *,
    now: Callable[[], datetime] = _HOST.now,
    choose: Callable[[int], int] = _HOST.choose,
    resolve: Callable[[str], list[str]] = _HOST.resolve,
    folding: FoldingBudget | None = None,
) -> Query:
    """Compile a query; raises SyntaxFaultError for invalid syntax or function calls.

    `choose(n)` returns a random number below n; `resolve(host)` the addresses of a host.
    `folding`: the budget for constant folding, if several queries share it.
    """
    compiler = Compiler(text, JmesPathHost(now, choose, resolve), folding or FoldingBudget())
    try:
        run = compiler.compile(parse(text))
    except RecursionError as error:
        raise SyntaxFaultError("the expression is nested too deeply", text=text) from error
    return Query(text, frozenset(compiler.roots), compiler.takes_all, run)


def render_query(text: str) -> str:
    """Render the tree of a query as `kyverno jp parse` does."""
    return render_node(parse(text))


def parse_query(text: str) -> Json:
    """The tree of a query as JSON, to show how it was parsed."""
    return node_to_json(parse(text))


__all__ = [
    "FUNCTIONS",
    "FoldingBudget",
    "FunctionSpec",
    "NativeInteger",
    "Query",
    "compile_query",
    "parse_query",
    "render_query",
]
