"""The parts of a parsed query: a tree of nodes, with the names that printed trees have for them."""

from enum import StrEnum

import msgspec
from msgspec.structs import force_setattr

from lictor.raw import Json


class Kind(StrEnum):
    """What a node stands for."""

    AND = "ASTAndExpression"
    COMPARATOR = "ASTComparator"
    CURRENT = "ASTCurrentNode"
    EXPRESSION_REFERENCE = "ASTExpRef"
    FIELD = "ASTField"
    FILTER_PROJECTION = "ASTFilterProjection"
    FLATTEN = "ASTFlatten"
    FUNCTION = "ASTFunctionExpression"
    IDENTITY = "ASTIdentity"
    INDEX = "ASTIndex"
    INDEX_EXPRESSION = "ASTIndexExpression"
    KEY_VALUE = "ASTKeyValPair"
    LITERAL = "ASTLiteral"
    MULTI_SELECT_HASH = "ASTMultiSelectHash"
    MULTI_SELECT_LIST = "ASTMultiSelectList"
    NOT = "ASTNotExpression"
    OR = "ASTOrExpression"
    PIPE = "ASTPipe"
    PROJECTION = "ASTProjection"
    SLICE = "ASTSlice"
    SUBEXPRESSION = "ASTSubexpression"
    VALUE_PROJECTION = "ASTValueProjection"


class Node(msgspec.Struct, frozen=True):
    """One part of a query; `depth` is the height of the tree below it."""

    kind: Kind
    children: tuple["Node", ...] = ()
    value: Json = None
    position: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        force_setattr(self, "depth", 1 + max((c.depth for c in self.children), default=0))


IDENTITY = Node(Kind.IDENTITY)


def node_to_json(node: Node) -> Json:
    """Give the tree as plain JSON: type, value where there is one, children where there are any."""
    document: dict[str, Json] = {"type": node.kind.value}
    if node.value is not None:
        document["value"] = node.value
    if node.children:
        document["children"] = [node_to_json(child) for child in node.children]
    return document
