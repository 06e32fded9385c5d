"""What do expressions in CEL ask of single fields, as far as they are plain comparisons?"""

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from lictor.errors import SyntaxFaultError
from lictor.lang.cel.environment import Environment
from lictor.lang.cel.expression import (
    NO_VARIABLES,
    Variables,
    declare_variable,
    serialize_expression,
)
from lictor.lang.cel.tree import CelNode, Tree, read_tree
from lictor.lang.wildcard import has_wildcard
from lictor.lint.cluster_mutations import KeyPath
from lictor.lint.field import Field
from lictor.lint.field_constraints import (
    UNKNOWN,
    CheckConstraints,
    FieldConstraint,
    has_items,
    join_all,
    join_any,
)
from lictor.lint.value_sets import (
    ANY_VALUE,
    Text,
    ValuePart,
    ValueSet,
    is_within,
    negate,
    read_compared,
    read_equal,
)
from lictor.raw import Json

_SIGNS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS: Final = {"startsWith": "{}*", "endsWith": "*{}", "contains": "*{}*"}


class _FieldRef(msgspec.Struct, frozen=True):
    """A field of the object, and where on the way to it something may be absent."""

    path: KeyPath
    absent: frozenset[int] = frozenset()
    # What stands for it where it is absent; without one, an expression fails.
    default: Json = None
    has_default: bool = False


class _Asked(msgspec.Struct, frozen=True):
    """One expression, as it is read."""

    tree: Tree
    at: Field
    # What names stand for: the object, and elements of lists in it.
    fields: Mapping[str, _FieldRef]
    is_negated: bool = False


def declare_variables(variables: Field, environment: Environment) -> Variables | None:
    """The variables of a policy; None where one of them does not compile."""
    declared = NO_VARIABLES
    try:
        for each in variables.each():
            declared = declare_variable(
                declared, each["name"].text, each["expression"].text, environment
            )
    except SyntaxFaultError:
        return None
    return declared


def read_validation(at: Field, environment: Environment, variables: Variables) -> CheckConstraints:
    """What an expression asks for that must be true."""
    try:
        _, code = serialize_expression(at.text, environment, variables)
    except SyntaxFaultError:
        return UNKNOWN
    tree = read_tree(code)
    return _read(tree.root, _Asked(tree, at, {"object": _FieldRef(())}))


def _read(node: CelNode, asked: _Asked) -> CheckConstraints:
    if node.kind == "comprehension":
        return _read_all(node, asked)
    if node.kind == "select" and node.is_test:
        return _read_presence(node, asked)
    field = _find(node, asked)
    if field is not None or node.kind != "call":
        return _tell(field, (Text("false" if asked.is_negated else "true"),), asked)
    match node.name:
        case "!_":
            turned = msgspec.structs.replace(asked, is_negated=not asked.is_negated)
            return _read(node.parts[0], turned)
        case "_&&_" | "_||_":
            joins = (node.name == "_&&_") != asked.is_negated
            join = join_all if joins else join_any
            return join(_read(part, asked) for part in node.parts)
        case "_?_:_":
            return _read_choice(node, asked)
        case _:
            return _read_comparison(node, asked)


def _read_choice(node: CelNode, asked: _Asked) -> CheckConstraints:
    """`condition ? test : true`, and the same with false."""
    condition, test, otherwise = node.parts
    value = _read_constant(otherwise, asked.tree)
    if asked.is_negated or not isinstance(value, bool):
        return UNKNOWN
    turned = msgspec.structs.replace(asked, is_negated=value)
    join = join_any if value else join_all
    return join((_read(condition, turned), _read(test, asked)))


def _read_all(node: CelNode, asked: _Asked) -> CheckConstraints:
    """`list.all(item, test)`."""
    around, _start, _condition, step, _result = node.parts
    field = _find(around, asked)
    is_all = step.kind == "call" and step.name == "_&&_" and len(step.parts) == 2
    if field is None or field.has_default or not is_all or asked.is_negated or node.names[1]:
        return UNKNOWN
    path = (*field.path, "*")
    absent = field.absent if has_items(field.path) else field.absent | {len(path)}
    inner = {**asked.fields, node.names[0]: _FieldRef(path, absent)}
    return _read(step.parts[1], msgspec.structs.replace(asked, fields=inner))


def _read_presence(node: CelNode, asked: _Asked) -> CheckConstraints:
    """`has(object.field)`."""
    field = _find(node.parts[0], asked)
    if field is None or field.has_default:
        return UNKNOWN
    path = (*field.path, node.name)
    allowed = ValueSet((ANY_VALUE,), field.absent)
    if asked.is_negated:
        allowed = ValueSet((), field.absent | {len(path)})
    return CheckConstraints((FieldConstraint(path, allowed, asked.at.path),), is_complete=True)


