"""Reads an expression into a syntax tree, in linear time and with the limits of Kubernetes."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lictor.core.lang.cel.faults import CelCompileError, Issue
from lictor.core.lang.cel.lexer import CelLexeme, fail, read_bytes, read_string, split_tokens
from lictor.core.lang.cel.syntax import (
    Call,
    CelNode,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
    StructNode,
)
from lictor.core.lang.cel.values import UInt

MAX_DEPTH = 250
_MAX_ISSUES = 100

# A macro by name, number of arguments and whether it is a method; None leaves the call as it is.
Macro = Callable[[int, CelNode | None, list[CelNode]], CelNode | None]
MacroKey = tuple[str, int, bool]

_RESERVED = frozenset((
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in",
    "let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while",
))  # fmt: skip
_LEVELS = {
    "||": 1, "&&": 2, "<": 3, "<=": 3, ">=": 3, ">": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_OPERATORS = {word: f"_{word}_" for word in _LEVELS} | {"in": "@in"}
_DEEP = 40
_FRAMES_PER_LEVEL = 16


class MacroError(Exception):
    """Arguments that a macro does not take."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


def parse_expression(
    source: str, macros: Mapping[MacroKey, Macro], *, quoted: bool = True
) -> CelNode:
    """Parse, with macros expanded; CelCompileError for what is not in the grammar.

    `quoted`: selectors in backquotes, which Kubernetes has since 1.36.
    """
    return _Parser(source, macros, quoted=quoted).parse()


@contextmanager
def deep_recursion(depth: int) -> Iterator[None]:
    """Allow as many nested calls as a nested expression needs; the parser bounds the nesting."""
    limit = sys.getrecursionlimit()
    if depth > _DEEP:
        sys.setrecursionlimit(limit + depth * _FRAMES_PER_LEVEL)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


