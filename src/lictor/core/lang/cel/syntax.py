"""The syntax tree of an expression; each node knows where it stands and, once checked, its type."""

from typing import Any

import msgspec

from lictor.core.lang.cel.types import DYN, CelType


class _Checked(msgspec.Struct, eq=False, kw_only=True):
    type: CelType = DYN
    # How many levels of nested operators, calls and selections the node has.
    depth: int = 0


class CelNode(_Checked):
    """A part of an expression, and its offset in the source."""

    position: int


class Literal(CelNode):
    """A constant."""

    value: Any


class Ident(CelNode):
    """A variable or a type; the checker resolves `name`, and sets `constant` for a type."""

    name: str
    constant: Any = None
    is_local: bool = False


class Select(CelNode):
    """`operand.field`; with `is_test` the presence test of has().

    `resolved` is the declared variable, or type, whose dotted name this is.
    """

    operand: CelNode
    field: str
    is_optional: bool = False
    is_test: bool = False
    resolved: Ident | None = None


class Call(CelNode):
    """A call of a function, a method or an operator.

    `overloads` are those that the static types allow; the checker finds them.
    """

    function: str
    args: list[CelNode]
    target: CelNode | None = None
    overloads: list[Any] = []


class ListNode(CelNode):
    """`[a, ?b]`."""

    elements: list[CelNode]
    optionals: frozenset[int] = frozenset()


class Entry(CelNode):
    """An entry of a map, with a key of any type, or a field of a struct, with a name."""

    key: CelNode | None
    name: str
    value: CelNode
    is_optional: bool = False


class MapNode(CelNode):
    """`{key: value}`."""

    entries: list[Entry]


class StructNode(CelNode):
    """`Type{field: value}`."""

    name: str
    entries: list[Entry]


class Fold(CelNode):
    """A comprehension in its general form; `macro` is the name of its macro.

    `body` has the parts that the macro's caller wrote: predicate, filter, transform.
    """

    macro: str
    range: CelNode
    variables: tuple[str, str]
    initial: CelNode
    condition: CelNode
    step: CelNode
    result: CelNode
    body: tuple[CelNode | None, CelNode | None] = (None, None)
    accumulator: str = "@result"


def list_children(node: CelNode) -> list[CelNode]:
    """The parts of a node that the author wrote, in order."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [node.target, *node.args] if node.target is not None else node.args
        case ListNode():
            return node.elements
        case MapNode() | StructNode():
            pairs = [(entry.key, entry.value) for entry in node.entries]
            return [part for pair in pairs for part in pair if part is not None]
        case Fold(macro="bind"):
            return [node.initial, node.result]
        case Fold():
            return [node.range, *(part for part in node.body if part is not None)]
    return []
