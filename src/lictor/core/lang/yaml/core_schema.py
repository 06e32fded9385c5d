"""Parses YAML 1.2 to plain JSON, as Kubewarden's tools, which are not written in Go, do."""

import re
from collections.abc import Callable
from math import inf, nan

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.core.lang.yaml.nodes import check_aliases, compose, point_at
from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault
from lictor.core.raw import Json

_WORDS: dict[str, Json] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    ".inf": inf, ".Inf": inf, ".INF": inf, "+.inf": inf, "-.inf": -inf, "-.Inf": -inf,
    ".nan": nan, ".NaN": nan, ".NAN": nan,
}  # fmt: skip
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...] = (
    (re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    # Not `012`, which is text.
    (
        # re: linear - tried on a whole scalar, once for each alternative
        re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"),
        float,
    ),
)
# More digits than any number of JSON parsers.
_LONGEST_NUMBER = 400
_TEXT_TAGS = ("tag:yaml.org,2002:str", "!")


def compose_core_yaml(text: str) -> Node | None:
    """The only document as nodes, None if there is none; raises YamlFault with the position."""
    roots = list(compose(text))
    if len(roots) > 1:
        raise point_at(roots[1].start_mark, "one document is expected")
    if not roots:
        return None
    check_aliases(roots[0])
    return roots[0]


def build_core_yaml(root: Node | None) -> Json:
    """The value of nodes; `y`, `no`, `on` and the like are text."""
    return None if root is None else _build(root, 0)


def _build(node: Node, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise point_at(node.start_mark, f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, ScalarNode):
        return _read_scalar(node)
    if isinstance(node, SequenceNode):
        return [_build(each, depth + 1) for each in node.value]
    if isinstance(node, MappingNode):
        # Of a duplicate key, the last counts.
        return {_read_key(key): _build(value, depth + 1) for key, value in node.value}
    raise point_at(node.start_mark, "not expected here")


def _read_scalar(node: ScalarNode) -> Json:
    text: str = node.value
    if node.tag is None:
        return _read_plain(text)
    if node.tag in _TEXT_TAGS or not node.tag.startswith(("tag:", "!")):
        return text
    if node.tag.startswith("tag:yaml.org,2002:"):
        return _read_plain(text)
    raise point_at(node.start_mark, f"the tag {node.tag} is unknown")


def _read_plain(text: str) -> Json:
    if text in _WORDS:
        value = _WORDS[text]
        if value in (inf, -inf) or value != value:  # noqa: PLR0124  (not a number)
            raise YamlFault(f"{text} is not a JSON number")
        return value
    if len(text) <= _LONGEST_NUMBER and (text[0].isdigit() or text[0] in "+-."):
        for pattern, read in _NUMBERS:
            if pattern.fullmatch(text):
                number = read(text)
                return text if number in (inf, -inf) else number
    return text


def _read_key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise point_at(node.start_mark, "a key must be text")
    text: str = node.value
    return text
