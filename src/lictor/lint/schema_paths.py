"""Infers the types of JMESPath expressions, and checks the fields they read."""

import re
from collections.abc import Iterable
from functools import reduce

import msgspec

from lictor.core.errors import SyntaxFaultError
from lictor.core.facts.field_types import ANYTHING, FieldType
from lictor.core.lang.jmespath.parser import parse
from lictor.core.lang.jmespath.syntax import Node, NodeKind, Token
from lictor.core.model.finding import Finding, TextOffset
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.schema_kinds import FieldTypes, is_known
from lictor.lint.schema_values import describe_types, find_field, flag_unknown


def infer_types(text: str, types: FieldTypes, *, are_variables: bool = False) -> FieldTypes:
    """The types of an expression for a value or variables; empty if unknown."""
    try:
        trace = PathTrace(types if are_variables else ())
        return trace.infer(parse(text), types) if text and "{{" not in text else ()
    except SyntaxFaultError:
        return ()


class ExpressionInput(msgspec.Struct, frozen=True):
    """The input of expressions: the variables of a rule, or one value; and its owner."""

    types: FieldTypes
    label: str
    are_variables: bool = False


def check_path(part: Field, expression: tuple[str, int], asked: ExpressionInput) -> list[Finding]:
    """The missing fields that an expression at an offset of a field's text reads."""
    text, offset = expression
    roots = asked.types if asked.are_variables else ()
    trace = PathTrace(roots, part, offset, asked.label)
    try:
        trace.infer(parse(text), asked.types)
    except SyntaxFaultError:
        return []  # Syntax errors are reported elsewhere.
    return trace.findings


_PATH = re.compile(r"(?<![\w.\[\]])[\w.\[\]]*$")
_LAST_NAME = re.compile(r"(?<!\w)(\w+)\.$")
_STEPS = (NodeKind.SUBEXPRESSION, NodeKind.PIPE)
_SAME = (NodeKind.CURRENT, NodeKind.IDENTITY)
# Roots whose fields are reported as those of the rule's objects.
_OBJECT_ROOTS = ("", "request", "element")
_EQUALITIES = (Token.EQUAL, Token.NOT_EQUAL)


class PathTrace(msgspec.Struct):
    """One traversal of an expression; no types at all mean that nothing is known."""

    roots: FieldTypes = ()
    part: Field = Field(None)
    offset: int = 0
    label: str = ""
    findings: list[Finding] = []
    # The variable at the start of the current path.
    root: str = ""

    def infer(self, node: Node, types: FieldTypes) -> FieldTypes:
        """The types of the expression for a value of these types."""
        match node.kind:
            case NodeKind.FIELD:
                return self._field(node, types)
            case kind if kind in _STEPS:
                return self.infer(node.children[1], self.infer(node.children[0], types))
            case kind if kind in _SAME:
                return types
            case NodeKind.INDEX_EXPRESSION | NodeKind.FLATTEN:
                return self._unwrap(node, types)
            case NodeKind.PROJECTION | NodeKind.FILTER_PROJECTION | NodeKind.VALUE_PROJECTION:
                return self._project(node, types)
            case NodeKind.OR | NodeKind.MULTI_SELECT_LIST:
                return self._unite(node, types)
            case NodeKind.LITERAL:
                return () if node.value is None else (type_literal(node.value),)
            case NodeKind.EXPRESSION_REFERENCE:
                pass
            case _:
                found = [self.infer(child, types) for child in node.children]
                if node.kind is NodeKind.COMPARATOR:
                    self._compare(node, found)
        return ()

    def _unwrap(self, node: Node, types: FieldTypes) -> FieldTypes:
        left = self.infer(node.children[0], types)
        if node.kind is NodeKind.FLATTEN:
            return _flatten(left)
        return list_elements(left) if node.children[1].kind is NodeKind.INDEX else left

    def _project(self, node: Node, types: FieldTypes) -> FieldTypes:
        left = self.infer(node.children[0], types)
        is_object = node.kind is NodeKind.VALUE_PROJECTION
        elements = _list_values(left) if is_object else list_elements(left)
        if node.kind is NodeKind.FILTER_PROJECTION:
            self.infer(node.children[2], elements)
        return _list_of(self.infer(node.children[1], elements))

    def _unite(self, node: Node, types: FieldTypes) -> FieldTypes:
        parts = [self.infer(child, types) for child in node.children]
        united = unite_types(parts)
        return _list_of(united) if node.kind is NodeKind.MULTI_SELECT_LIST else united

    def _compare(self, node: Node, found: list[FieldTypes]) -> None:
        """A field of one type and a literal of another: never equal, and not ordered."""
        for literal, types in zip(node.children, reversed(found), strict=True):
            value = literal.value
            if literal.kind is not NodeKind.LITERAL or isinstance(value, (dict, list)):
                continue
            scalars = [each.scalar for each in types]
            # Null means a missing field.
            if value is None or not scalars or not is_known(types) or None in scalars:
                continue
            allowed = {kind for each in scalars if each is not None for kind in each}
            if not _can_meet(value, allowed, is_order=node.value not in _EQUALITIES):
                words = f"{describe_types(types)} with {describe_types((type_literal(value),))}"
                self._flag_type(literal, f"compares {words}, which never fits")

    def _list_names(self, node: Node) -> tuple[str, ...]:
        """The path before a field, as text."""
        before = _PATH.search(self.part.text[: self.offset + node.position])
        text = before[0].strip(".") if before else ""
        if self.root not in _OBJECT_ROOTS:
            text = text.removeprefix(self.root).removeprefix(".")
        for root in ("request.object", "request.oldObject"):
            text = text.removeprefix(root).removeprefix(".")
        # Of a list of several paths, only the end would be reported.
        return (text,) if text and not text.startswith("]") and "][" not in text else ()

    def _field(self, node: Node, types: FieldTypes) -> FieldTypes:
        name = str(node.value)
        if types is self.roots and self.roots:
            # Undefined variables are reported elsewhere.
            self.root = name
            return find_field(types, name)
        if not is_known(types):
            return ()
        found = find_field(types, name)
        if found:
            return found
        maps = tuple(each for each in types if each.fields or each.others is not None)
        offset = TextOffset(self.part.text, self.offset + node.position)
        if maps:
            finding = flag_unknown(
                self.part, name, maps, self._name_owner(), self._list_names(node)
            )
            self.findings.append(msgspec.structs.replace(finding, offset=offset))
        else:
            kind = describe_types(types)
            message = f'"{name}" is read from {kind}, which has no fields: the value is always null'
            before = _LAST_NAME.search(offset.text[: offset.offset])
            meant = f"{before[1]}[].{name}" if kind == "a list" and before else ""
            self.findings.append(flag("wrong-type", self.part.path, message, meant, offset))
        return ()

    def _name_owner(self) -> str:
        if self.root in _OBJECT_ROOTS:
            return self.label
        return "the target" if self.root == "target" else f'the variable "{self.root}"'

    def _flag_type(self, node: Node, message: str) -> None:
        offset = TextOffset(self.part.text, self.offset + node.position)
        self.findings.append(flag("wrong-type", self.part.path, message, offset=offset))