class _Parser:
    def __init__(self, source: str, macros: Mapping[MacroKey, Macro], *, quoted: bool) -> None:
        self._source = source
        self._macros = macros
        self._quoted = quoted
        self._tokens = split_tokens(source)
        self._index = 0
        self._level = 0
        self._issues: list[Issue] = []

    def parse(self) -> CelNode:
        with deep_recursion(min(self._count_nesting(), MAX_DEPTH + 1)):
            node = self._expression()
        token = self._tokens[self._index]
        if token.kind != "end":
            raise self._unexpected(token, "<EOF>")
        if self._issues:
            raise CelCompileError(self._issues, self._source)
        return node

    def _count_nesting(self) -> int:
        level = deepest = 0
        for token in self._tokens:
            if token.kind in ("(", "[", "{", "?"):
                level += 1
                deepest = max(deepest, level)
            elif token.kind in (")", "]", "}"):
                level -= 1
        return deepest

    # -- tokens

    def _unexpected(self, token: CelLexeme, wanted: str) -> CelCompileError:
        return fail(
            self._source, token.position, f"mismatched input '{token.text}' expecting {wanted}"
        )

    def _accept(self, kind: str) -> CelLexeme | None:
        token = self._tokens[self._index]
        if token.kind != kind:
            return None
        self._index += 1
        return token

    def _expect(self, kind: str) -> CelLexeme:
        token = self._tokens[self._index]
        if token.kind != kind:
            raise self._unexpected(token, f"'{kind}'")
        self._index += 1
        return token

    def _report(self, position: int, message: str) -> CelNode:
        self._issues.append(Issue(position, message))
        if len(self._issues) > _MAX_ISSUES:
            raise CelCompileError(self._issues, self._source)
        return Literal(position, None)

    def _nest(self, node: CelNode, *children: CelNode) -> CelNode:
        """Note how deep a tree has become; cel-go refuses trees of more than 250 levels."""
        node.depth = 1 + max([child.depth for child in children], default=0)
        if node.depth > MAX_DEPTH:
            raise CelCompileError(
                [Issue(node.position, "max recursion depth exceeded")], self._source
            )
        return node

    # -- operators

    def _expression(self) -> CelNode:
        self._level += 1
        if self._level > MAX_DEPTH:
            message = f"expression recursion limit exceeded: {MAX_DEPTH}"
            raise CelCompileError([Issue(0, message)], self._source)
        node = self._operators()
        mark = self._accept("?")
        if mark is not None:
            first = self._operators()
            self._expect(":")
            second = self._expression()
            node = self._nest(
                Call(mark.position, "_?_:_", [node, first, second]), node, first, second
            )
        self._level -= 1
        return node

    def _operators(self) -> CelNode:
        """Binary operators by precedence, with explicit stacks instead of recursion."""
        operands = [self._unary()]
        pending: list[CelLexeme] = []
        chains: set[int] = set()
        while True:
            token = self._tokens[self._index]
            level = _LEVELS.get(token.kind, 0)
            while pending and _LEVELS[pending[-1].kind] >= level:
                self._reduce(operands, pending.pop(), chains)
            if not level:
                return operands[0]
            pending.append(token)
            self._index += 1
            operands.append(self._unary())

    def _reduce(self, operands: list[CelNode], operator: CelLexeme, chains: set[int]) -> None:
        right, left = operands.pop(), operands.pop()
        name = _OPERATORS[operator.kind]
        call = Call(operator.position, name, [left, right])
        operands.append(call)
        if operator.kind not in ("||", "&&"):
            self._nest(call, left, right)
            return
        # One node for a chain: `a && b && c` needs no nesting.
        if isinstance(left, Call) and left.function == name and id(left) in chains:
            call.args = [*left.args, right] if len(left.args) < 3 else left.args
            if call.args is left.args:
                call.args.append(right)
        chains.add(id(call))
        call.depth = max(left.depth, right.depth)

    def _unary(self) -> CelNode:
        first = self._tokens[self._index]
        if first.kind not in ("!", "-"):
            return self._member()
        count = 0
        while self._tokens[self._index].kind == first.kind:
            # A minus before a number belongs to the literal.
            after = self._tokens[self._index + 1].kind
            if first.kind == "-" and after in ("int", "float"):
                break
            self._index += 1
            count += 1
        operand = self._member()
        if count % 2 == 0:
            return operand
        call = Call(first.position, "!_" if first.kind == "!" else "-_", [operand])
        call.depth = operand.depth
        return call

    # -- members

    def _member(self) -> CelNode:
        node = self._primary()
        while True:
            token = self._tokens[self._index]
            if token.kind == ".":
                self._index += 1
                node = self._selection(node, token)
            elif token.kind == "[":
                self._index += 1
                is_optional = self._accept("?") is not None
                index = self._expression()
                self._expect("]")
                name = "_[?_]" if is_optional else "_[_]"
                node = self._nest(Call(token.position, name, [node, index]), node, index)
            else:
                return node

    def _selection(self, node: CelNode, dot: CelLexeme) -> CelNode:
        is_optional = self._accept("?") is not None
        is_plain = self._tokens[self._index].kind == "name"
        field = self._field_name()
        opening = self._accept("(") if is_plain and not is_optional else None
        if opening is not None:
            return self._call(opening.position, field, self._arguments(")"), node)
        return self._nest(Select(dot.position, node, field, is_optional), node)

    def _call(
        self, position: int, name: str, args: list[CelNode], target: CelNode | None
    ) -> CelNode:
        macro = self._macros.get((name, len(args), target is not None)) or self._macros.get(
            (name, -1, target is not None)
        )
        expanded: CelNode | None = None
        children = args if target is None else [target, *args]
        if macro is not None:
            try:
                expanded = macro(position, target, args)
            except MacroError as error:
                return self._report(error.position, str(error))
        call = expanded if expanded is not None else Call(position, name, args, target)
        if target is None:
            call.depth = max([call.depth, *(child.depth for child in children)])
            return call
        return self._nest(call, *children)

    def _arguments(self, closing: str) -> list[CelNode]:
        args: list[CelNode] = []
        if self._accept(closing):
            return args
        while True:
            args.append(self._expression())
            if not self._accept(","):
                self._expect(closing)
                return args

    # -- primary expressions

    def _primary(self) -> CelNode:
        token = self._tokens[self._index]
        self._index += 1
        kind = token.kind
        if kind == "(":
            node = self._expression()
            self._expect(")")
            return node
        if kind == "name":
            return self._named(token, "")
        if kind == "." and self._tokens[self._index].kind == "name":
            self._index += 1
            return self._named(self._tokens[self._index - 1], ".")
        if kind == "[":
            return self._list(token)
        if kind == "{":
            return MapNode(token.position, self._entries(is_struct=False))
        if kind == "-" and self._tokens[self._index].kind in ("int", "float"):
            self._index += 1
            return self._number(self._tokens[self._index - 1], token)
        return self._literal(token)

    def _literal(self, token: CelLexeme) -> CelNode:
        match token.kind:
            case "int" | "float" | "uint":
                return self._number(token, None)
            case "string" | "bytes":
                return self._text(token)
            case "true" | "false":
                return Literal(token.position, token.kind == "true")
            case "null":
                return Literal(token.position, None)
        raise self._unexpected(token, "an expression")

    def _number(self, token: CelLexeme, sign: CelLexeme | None) -> CelNode:
        position = sign.position if sign else token.position
        text = ("-" if sign else "") + token.text
        if token.kind == "float":
            number = float(text)
            if number in (float("inf"), float("-inf")):
                return self._report(position, "invalid double literal")
            return Literal(position, number)
        is_unsigned = token.kind == "uint"
        digits = text[:-1] if is_unsigned else text
        # Nothing that fits 64 bits is longer, leading zeros aside; int() of more is slow.
        is_short = len(digits.lstrip("-0")) < 40
        value = int(digits, 16 if "0x" in digits else 10) if is_short else 1 << 65
        if is_unsigned:
            if value >= 1 << 64:
                return self._report(position, "invalid uint literal")
            return Literal(position, UInt(value))
        if not -(1 << 63) <= value < 1 << 63:
            return self._report(position, "invalid int literal")
        return Literal(position, value)

    def _text(self, token: CelLexeme) -> CelNode:
        try:
            if token.kind == "bytes":
                return Literal(token.position, read_bytes(token.text[1:]))
            return Literal(token.position, read_string(token.text))
        except ValueError as error:
            return self._report(token.position, str(error))

    def _named(self, token: CelLexeme, dot: str) -> CelNode:
        opening = self._accept("(")
        if opening is not None:
            args = self._arguments(")")
            if token.text in _RESERVED:
                return self._report(token.position, f"reserved identifier: {token.text}")
            return self._call(opening.position, dot + token.text, args, None)
        struct = self._struct_name(token, dot)
        if struct is not None:
            brace = self._expect("{")
            return StructNode(brace.position, struct, self._entries(is_struct=True))
        if token.text in _RESERVED:
            return self._report(token.position, f"reserved identifier: {token.text}")
        return Ident(token.position, dot + token.text)

    def _struct_name(self, token: CelLexeme, dot: str) -> str | None:
        """The dotted name of a struct literal, if that is what follows; steps to its brace."""
        index = self._index
        names = [token.text]
        while self._tokens[index].kind == "." and self._tokens[index + 1].kind == "name":
            names.append(self._tokens[index + 1].text)
            index += 2
        if self._tokens[index].kind != "{":
            return None
        self._index = index
        return dot + ".".join(names)

    def _list(self, token: CelLexeme) -> CelNode:
        elements: list[CelNode] = []
        optionals: set[int] = set()
        is_open = self._accept(",") is None
        while is_open and self._tokens[self._index].kind != "]":
            if self._accept("?"):
                optionals.add(len(elements))
            elements.append(self._expression())
            is_open = self._accept(",") is not None
        self._expect("]")
        node = ListNode(token.position, elements, frozenset(optionals))
        node.depth = max((element.depth for element in elements), default=0)
        return node

    def _entries(self, *, is_struct: bool) -> list[Entry]:
        entries: list[Entry] = []
        is_open = self._accept(",") is None
        while is_open and self._tokens[self._index].kind != "}":
            is_optional = self._accept("?") is not None
            name = self._field_name() if is_struct else ""
            key = None if is_struct else self._expression()
            colon = self._expect(":")
            entries.append(Entry(colon.position, key, name, self._expression(), is_optional))
            is_open = self._accept(",") is not None
        self._expect("}")
        return entries

    def _field_name(self) -> str:
        token = self._tokens[self._index]
        self._index += 1
        if token.kind == "quoted":
            if not self._quoted:
                self._report(token.position, "unsupported syntax: '`'")
            return token.text[1:-1]
        if token.kind != "name":
            raise self._unexpected(token, "IDENTIFIER")
        return token.text
