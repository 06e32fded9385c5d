"""Parses tokens to a tree by binding power: an operator takes what binds tighter."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.jmespath.syntax import (
    IDENTITY,
    TOKEN_WORDS,
    Lexeme,
    Node,
    NodeKind,
    Token,
    read_tokens,
)
from lictor.core.raw import Json

POWERS = {
    Token.PIPE: 1,
    Token.OR: 2,
    Token.AND: 3,
    Token.EQUAL: 5,
    Token.LESS: 5,
    Token.LESS_OR_EQUAL: 5,
    Token.GREATER: 5,
    Token.GREATER_OR_EQUAL: 5,
    Token.NOT_EQUAL: 5,
    Token.FLATTEN: 9,
    Token.STAR: 20,
    Token.FILTER: 21,
    Token.DOT: 40,
    Token.NOT: 45,
    Token.LEFT_BRACE: 50,
    Token.LEFT_BRACKET: 55,
    Token.LEFT_PAREN: 60,
}
_PROJECTION_STOP = 10
# The nodes of operators between two operands.
BINARY = {
    Token.PIPE: NodeKind.PIPE,
    Token.OR: NodeKind.OR,
    Token.AND: NodeKind.AND,
    **{token: NodeKind.COMPARATOR for token, power in POWERS.items() if power == 5},
}
_NAMED_BY_KIND = (NodeKind.PIPE, NodeKind.OR, NodeKind.AND)
MAX_LENGTH = 16 * 1024
_MAX_NESTING = 100
_MAX_DEPTH = 150
_INT_LIMIT = 1 << 63


def parse(text: str) -> Node:
    """Parse a query; raises SyntaxFaultError with the position."""
    if len(text) > MAX_LENGTH:
        raise SyntaxFaultError("the expression is too long", text=text, position=MAX_LENGTH)
    return QueryParser(text, read_tokens(text)).parse()


class QueryParser:
    """A position in the tokens of one text."""

    powers: ClassVar = POWERS
    binary: ClassVar = BINARY
    # Between the pairs of an object.
    requires_commas: ClassVar = False

    def __init__(self, text: str, lexemes: Iterable[Lexeme]) -> None:
        self._text = text
        self._lexemes = list(lexemes)
        self._index = 0
        self._nesting = 0
        self._prefixes: dict[Token, Callable[[Lexeme], Node]] = {
            Token.JSON: self._literal,
            Token.TEXT: self._literal,
            Token.NAME: self._field,
            Token.QUOTED_NAME: self._quoted_field,
            Token.STAR: self._star,
            Token.FILTER: lambda _: self._filter(IDENTITY),
            Token.LEFT_BRACE: lambda _: self._multi_select_hash(),
            Token.FLATTEN: lambda _: self._flatten(IDENTITY),
            Token.LEFT_BRACKET: lambda _: self._bracket(),
            Token.CURRENT: lambda lexeme: Node(NodeKind.CURRENT, position=lexeme.position),
            Token.EXPRESSION_REFERENCE: self._reference,
            Token.NOT: self._negation,
            Token.LEFT_PAREN: lambda _: self._parenthesis(),
        }
        self._infixes: dict[Token, Callable[[Node], Node]] = {
            Token.DOT: self._dot,
            Token.LEFT_PAREN: self._call,
            Token.FILTER: self._filter,
            Token.FLATTEN: self._flatten,
            Token.LEFT_BRACKET: self._bracket_after,
        }

    def parse(self) -> Node:
        """The tree of the whole text."""
        node = self.expression(0)
        if self.current is not Token.END:
            raise self.fault(f"unexpected {TOKEN_WORDS[self.current]} after the expression")
        return node

    @property
    def current(self) -> Token:
        return self._lexemes[self._index].token

    def fault(self, message: str, position: int | None = None) -> SyntaxFaultError:
        at = self._lexemes[self._index].position if position is None else position
        return SyntaxFaultError(f"SyntaxError: {message}", text=self._text, position=at)

    def expression(self, power: int) -> Node:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise self.fault("the expression is nested too deeply")
        lexeme = self._advance()
        prefix = self._prefixes.get(lexeme.token)
        if prefix is None:
            raise self._unexpected(lexeme)
        node = prefix(lexeme)
        while power < self.powers.get(self.current, 0):
            node = self._extend(node)
            if node.depth > _MAX_DEPTH:
                raise self.fault("the expression is nested too deeply")
        self._nesting -= 1
        return node

    def _extend(self, left: Node) -> Node:
        lexeme = self._advance()
        token = lexeme.token
        infix = self._infixes.get(token)
        if infix is not None:
            return infix(left)
        kind = self.binary.get(token)
        if kind is not None:
            operator = None if kind in _NAMED_BY_KIND else token
            operands = (left, self.expression(self.powers[token]))
            return Node(kind, operands, operator, lexeme.position)
        raise self.fault(f"unexpected {TOKEN_WORDS[token]}", lexeme.position)

    def _unexpected(self, lexeme: Lexeme) -> SyntaxFaultError:
        if lexeme.token is Token.END:
            return self.fault("Incomplete expression", lexeme.position)
        return self.fault(f"unexpected {TOKEN_WORDS[lexeme.token]}", lexeme.position)

    # Expressions that start with their token.

    def _literal(self, lexeme: Lexeme) -> Node:
        return Node(NodeKind.LITERAL, (), lexeme.value, lexeme.position)

    def _field(self, lexeme: Lexeme) -> Node:
        return Node(NodeKind.FIELD, (), lexeme.value, lexeme.position)

    def _quoted_field(self, lexeme: Lexeme) -> Node:
        if self.current is Token.LEFT_PAREN:
            message = "a quoted identifier cannot be the name of a function"
            raise self.fault(message, lexeme.position)
        return self._field(lexeme)

    def _star(self, _: Lexeme) -> Node:
        right = IDENTITY
        if self.current is not Token.RIGHT_BRACKET:
            right = self._projected(self.powers[Token.STAR])
        return Node(NodeKind.VALUE_PROJECTION, (IDENTITY, right))

    def _bracket(self) -> Node:
        if self.current in (Token.NUMBER, Token.COLON):
            return self._index_or_slice(IDENTITY)
        if self.current is Token.STAR and self._peek() is Token.RIGHT_BRACKET:
            return self._bracket_after(IDENTITY)
        return self._multi_select_list()

    def _reference(self, lexeme: Lexeme) -> Node:
        return Node(NodeKind.EXPRESSION_REFERENCE, (self.expression(0),), position=lexeme.position)

    def _negation(self, lexeme: Lexeme) -> Node:
        inner = self.expression(self.powers[Token.NOT])
        return Node(NodeKind.NOT, (inner,), position=lexeme.position)

    def _parenthesis(self) -> Node:
        inner = self.expression(0)
        self._expect(Token.RIGHT_PAREN)
        return inner

    # Expressions that continue another one.

    def _dot(self, left: Node) -> Node:
        if self.current is Token.STAR:
            self._advance()
            return Node(NodeKind.VALUE_PROJECTION, (left, self._projected(self.powers[Token.DOT])))
        return Node(NodeKind.SUBEXPRESSION, (left, self._after_dot(self.powers[Token.DOT])))

    def _call(self, left: Node) -> Node:
        # A function's name is any token with a text; commas between arguments may be missing.
        if not isinstance(left.value, str) or left.kind is NodeKind.COMPARATOR:
            raise self.fault("only a name can be called as a function", left.position)
        arguments = []
        while self.current is not Token.RIGHT_PAREN:
            arguments.append(self.expression(0))
            if self.current is Token.COMMA:
                self._advance()
        self._advance()
        return Node(NodeKind.FUNCTION, tuple(arguments), left.value, left.position)

    def _filter(self, left: Node) -> Node:
        condition = self.expression(0)
        self._expect(Token.RIGHT_BRACKET)
        right = IDENTITY
        if self.current is not Token.FLATTEN:
            right = self._projected(self.powers[Token.FILTER])
        return Node(NodeKind.FILTER_PROJECTION, (left, right, condition))

    def _flatten(self, left: Node) -> Node:
        right = self._projected(self.powers[Token.FLATTEN])
        return Node(NodeKind.PROJECTION, (Node(NodeKind.FLATTEN, (left,)), right))

    def _bracket_after(self, left: Node) -> Node:
        if self.current in (Token.NUMBER, Token.COLON):
            return self._index_or_slice(left)
        self._expect(Token.STAR)
        self._expect(Token.RIGHT_BRACKET)
        return Node(NodeKind.PROJECTION, (left, self._projected(self.powers[Token.STAR])))

    # Pieces.

    def _after_dot(self, power: int) -> Node:
        if self.current in (Token.QUOTED_NAME, Token.NAME, Token.STAR):
            return self.expression(power)
        if self.current is Token.LEFT_BRACKET:
            self._advance()
            return self._multi_select_list()
        if self.current is Token.LEFT_BRACE:
            self._advance()
            return self._multi_select_hash()
        raise self.fault("Expected identifier, lbracket, or lbrace")

    def _projected(self, power: int) -> Node:
        """Parse what is applied to each element of a projection."""
        if self.powers.get(self.current, 0) < _PROJECTION_STOP:
            return IDENTITY
        if self.current in (Token.LEFT_BRACKET, Token.FILTER):
            return self.expression(power)
        if self.current is Token.DOT:
            self._advance()
            return self._after_dot(power)
        raise self.fault(f"unexpected {TOKEN_WORDS[self.current]} after a projection")

    def _index_or_slice(self, left: Node) -> Node:
        position = self._lexemes[self._index].position
        if self.current is not Token.COLON and self._peek() is not Token.COLON:
            index = Node(NodeKind.INDEX, (), self._integer(), position)
            self._expect(Token.RIGHT_BRACKET)
            return Node(NodeKind.INDEX_EXPRESSION, (left, index))
        cut = Node(NodeKind.SLICE, (), self._slice_parts(), position)
        whole = Node(NodeKind.INDEX_EXPRESSION, (left, cut))
        return Node(NodeKind.PROJECTION, (whole, self._projected(self.powers[Token.STAR])))

    def _slice_parts(self) -> Json:
        parts: list[int | None] = [None, None, None]
        index = 0
        while self.current is not Token.RIGHT_BRACKET and index < 3:
            if self.current is Token.COLON:
                index += 1
                self._advance()
            elif self.current is Token.NUMBER:
                parts[index] = self._integer()
            else:
                raise self.fault(f"expected ':' or a number, found {TOKEN_WORDS[self.current]}")
        self._expect(Token.RIGHT_BRACKET)
        return parts

    def _integer(self) -> int:
        lexeme = self._advance()
        text = str(lexeme.value)
        if text == "-" or len(text) > 20 or not -_INT_LIMIT <= int(text) < _INT_LIMIT:
            raise self.fault(f"{text[:20]} is not an index", lexeme.position)
        return int(text)

    def _multi_select_list(self) -> Node:
        items = [self.expression(0)]
        while self.current is not Token.RIGHT_BRACKET:
            self._expect(Token.COMMA)
            items.append(self.expression(0))
        self._advance()
        return Node(NodeKind.MULTI_SELECT_LIST, tuple(items))

    def _multi_select_hash(self) -> Node:
        pairs = [self._pair()]
        while self.current is not Token.RIGHT_BRACE:
            if self.requires_commas or self.current is Token.COMMA:
                self._expect(Token.COMMA)
            pairs.append(self._pair())
        self._advance()
        return Node(NodeKind.MULTI_SELECT_HASH, tuple(pairs))

    def _pair(self) -> Node:
        if self.current not in (Token.NAME, Token.QUOTED_NAME):
            raise self.fault("expected the name of a key")
        key = self._advance()
        self._expect(Token.COLON)
        return Node(NodeKind.KEY_VALUE, (self.expression(0),), key.value, key.position)

    def _advance(self) -> Lexeme:
        lexeme = self._lexemes[self._index]
        # The last token is never consumed, so lookahead cannot run off the end.
        self._index = min(self._index + 1, len(self._lexemes) - 1)
        return lexeme

    def _peek(self) -> Token:
        return self._lexemes[min(self._index + 1, len(self._lexemes) - 1)].token

    def _expect(self, token: Token) -> None:
        if self.current is not token:
            raise self.fault(f"expected {TOKEN_WORDS[token]}, found {TOKEN_WORDS[self.current]}")
        self._advance()