_NUMBERS = frozenset((int, float))
# Variables made of variables could have too many types.
_MOST_TYPES = 32


def _can_meet(value: object, allowed: set[type], *, is_order: bool) -> bool:
    """Whether a value of these types can be equal to a literal, or ordered with it."""
    is_number = type(value) in _NUMBERS
    if is_order:
        return is_number and bool(allowed & _NUMBERS)
    return bool(allowed & _NUMBERS) if is_number else type(value) in allowed


def list_elements(types: FieldTypes) -> FieldTypes:
    """The element types of the lists among types."""
    return tuple(each.element for each in types if each.element is not None)


def unite_types(parts: Iterable[FieldTypes]) -> FieldTypes:
    """The union; unknown if one of them is, or if there are too many."""
    listed = list(parts)
    if not all(listed):
        return ()
    united = {id(each): each for part in listed for each in part}
    return tuple(united.values()) if len(united) <= _MOST_TYPES else ()


def _list_of(types: FieldTypes) -> FieldTypes:
    return tuple(make_list(each) for each in types)


def make_list(each: FieldType) -> FieldType:
    """A list of things of a type."""
    made = FieldType()
    made.element = each
    return made


def _flatten(types: FieldTypes) -> FieldTypes:
    """Nested lists are joined; a list of other values is unchanged."""
    if not all(each.element is not None for each in types):
        return ()
    inner = list_elements(types)
    if not is_known(inner):
        return ()
    lists = tuple(each for each in inner if each.element is not None)
    return lists if len(lists) == len(inner) else () if lists else types


def _list_values(types: FieldTypes) -> FieldTypes:
    values = [value for each in types for value in each.fields.values()]
    return tuple([*values, *(each.others for each in types if each.others is not None)])


# --- what do values look like that stand in a policy: lists, objects and texts with variables?


# Deeper values are not typed.
_MAX_DEPTH = 30


def type_literal(value: Json, depth: int = 0) -> FieldType:
    """The type of a value. A value from a variable may be anything."""
    if depth > _MAX_DEPTH:
        return ANYTHING
    made = FieldType()
    match value:
        case dict():
            _fill(made, value, depth + 1)
        case list():
            made.element = _merge_all(type_literal(each, depth + 1) for each in value)
        case str() if value.strip().startswith("{{") and value.strip().endswith("}}"):
            return ANYTHING
        case bool() | str():
            made.scalar = frozenset((type(value),))
        case int() | float():
            made.scalar = frozenset((int, float))
    return made


def _fill(made: FieldType, value: dict[str, Json], depth: int) -> None:
    made.fields = {
        name: type_literal(inner, depth) for name, inner in value.items() if "{{" not in name
    }
    if len(made.fields) < len(value):
        made.others = ANYTHING


def _merge_all(types: Iterable[FieldType]) -> FieldType:
    listed = list(types)
    return reduce(_merge, listed) if listed else ANYTHING


def _merge(left: FieldType, right: FieldType) -> FieldType:
    """The union of two types."""
    made = FieldType()
    if left.scalar is not None and right.scalar is not None:
        made.scalar = left.scalar | right.scalar
    elif left.element is not None and right.element is not None:
        made.element = _merge(left.element, right.element)
    elif left.fields and right.fields:
        made.fields = {**left.fields, **right.fields}
        for name in left.fields.keys() & right.fields.keys():
            made.fields[name] = _merge(left.fields[name], right.fields[name])
        made.others = left.others or right.others
    return made
