"""JMESPath into CEL: a tree of nodes becomes a value, a list that is gone through, or a test.

JMESPath gives null for what is not there, CEL fails. So a value carries what must hold for it to be
there; where Kyverno would fail too (a plain path to nothing), those guards are left out.
"""

import re
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import all_of, any_of, compare, negate, render
from lictor.addons.convert.cel_values import LIST, TEXT, CelValue, LoopNames
from lictor.addons.convert.functions import FUNCTIONS, image_parts, images_of, is_images
from lictor.addons.convert.navigation import (
    as_stream,
    names_inside,
    require,
    step_into,
    with_default,
)
from lictor.addons.convert.value import (
    NOTHING,
    Constant,
    Either,
    ExpressionScope,
    LoopList,
    LoopSource,
    RequestValue,
    ResourcePath,
    Several,
    TestValue,
    Value,
    as_cel_value,
    collect,
    guard,
    is_equal,
    is_true,
    pick,
    settle,
)
from lictor.addons.convert.writing import quote, wrap
from lictor.core.errors import CompileError
from lictor.core.lang.jmespath.parser import parse
from lictor.core.lang.jmespath.syntax import Node, NodeKind, Token
from lictor.core.lang.template import has_variables

_INNER = re.compile(r"'\s*\{\{([^{}]*)\}\}\s*'")
_VARIABLE = re.compile(r"\{\{((?:'\{\{[^{}]*\}\}'|[^{}]|\{[^{}]*\})*)\}\}")
_MARK = "\x01"
_ORDER = {
    Token.LESS: "<",
    Token.LESS_OR_EQUAL: "<=",
    Token.GREATER: ">",
    Token.GREATER_OR_EQUAL: ">=",
}


def translate_query(text: str, scope: ExpressionScope, current: Value | None = None) -> Value:
    """The value of an expression; raises CompileError if it has no equivalent.

    Where the scope is strict, a path to nothing is an error, as it is to Kyverno in most places.
    `current` is what the expression looks at, where that is not the variables of the rule.
    """
    inner: list[Value] = []

    def mark(found: re.Match[str]) -> str:
        inner.append(translate_query(found.group(1).strip(), scope))
        return f"'{_MARK}{len(inner) - 1}'"

    plain = _INNER.sub(mark, text)
    if "{{" in plain or _MARK in text:
        raise CompileError(f"a variable inside of an expression: {text.strip()}")
    try:
        node = parse(plain.strip())
        at = _At(current, scope.names, strict=scope.strict)
        found = _Translator(scope, tuple(inner)).visit(node, at)
    except RecursionError as error:
        raise CompileError("an expression is nested too deeply") from error
    return require(found) if scope.strict and isinstance(found, ResourcePath) else found


def translate_text(text: str, scope: ExpressionScope) -> Value:
    """A text with or without variables."""
    if not has_variables(text):
        return Constant(text.replace("\\{{", "{{"))
    pieces = _VARIABLE.split(text)
    if len(pieces) == 3 and not pieces[0] and not pieces[2]:
        return translate_query(pieces[1], scope)
    if any("{{" in piece for piece in pieces[::2]):
        raise CompileError(f"variables within variables: {text}")
    parts = [
        quote(piece) if index % 2 == 0 else write_text(translate_query(piece, scope))
        for index, piece in enumerate(pieces)
        if piece or index % 2
    ]
    return CelValue(" + ".join(parts), TEXT)


def write_text(value: Value) -> str:
    """A value as a part of a text."""
    value = settle(value)
    if isinstance(value, Either):
        then, other = write_text(value.then), write_text(value.other)
        return f"({render(value.condition)} ? {then} : {other})"
    operand = as_cel_value(value)
    if operand.type == "string":
        return wrap(operand.text)
    if operand.type in ("list", "map"):
        raise CompileError("a list or a map is put into a text")
    return f"string({operand.text})"


class _At(msgspec.Struct, frozen=True):
    """Where a node is looked at: from which value (None: the root), and how."""

    current: Value | None
    names: LoopNames
    strict: bool = False

    def leniently(self) -> "_At":
        return replace(self, strict=False)

    def move(self, current: Value) -> "_At":
        return replace(self, current=current)

    def within(self, stream: LoopList, current: Value) -> "_At":
        return _At(current, names_inside(stream, self.names))

    @property
    def known(self) -> Value:
        if self.current is None:
            raise CompileError("all variables at once")
        return self.current


