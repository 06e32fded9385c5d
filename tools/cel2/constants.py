"""What is known of a part of an expression before it is evaluated."""

from collections.abc import Sequence

from cel2.functions import Functions, Implementation, bind_call
from cel2.syntax import Call, ListNode, Literal, MapNode, Node
from cel2.types import Type
from cel2.values import Optional, Value

_CONVERSIONS = (
    "bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint",
)  # fmt: skip


def find_implementation(functions: Functions, node: Call, parts: Sequence[Node]) -> Implementation:
    """What a call runs."""
    certain = [_certain_type(part, functions) for part in parts]
    implementation = bind_call(functions[node.function], node.overloads, certain)
    has_pattern = node.function in ("find", "findAll", "matches") and _is_fixed(parts[1])
    return _unwrapping(implementation) if has_pattern else implementation


def _is_fixed(node: Node) -> bool:
    return isinstance(node, Literal) or (isinstance(node, Call) and is_converted_literal(node))


def _unwrapping(implementation: Implementation) -> Implementation:
    """With a constant pattern, cel-go takes optionals for what they hold."""

    def run(*args: Value) -> Value:
        return implementation(*[a.value if type(a) is Optional and a.content else a for a in args])

    return run


def _certain_type(node: Node, functions: Functions) -> Type | None:
    """The type that a value is sure to have; what comes from dyn may have another one."""
    if isinstance(node, Literal):
        return node.type
    # A function that does its own dispatch may return other types than its signature has.
    if not isinstance(node, Call) or functions[node.function].is_single or len(node.overloads) > 1:
        return None
    result: Type = node.overloads[0].result
    return None if result.kind == "dyn" or _has_param(result) else result


def _has_param(of: Type) -> bool:
    return of.kind == "param" or any(map(_has_param, of.params))


def is_converted_literal(node: Call) -> bool:
    """Whether a call converts a literal, which cel-go does only once."""
    if node.function not in _CONVERSIONS:
        return False
    return _is_fixed(node.args[0])


def read_constant(node: Node) -> tuple[bool, Value]:
    """Whether a node is a literal, or a list or a map of them, and its value."""
    if isinstance(node, Literal):
        return True, node.value
    if isinstance(node, ListNode) and not node.optionals:
        parts = [read_constant(element) for element in node.elements]
        return all(known for known, _ in parts), [value for _, value in parts]
    if not isinstance(node, MapNode) or any(entry.is_optional for entry in node.entries):
        return False, None
    pairs = [(read_constant(e.key), read_constant(e.value)) for e in node.entries if e.key]
    known = all(key[0] and value[0] and type(key[1]) is str for key, value in pairs)
    return known, {key[1]: value[1] for key, value in pairs} if known else None