def _read_comparison(node: CelNode, asked: _Asked) -> CheckConstraints:
    if len(node.parts) != 2:
        return UNKNOWN
    left, right = node.parts
    sign = _SIGNS.get(node.name, "")
    if left.kind == "constant":
        left, right, sign = right, left, _TURNED.get(sign, "")
        if node.name not in ("_==_", "_!=_") and not sign:
            return UNKNOWN
    parts = _read_values(node, sign, right, asked)
    if parts is not None and (node.name == "_!=_") != asked.is_negated:
        parts = negate(parts)
    return UNKNOWN if parts is None else _tell(_find(left, asked), parts, asked)


def _read_values(
    node: CelNode, sign: str, right: CelNode, asked: _Asked
) -> tuple[ValuePart, ...] | None:
    listed = right.parts if right.kind == "list" and node.name == "@in" else (right,)
    constants = [_read_constant(each, asked.tree) for each in listed]
    if not listed or any(part is None for part in constants):
        return None
    if node.name in ("_==_", "_!=_", "@in"):
        found = [_read_equal(each) for each in constants]
    elif sign:
        found = [read_compared(sign, constants[0]) if not isinstance(constants[0], str) else None]
    elif node.name in _TEXT_TESTS and isinstance(constants[0], str):
        found = [Text(_TEXT_TESTS[node.name].format(constants[0]))]
    else:
        return None
    parts = tuple(part for part in found if part is not None)
    return parts if len(parts) == len(found) else None


def _read_equal(value: Json) -> ValuePart | None:
    # A text is never equal to a number here.
    return Text(value) if isinstance(value, str) else read_equal(value)


def _read_constant(node: CelNode, tree: Tree) -> Json:
    """A literal; None for null, for what is none, and for texts that look like patterns."""
    if node.kind != "constant":
        return None
    kind = tree.kinds.get(node.number)
    match kind.name if kind is not None else "":
        case "bool":
            return bool(node.value)
        case "string" if isinstance(node.value, str) and not has_wildcard(node.value):
            return node.value
        case "int" | "uint" if isinstance(node.value, int):
            return node.value - (1 << 64) if node.value >= 1 << 63 else node.value
        case "double" if isinstance(node.value, bytes) and len(node.value) == 8:
            return struct.unpack("<d", node.value)[0]
    return None


# --- fields


def _find(node: CelNode, asked: _Asked) -> _FieldRef | None:
    """The field that a part of an expression reads."""
    if node.kind == "ident":
        return asked.fields.get(node.name)
    if node.kind == "select" and not node.is_test:
        return _enter(_find(node.parts[0], asked), node.name)
    if node.kind != "call" or len(node.parts) != 2:
        return None
    before = _find(node.parts[0], asked)
    value = _read_constant(node.parts[1], asked.tree)
    match node.name:
        case "_[_]" if isinstance(value, str):
            return _enter(before, value)
        case "_[?_]" if isinstance(value, str):
            return _enter(before, value, is_optional=True)
        case "_?._":
            # The name of a field has no type.
            return _enter(before, str(node.parts[1].value), is_optional=True)
        case "orValue" if before is not None and value is not None and _is_optional(before):
            return msgspec.structs.replace(before, default=value, has_default=True)
        case _:
            return None


def _is_optional(field: _FieldRef) -> bool:
    return len(field.path) in field.absent


def _enter(field: _FieldRef | None, name: str, *, is_optional: bool = False) -> _FieldRef | None:
    if field is None or field.has_default:
        return None
    path = (*field.path, name)
    # What follows an optional field is optional itself.
    if is_optional or (path[:-1] and path[-2] != "*" and _is_optional(field)):
        return _FieldRef(path, field.absent | {len(path)})
    return _FieldRef(path, field.absent)


def _tell(field: _FieldRef | None, parts: tuple[ValuePart, ...], asked: _Asked) -> CheckConstraints:
    if field is None or not field.path or field.path[-1] == "*":
        return UNKNOWN
    absent = field.absent
    if field.has_default:
        given = _read_equal(field.default)
        fits = given is not None and is_within(ValueSet((given,)), ValueSet(parts))
        # Below the last list, what is absent is the default; above it, nothing is asked.
        start = max((n for n, key in enumerate(field.path, 1) if key == "*"), default=0)
        kept = {depth for depth in absent if depth <= start}
        absent = absent if fits else frozenset(kept)
    found = FieldConstraint(field.path, ValueSet(parts, absent), asked.at.path)
    return CheckConstraints((found,), is_complete=True)