class _Translator(msgspec.Struct, frozen=True):
    scope: ExpressionScope
    inner: tuple[Value, ...] = ()

    def visit(self, node: Node, at: _At) -> Value:
        """The value of a node."""
        build = _BUILDERS.get(node.kind)
        if build is None:
            raise CompileError(f"no equivalent for {node.kind.value.removeprefix('AST')}")
        return build(self, node, at)

    def _both_sides(self, node: Node, at: _At) -> tuple[Value, Value]:
        left, right = (settle(self.visit(child, at.leniently())) for child in node.children)
        return left, right

    # --- paths

    def field(self, node: Node, at: _At) -> Value:
        current = at.current
        if current is None:
            return self._root(node.value, strict=at.strict)
        if isinstance(current, ResourcePath | RequestValue):
            return step_into(current, node.value, strict=at.strict)
        return pick(current, lambda one: step_into(one, node.value, strict=at.strict))

    def _root(self, name: str, *, strict: bool) -> Value:
        if name == "request":
            return RequestValue(self.scope.subject)
        found = self.scope.find(name)
        return require(found) if strict else found

    def chain(self, node: Node, at: _At) -> Value:
        left, right = node.children
        if is_images(left):
            return self._images(node, at)
        first = self.visit(left, at)
        if right.kind is NodeKind.FIELD or (
            right.kind is NodeKind.MULTI_SELECT_LIST
            and isinstance(first, ResourcePath | RequestValue)
        ):
            return self.visit(right, at.move(first))
        if at.strict:
            first = require(first)

        def follow(one: Value) -> Value:
            if not isinstance(one, CelValue) or not one.guards:
                return self.visit(right, at.move(one))
            there = replace(one, guards=(), chain="")
            return guard(self.visit(right, at.move(there)), one.guards)

        return pick(first, follow)

    def _images(self, node: Node, at: _At) -> Value:
        if not self.scope.kyverno:
            raise CompileError("images: the API server's CEL cannot take image names apart")
        return images_of(node.children[1].value, self.scope.subject, at.names)

    def index(self, node: Node, at: _At) -> Value:
        index = node.value

        def item(one: Value) -> Value:
            if index < 0:
                raise CompileError("an element counted from the end")
            if isinstance(one, Several):
                return one.items[index] if index < len(one.items) else NOTHING
            if isinstance(one, LoopList):
                return CelValue(collect(one), LIST).item(index)
            return one.item(index) if isinstance(one, CelValue) else NOTHING

        return pick(at.known, item)

    # --- plain values

    def current(self, _node: Node, at: _At) -> Value:
        return at.known

    def literal(self, node: Node, _at: _At) -> Value:
        if isinstance(node.value, str) and node.value.startswith(_MARK):
            return self.inner[int(node.value[1:])]
        return Constant(node.value)

    def several(self, node: Node, at: _At) -> Value:
        return Several(tuple(self.visit(child, at.leniently()) for child in node.children))

    # --- operators

    def either(self, node: Node, at: _At) -> Value:
        left, right = self._both_sides(node, at)
        if isinstance(left, TestValue) and isinstance(right, TestValue):
            return TestValue(any_of((left.test, right.test)))
        return with_default(left, right)

    def both(self, node: Node, at: _At) -> Value:
        left, right = self._both_sides(node, at)
        if isinstance(left, TestValue) and isinstance(right, TestValue):
            return TestValue(all_of((left.test, right.test)))
        return Either(is_true(left), right, left)

    def negation(self, node: Node, at: _At) -> Value:
        return TestValue(negate(is_true(self.visit(node.children[0], at.leniently()))))

    def comparison(self, node: Node, at: _At) -> Value:
        left, right = self._both_sides(node, at)
        if node.value in (Token.EQUAL, Token.NOT_EQUAL):
            same = is_equal(left, right)
            return TestValue(same if node.value is Token.EQUAL else negate(same))
        one, other = as_cel_value(left), as_cel_value(right)
        test = compare(wrap(one.text), _ORDER[node.value], wrap(other.text))
        return TestValue(all_of((one.present, other.present, test)))

    def pipe(self, node: Node, at: _At) -> Value:
        left, right = node.children
        first = settle(self.visit(left, at.leniently()))
        return self.visit(right, at.leniently().move(first))

    # --- lists

    def flatten(self, node: Node, at: _At) -> Value:
        found = self.visit(node.children[0], at.leniently())
        return pick(found, lambda one: self._flat(one, at.names))

    def _flat(self, one: Value, names: LoopNames) -> Value:
        if isinstance(one, Several):
            return self._concatenate(one, names)
        stream = as_stream(one, names)
        if not isinstance(stream, LoopList):
            return NOTHING
        item = settle(stream.item)
        if isinstance(item, LoopList):
            return LoopList((*stream.sources, *item.sources), item.item)
        if isinstance(item, CelValue) and (item.type == "list" or (not item.type and item.label)):
            inner = as_stream(item, names_inside(stream, names))
            if isinstance(inner, LoopList):
                return LoopList((*stream.sources, *inner.sources), inner.item)
        return stream

    def _concatenate(self, lists: Several, names: LoopNames) -> Value:
        operands = [settle(item) for item in lists.items]
        known = [operand for operand in operands if isinstance(operand, CelValue)]
        if len(known) < len(operands) or any(operand.type not in ("list", "") for operand in known):
            return lists
        text = " + ".join(operand.or_value("[]") for operand in known)
        labels = [operand.label for operand in known]
        name = "allContainers" if "containers" in labels else labels[0] or "items"
        label = name.removeprefix("all")
        return as_stream(CelValue(self.scope.hoist(name, text), known[0].shape, label=label), names)

    def projection(self, node: Node, at: _At) -> Value:
        left, right = node.children
        found = self.visit(left, at.leniently())
        return pick(found, lambda one: self._project(as_stream(one, at.names), right, at))

    def _project(self, stream: Value, right: Node, at: _At) -> Value:
        if isinstance(stream, Several):
            lenient = at.leniently()
            return Several(tuple(self.visit(right, lenient.move(one)) for one in stream.items))
        if not isinstance(stream, LoopList):
            return NOTHING
        if right.kind is NodeKind.IDENTITY:
            return stream
        item = settle(stream.item)
        if isinstance(item, CelValue) and item.guards:
            there = replace(item, guards=(), chain="")
            made = self.visit(right, at.within(stream, there))
            return LoopList(stream.sources, guard(made, item.guards))
        return LoopList(stream.sources, self.visit(right, at.within(stream, item)))

    def values(self, node: Node, at: _At) -> Value:
        left, right = node.children
        if left.kind is NodeKind.SUBEXPRESSION and is_images(left.children[0]):
            return image_parts(self._images(left, at), right)
        found = self.visit(left, at.leniently())

        def project(one: Value) -> Value:
            if not isinstance(one, CelValue):
                return NOTHING
            name, _ = at.names.fresh("key")
            item = CelValue(f"{wrap(one.text)}[{name}]", one.shape.value)
            return self._project(LoopList((LoopSource(one, name),), item), right, at)

        return pick(found, project)

    def filter(self, node: Node, at: _At) -> Value:
        left, right, condition = node.children
        found = self.visit(left, at.leniently())

        def project(one: Value) -> Value:
            stream = as_stream(one, at.names)
            if not isinstance(stream, LoopList):
                return NOTHING
            keep = is_true(self.visit(condition, at.within(stream, stream.item)))
            *before, last = stream.sources
            kept = replace(last, keep=all_of((last.keep, keep)))
            return self._project(LoopList((*before, kept), stream.item), right, at)

        return pick(found, project)

    # --- functions

    def function(self, node: Node, at: _At) -> Value:
        call = FUNCTIONS.get(node.value)
        if call is None:
            raise CompileError(f"the function {node.value} has no equivalent")
        arguments = [settle(self.visit(child, at.leniently())) for child in node.children]
        return call(self.scope, at.names, *arguments)


_BUILDERS: dict[NodeKind, Callable[[_Translator, Node, _At], Value]] = {
    NodeKind.AND: _Translator.both,
    NodeKind.COMPARATOR: _Translator.comparison,
    NodeKind.CURRENT: _Translator.current,
    NodeKind.FIELD: _Translator.field,
    NodeKind.FILTER_PROJECTION: _Translator.filter,
    NodeKind.FLATTEN: _Translator.flatten,
    NodeKind.FUNCTION: _Translator.function,
    NodeKind.IDENTITY: _Translator.current,
    NodeKind.INDEX: _Translator.index,
    NodeKind.INDEX_EXPRESSION: _Translator.chain,
    NodeKind.LITERAL: _Translator.literal,
    NodeKind.MULTI_SELECT_LIST: _Translator.several,
    NodeKind.NOT: _Translator.negation,
    NodeKind.OR: _Translator.either,
    NodeKind.PIPE: _Translator.pipe,
    NodeKind.PROJECTION: _Translator.projection,
    NodeKind.SUBEXPRESSION: _Translator.chain,
    NodeKind.VALUE_PROJECTION: _Translator.values,
}
