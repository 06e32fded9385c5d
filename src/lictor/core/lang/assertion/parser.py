"""Parses expressions of assertions: JMESPath with variables, `let` and arithmetic."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.assertion import operators
from lictor.core.lang.assertion.functions import find_function
from lictor.core.lang.assertion.operators import Evaluate
from lictor.core.lang.jmespath.functions import JmesPathHost
from lictor.core.lang.jmespath.parser import BINARY, MAX_LENGTH, POWERS, QueryParser
from lictor.core.lang.jmespath.syntax import (
    ARITHMETIC_SYMBOLS,
    SYMBOLS,
    Lexeme,
    Node,
    NodeKind,
    Token,
)
from lictor.core.raw import Json

# re: linear - an unclosed text ends the scan
_LEXEME = re.compile(
    r"""(?P<space>[ \t\n\r]+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<variable>\$[A-Za-z0-9_]*)
    | (?P<number>-?[0-9]+)
    | (?P<symbol>\|\||&&|==|!=|<=|>=|//|\[\?|\[\]|[]\[|&=!<>.,:@{}()*+%/\u2212\u00d7\u00f7-])
    | '(?P<text>(?:\\.|[^'\\])*)'
    | "(?P<quoted>(?:\\.|[^"\\])*)"
    | `(?P<json>(?:\\.|[^`\\])*)`""",
    re.VERBOSE | re.DOTALL,
)
_TOKENS = {
    **SYMBOLS,
    **ARITHMETIC_SYMBOLS,
    "\u2212": Token.MINUS,
    "\u00f7": Token.DIVIDE,
}
# The first symbol of each token.
_SIGNS = {token: symbol for symbol, token in reversed(_TOKENS.items())}


def read_tokens(text: str) -> Iterator[Lexeme]:
    """Split the text into tokens; the last one is END."""
    position = 0
    while position < len(text):
        found = _LEXEME.match(text, position)
        if found is None:
            message = f"SyntaxError: unknown or unclosed {text[position]!r}"
            raise SyntaxFaultError(message, text=text, position=position)
        kind = found.lastgroup or ""
        if kind != "space":
            try:
                yield Lexeme(*_read_value(kind, found[kind]), position)
            except (ValueError, RecursionError) as error:
                message = f"SyntaxError: {found[kind]!r} is not JSON: {error}"
                raise SyntaxFaultError(message, text=text, position=position) from error
        position = found.end()
    yield Lexeme(Token.END, "", len(text))


def _read_value(kind: str, value: str) -> tuple[Token, Json]:
    match kind:
        case "symbol":
            return _TOKENS[value], value
        case "variable":
            return Token.VARIABLE, value[1:]
        case "text":
            # Only the quote and the backslash itself are escaped; other backslashes are literal.
            halves = value.split("\\\\")
            return Token.TEXT, "\\".join(half.replace("\\'", "'") for half in halves)
        case "quoted":
            return Token.QUOTED_NAME, json.loads(f'"{value}"')
        case "json":
            return Token.JSON, json.loads(value.replace("\\`", "`"))
        case _:
            return Token.NAME if kind == "name" else Token.NUMBER, value


def parse_expression(text: str, host: JmesPathHost) -> Evaluate:
    """Compile an expression; raises SyntaxFaultError with the position."""
    if len(text) > MAX_LENGTH:
        raise SyntaxFaultError("the expression is too long", text=text, position=MAX_LENGTH)
    return _Builder(host).build(_AssertionParser(text, read_tokens(text)).parse())


class _AssertionParser(QueryParser):
    powers: ClassVar = {
        **POWERS,
        Token.MINUS: 6,
        Token.PLUS: 6,
        **dict.fromkeys((Token.FLOOR_DIVIDE, Token.DIVIDE, Token.MODULO, Token.TIMES), 7),
    }
    binary: ClassVar = {
        **BINARY,
        **dict.fromkeys((*ARITHMETIC_SYMBOLS.values(), Token.STAR), NodeKind.ARITHMETIC),
    }
    requires_commas: ClassVar = True

    def __init__(self, text: str, lexemes: Iterator[Lexeme]) -> None:
        super().__init__(text, lexemes)
        self._prefixes |= {
            Token.NAME: self._name,
            Token.VARIABLE: lambda found: Node(NodeKind.VARIABLE, (), found.value, found.position),
            Token.PLUS: self._sign,
            Token.MINUS: self._sign,
        }
        # Only a plain name can be called.
        del self._infixes[Token.LEFT_PAREN]

    def _name(self, lexeme: Lexeme) -> Node:
        if lexeme.value == "let" and self.current is Token.VARIABLE:
            return self._let(lexeme)
        field = self._field(lexeme)
        if self.current is not Token.LEFT_PAREN:
            return field
        self._advance()
        return self._call(field)

    def _sign(self, lexeme: Lexeme) -> Node:
        inner = self.expression(self.powers[lexeme.token])
        return Node(NodeKind.SIGN, (inner,), lexeme.token, lexeme.position)

    def _let(self, lexeme: Lexeme) -> Node:
        parts = []
        while self._lexemes[self._index].value != "in" or self.current is not Token.NAME:
            variable = self._lexemes[self._index]
            self._expect(Token.VARIABLE)
            # The token of `=`, which has no meaning in other queries.
            self._expect(Token.UNKNOWN)
            parts.append(Node(NodeKind.KEY_VALUE, (self.expression(0),), variable.value))
            if self.current is Token.COMMA:
                self._advance()
        self._advance()
        return Node(NodeKind.LET, (*parts, self.expression(0)), position=lexeme.position)


class _Builder:
    """Turns the nodes of one expression into closures."""

    def __init__(self, host: JmesPathHost) -> None:
        self._host = host

    def build(self, node: Node) -> Evaluate:
        special = _SPECIAL.get(node.kind)
        if special is not None:
            return special(self, node)
        return _PLAIN[node.kind](*map(self.build, node.children))

    def build_projection(self, node: Node) -> Evaluate:
        left, right = node.children[0], self.build(node.children[1])
        if left.kind is NodeKind.FLATTEN:
            return operators.build_flatten(self.build(left.children[0]), right)
        if left.kind is NodeKind.INDEX_EXPRESSION and left.children[1].kind is NodeKind.SLICE:
            whole, part = left.children
            return operators.build_slice(self.build(whole), slice(*part.value), right)
        return operators.build_projection(self.build(left), right)

    def build_index(self, node: Node) -> Evaluate:
        return operators.build_index(self.build(node.children[0]), node.children[1].value)

    def build_call(self, node: Node) -> Evaluate:
        function = find_function(node.value, len(node.children), self._host)
        return operators.build_call(function, [self.build(each) for each in node.children])

    def build_list(self, node: Node) -> Evaluate:
        return operators.build_list([self.build(each) for each in node.children])

    def build_object(self, node: Node) -> Evaluate:
        return operators.build_object(dict(self._list_pairs(node.children)))

    def build_let(self, node: Node) -> Evaluate:
        *parts, body = node.children
        return operators.build_let(list(self._list_pairs(parts)), self.build(body))

    def build_operation(self, node: Node) -> Evaluate:
        make: Callable[..., Evaluate] = _OPERATIONS[node.kind]
        return make(_SIGNS[node.value], *map(self.build, node.children))

    def _list_pairs(self, nodes: Iterable[Node]) -> Iterator[tuple[str, Evaluate]]:
        return ((each.value, self.build(each.children[0])) for each in nodes)


def _build_variable(_: _Builder, node: Node) -> Evaluate:
    return operators.build_variable(node.value) if node.value else operators.nothing


_PLAIN: dict[NodeKind, Callable[..., Evaluate]] = {
    NodeKind.AND: operators.build_and,
    NodeKind.EXPRESSION_REFERENCE: operators.build_reference,
    NodeKind.FILTER_PROJECTION: operators.build_filter,
    NodeKind.NOT: operators.build_not,
    NodeKind.OR: operators.build_or,
    NodeKind.PIPE: operators.build_pipe,
    NodeKind.SUBEXPRESSION: operators.build_sub,
    NodeKind.VALUE_PROJECTION: operators.build_value_projection,
}
_OPERATIONS: dict[NodeKind, Callable[..., Evaluate]] = {
    NodeKind.ARITHMETIC: operators.build_arithmetic,
    NodeKind.COMPARATOR: operators.build_comparison,
    NodeKind.SIGN: operators.build_sign,
}
_SPECIAL: dict[NodeKind, Callable[[_Builder, Node], Evaluate]] = {
    NodeKind.CURRENT: lambda _, __: operators.identity,
    NodeKind.FIELD: lambda _, node: operators.build_field(node.value),
    NodeKind.FUNCTION: _Builder.build_call,
    NodeKind.IDENTITY: lambda _, __: operators.identity,
    NodeKind.INDEX_EXPRESSION: _Builder.build_index,
    NodeKind.LET: _Builder.build_let,
    NodeKind.LITERAL: lambda _, node: operators.build_literal(node.value),
    NodeKind.MULTI_SELECT_HASH: _Builder.build_object,
    NodeKind.MULTI_SELECT_LIST: _Builder.build_list,
    NodeKind.PROJECTION: _Builder.build_projection,
    NodeKind.VARIABLE: _build_variable,
    **dict.fromkeys(_OPERATIONS, _Builder.build_operation),
}
