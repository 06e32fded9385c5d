"""The tree of an expression as text, indented."""

from lictor.raw import Json, JsonObject
from lictor.report.json_text import render_json

_COMPARATORS = {"==": "tEQ", "!=": "tNE", "<": "tLT", "<=": "tLTE", ">": "tGT", ">=": "tGTE"}


def render_tree(node: JsonObject, indent: str = "") -> str:
    """A node with its value and children; ends in a newline.

    Children are not closed by a brace of their own: the tools that print such trees never did.
    """
    lines = [f"{indent}{node['type']} {{\n"]
    if "value" in node:
        lines.append(f"{indent}  value: {_render_value(node)}\n")
    children = node.get("children")
    if children:
        lines.append(f"{indent}  children: {{\n")
        lines += [render_tree(child, f"{indent}    ") for child in children]
    lines.append(f"{indent}}}\n")
    return "".join(lines)


def _render_value(node: JsonObject) -> str:
    value: Json = node["value"]
    if node["type"] == "ASTComparator":
        return _COMPARATORS.get(str(value), str(value))
    return render_json(value)
