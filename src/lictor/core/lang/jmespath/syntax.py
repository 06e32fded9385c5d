"""Tokens of a JMESPath query, and the nodes of its parsed tree.

Those of the dialect of assertions are here, too; no other query has them.
"""

import re
from collections.abc import Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import force_setattr

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.go_number import decode_json
from lictor.core.raw import Json


class NodeKind(StrEnum):
    """The type of a node."""

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
    # In assertions only.
    ARITHMETIC = "ASTArithmeticExpression"
    LET = "ASTLetExpression"
    SIGN = "ASTArithmeticUnaryExpression"
    VARIABLE = "ASTVariable"


class Node(msgspec.Struct, frozen=True):
    """One part of a query; `depth` is the height of the tree below it."""

    kind: NodeKind
    children: tuple["Node", ...] = ()
    value: Json = None
    position: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        force_setattr(self, "depth", 1 + max((c.depth for c in self.children), default=0))


IDENTITY = Node(NodeKind.IDENTITY)


def node_to_json(node: Node) -> Json:
    """The tree as plain JSON: type, value if there is one, children if there are any."""
    document: dict[str, Json] = {"type": node.kind.value}
    if node.value is not None:
        document["value"] = node.value
    if node.children:
        document["children"] = [node_to_json(child) for child in node.children]
    return document


class Token(StrEnum):
    """The kinds of tokens, with the names that `jp parse` prints."""

    UNKNOWN = "tUnknown"
    STAR = "tStar"
    DOT = "tDot"
    FILTER = "tFilter"
    FLATTEN = "tFlatten"
    LEFT_PAREN = "tLparen"
    RIGHT_PAREN = "tRparen"
    LEFT_BRACKET = "tLbracket"
    RIGHT_BRACKET = "tRbracket"
    LEFT_BRACE = "tLbrace"
    RIGHT_BRACE = "tRbrace"
    OR = "tOr"
    PIPE = "tPipe"
    NUMBER = "tNumber"
    NAME = "tUnquotedIdentifier"
    QUOTED_NAME = "tQuotedIdentifier"
    COMMA = "tComma"
    COLON = "tColon"
    LESS = "tLT"
    LESS_OR_EQUAL = "tLTE"
    GREATER = "tGT"
    GREATER_OR_EQUAL = "tGTE"
    EQUAL = "tEQ"
    NOT_EQUAL = "tNE"
    JSON = "tJSONLiteral"
    TEXT = "tStringLiteral"
    CURRENT = "tCurrent"
    EXPRESSION_REFERENCE = "tExpref"
    AND = "tAnd"
    NOT = "tNot"
    END = "tEOF"
    # In assertions only.
    VARIABLE = "tVarref"
    PLUS = "tPlus"
    MINUS = "tMinus"
    TIMES = "tMultiply"
    DIVIDE = "tDivide"
    FLOOR_DIVIDE = "tDiv"
    MODULO = "tModulo"


class Lexeme(msgspec.Struct, frozen=True):
    """One token, its value and its position."""

    token: Token
    value: Json
    position: int


SYMBOLS = {
    "||": Token.OR, "|": Token.PIPE, "&&": Token.AND, "&": Token.EXPRESSION_REFERENCE,
    "==": Token.EQUAL, "=": Token.UNKNOWN, "!=": Token.NOT_EQUAL, "!": Token.NOT,
    "<=": Token.LESS_OR_EQUAL, "<": Token.LESS, ">=": Token.GREATER_OR_EQUAL, ">": Token.GREATER,
    "[?": Token.FILTER, "[]": Token.FLATTEN, "[": Token.LEFT_BRACKET, "]": Token.RIGHT_BRACKET,
    ".": Token.DOT, "*": Token.STAR, ",": Token.COMMA, ":": Token.COLON, "@": Token.CURRENT,
    "{": Token.LEFT_BRACE, "}": Token.RIGHT_BRACE, "(": Token.LEFT_PAREN, ")": Token.RIGHT_PAREN,
}  # fmt: skip
ARITHMETIC_SYMBOLS = {
    "+": Token.PLUS, "-": Token.MINUS, "\u00d7": Token.TIMES, "/": Token.DIVIDE,
    "//": Token.FLOOR_DIVIDE, "%": Token.MODULO,
}  # fmt: skip
# In error messages.
TOKEN_WORDS = {
    **{token: f"'{symbol}'" for symbol, token in {**SYMBOLS, **ARITHMETIC_SYMBOLS}.items()},
    Token.VARIABLE: "a variable",
    Token.NUMBER: "a number",
    Token.NAME: "a name",
    Token.QUOTED_NAME: "a quoted name",
    Token.JSON: "a JSON literal",
    Token.TEXT: "a string",
    Token.END: "the end of the expression",
}

# re: linear - an unclosed text ends the scan
_LEXEME = re.compile(
    r"""(?P<space>[ \t\n\r]+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol>\|\|?|&&?|==?|!=?|<=?|>=?|\[[?\]]?|[].*,:@{}()])
    | (?P<number>-[0-9]*|[0-9]+)
    | '(?P<text>.*?)(?<!\\)'
    | "(?P<quoted>(?:\\.|[^"\\])*)"
    | `(?P<json>(?:\\.|[^`\\])*)`""",
    re.VERBOSE | re.DOTALL,
)
_DELIMITERS = frozenset("'\"`")


def read_tokens(text: str) -> Iterator[Lexeme]:
    """Split `text` into tokens, ending with END; raises SyntaxFaultError for unknown ones."""
    position = 0
    while position < len(text):
        found = _LEXEME.match(text, position)
        if found is None:
            raise _describe_fault(text, position)
        kind, value = found.lastgroup or "", found[found.lastgroup or 0]
        if kind != "space":
            yield _read_lexeme(kind, value, position, text)
        position = found.end()
    yield Lexeme(Token.END, "", len(text))


def _read_lexeme(kind: str, value: str, position: int, text: str) -> Lexeme:
    if kind == "name":
        return Lexeme(Token.NAME, value, position)
    if kind == "symbol":
        return Lexeme(SYMBOLS[value], value, position)
    if kind == "number":
        return Lexeme(Token.NUMBER, value, position)
    if kind == "text":
        return Lexeme(Token.TEXT, value.replace("\\'", "'"), position)
    try:
        if kind == "quoted":
            if "\\" not in value and value.isprintable():
                return Lexeme(Token.QUOTED_NAME, value, position)
            return Lexeme(Token.QUOTED_NAME, decode_json(f'"{value}"'), position)
        return Lexeme(Token.JSON, decode_json(value.replace("\\`", "`")), position)
    except ValueError as error:
        raise SyntaxFaultError(f"SyntaxError: {error}", text=text, position=position) from error


def _describe_fault(text: str, position: int) -> SyntaxFaultError:
    character = text[position]
    if character in _DELIMITERS:
        message = f"SyntaxError: Unclosed delimiter: {character}"
        return SyntaxFaultError(message, text=text, position=len(text))
    message = f"SyntaxError: Unknown char: {character!a}"
    return SyntaxFaultError(message, text=text, position=position)
