"""A query's tree drawn as text, with values as Go's `%#v` writes them."""

import json

from lictor.lang.go_number import format_general
from lictor.lang.jmespath.nodes import Kind, Node
from lictor.lang.jmespath.tokens import Token
from lictor.raw import Json


def render_node(node: Node, indent: int = 0) -> str:
    """Draw a node and what is below it. The braces after children stay open, as in the original."""
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
    if node.kind is Kind.SLICE:
        # The original prints addresses of numbers here; the numbers themselves say more.
        return ":".join("" if part is None else str(part) for part in node.value)
    if node.kind is Kind.INDEX:
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
