"""Parses tokens to a closure by binding power: an operator takes what binds tighter."""

import json
import re
from collections.abc import Callable, Iterator

import msgspec

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.assertion import operators
from lictor.core.lang.assertion.functions import find_function
from lictor.core.lang.assertion.operators import Evaluate
from lictor.core.lang.jmespath.functions import JmesPathHost
from lictor.core.raw import Json

NAME = "name"
QUOTED = "quoted"
VARIABLE = "variable"
NUMBER = "number"
TEXT = "text"
JSON = "json"
END = "end"

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
# Equivalent symbols.
_ALIASES = {"\u2212": "-", "\u00f7": "/"}


class AssertionToken(msgspec.Struct, frozen=True):
    """A symbol, or a value of one of the kinds above; `kind` of a symbol is the symbol."""

    kind: str
    value: str
    position: int


def read_tokens(text: str) -> Iterator[AssertionToken]:
    """Split the text into tokens; the last one is END."""
    position = 0
    while position < len(text):
        found = _LEXEME.match(text, position)
        if found is None:
            raise SyntaxFaultError(
                f"SyntaxError: unknown or unclosed {text[position]!r}", text=text, position=position
            )
        kind = found.lastgroup or ""
        value = found[kind]
        if kind == "symbol":
            sign = _ALIASES.get(value, value)
            yield AssertionToken(sign, sign, position)
        elif kind != "space":
            yield AssertionToken(kind, value, position)
        position = found.end()
    yield AssertionToken(END, "", len(text))


_POWERS = {
    "=": 1,
    "|": 1,
    "||": 2,
    "&&": 3,
    "==": 5,
    "!=": 5,
    "<": 5,
    "<=": 5,
    ">": 5,
    ">=": 5,
    "-": 6,
    "+": 6,
    "//": 7,
    "/": 7,
    "%": 7,
    "\u00d7": 7,
    "[]": 9,
    "*": 20,
    "[?": 21,
    ".": 40,
    "!": 45,
    "{": 50,
    "[": 55,
    "(": 60,
}
_PROJECTION_END = 10
_MAX_LENGTH = 16 * 1024
_MAX_DIGITS = 18


def parse_expression(text: str, host: JmesPathHost) -> Evaluate:
    """Compile an expression; raises SyntaxFaultError with the position."""
    if len(text) > _MAX_LENGTH:
        raise SyntaxFaultError("the expression is too long", text=text, position=_MAX_LENGTH)
    parser = _Parser(text, host)
    try:
        evaluate = parser.expression(0)
    except RecursionError:
        raise SyntaxFaultError("the expression is nested too deeply", text=text) from None
    if parser.kind != END:
        raise parser.fault("unexpected token at the end of the expression")
    return evaluate


class _Parser:
    """A position in the tokens of one text."""

    def __init__(self, text: str, host: JmesPathHost) -> None:
        self._text = text
        self._host = host
        self._tokens = list(read_tokens(text))
        self._at = 0
        self._prefixes: dict[str, Callable[[AssertionToken], Evaluate]] = {
            NAME: self._name,
            QUOTED: self._quoted,
            VARIABLE: self._variable,
            TEXT: self._literal_text,
            JSON: self._literal,
            "@": lambda _: operators.identity,
            "+": lambda _: operators.build_sign("+", self.expression(_POWERS["+"])),
            "-": lambda _: operators.build_sign("-", self.expression(_POWERS["-"])),
            "*": lambda _: self._values(),
            "[?": lambda _: self._filter(operators.identity),
            "[]": lambda _: self._flatten(operators.identity),
            "[": lambda _: self._bracket(),
            "{": lambda _: self._object(),
            "&": lambda _: operators.build_reference(self.expression(0)),
            "!": lambda _: operators.build_not(self.expression(_POWERS["!"])),
            "(": lambda _: self._parenthesis(),
        }
        self._infixes: dict[str, Callable[[Evaluate], Evaluate]] = {
            ".": self._dot,
            "|": lambda left: operators.build_pipe(left, self.expression(_POWERS["|"])),
            "||": lambda left: operators.build_or(left, self.expression(_POWERS["||"])),
            "&&": lambda left: operators.build_and(left, self.expression(_POWERS["&&"])),
            "[?": self._filter,
            "[]": self._flatten,
            "[": self._bracket_after,
        }

    @property
    def kind(self) -> str:
        return self._tokens[self._at].kind

    def fault(self, message: str) -> SyntaxFaultError:
        token = self._tokens[self._at]
        return SyntaxFaultError(
            f"SyntaxError: {message}: {token.value or token.kind!r} in {self._text!r}",
            text=self._text,
            position=token.position,
        )

    def _advance(self) -> AssertionToken:
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def _take(self, kind: str) -> AssertionToken:
        if self.kind != kind:
            raise self.fault(f"expected {kind!r}")
        return self._advance()

    def expression(self, power: int) -> Evaluate:
        prefix = self._prefixes.get(self.kind)
        if prefix is None:
            raise self.fault("incomplete expression" if self.kind == END else "invalid token")
        left = prefix(self._advance())
        while power < _POWERS.get(self.kind, 0):
            left = self._infix(left)
        return left

    def _infix(self, left: Evaluate) -> Evaluate:
        build = self._infixes.get(self.kind)
        if build is not None:
            self._advance()
            return build(left)
        sign = self.kind
        if sign in operators.COMPARATORS:
            self._advance()
            return operators.build_comparison(sign, left, self.expression(_POWERS[sign]))
        if sign in operators.ARITHMETIC:
            self._advance()
            return operators.build_arithmetic(sign, left, self.expression(_POWERS[sign]))
        raise self.fault("unexpected token")

    def _name(self, token: AssertionToken) -> Evaluate:
        if token.value == "let" and self.kind == VARIABLE:
            return self._let()
        if self.kind == "(":
            self._advance()
            return self._call(token)
        return operators.build_field(token.value)

    def _quoted(self, token: AssertionToken) -> Evaluate:
        if self.kind == "(":
            raise self.fault("a quoted name cannot be the name of a function")
        return operators.build_field(self._read_json(f'"{token.value}"', token))

    def _variable(self, token: AssertionToken) -> Evaluate:
        name = token.value[1:]
        return operators.build_variable(name) if name else operators.nothing

    def _literal_text(self, token: AssertionToken) -> Evaluate:
        text = token.value
        if "\\" in text:
            # Only the quote and the backslash itself are escaped; other backslashes are literal.
            halves = text.split("\\\\")
            text = "\\".join(half.replace("\\'", "'") for half in halves)
        return operators.build_literal(text)

    def _literal(self, token: AssertionToken) -> Evaluate:
        return operators.build_literal(self._read_json(token.value.replace("\\`", "`"), token))

    def _read_json(self, text: str, token: AssertionToken) -> Json:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            message = f"SyntaxError: {text!r} is not JSON: {error}"
            raise SyntaxFaultError(message, text=self._text, position=token.position) from error

    def _call(self, name: AssertionToken) -> Evaluate:
        arguments = []
        while self.kind != ")":
            arguments.append(self.expression(0))
            if self.kind == ",":
                self._advance()
        self._advance()
        function = find_function(name.value, len(arguments), self._host)
        return operators.build_call(function, arguments)

    def _let(self) -> Evaluate:
        parts = []
        while not self._is_keyword("in"):
            name = self._take(VARIABLE).value[1:]
            self._take("=")
            parts.append((name, self.expression(0)))
            if self.kind == ",":
                self._advance()
        self._advance()
        return operators.build_let(parts, self.expression(0))

    def _is_keyword(self, word: str) -> bool:
        return self.kind == NAME and self._tokens[self._at].value == word

    def _parenthesis(self) -> Evaluate:
        inner = self.expression(0)
        self._take(")")
        return inner

    def _values(self) -> Evaluate:
        right = operators.identity if self.kind == "]" else self._after_projection(_POWERS["*"])
        return operators.build_value_projection(operators.identity, right)

    def _filter(self, left: Evaluate) -> Evaluate:
        condition = self.expression(0)
        self._take("]")
        if self.kind == "[]":
            return operators.build_filter(left, operators.identity, condition)
        return operators.build_filter(left, self._after_projection(_POWERS["[?"]), condition)

    def _flatten(self, left: Evaluate) -> Evaluate:
        return operators.build_flatten(left, self._after_projection(_POWERS["[]"]))

    def _bracket(self) -> Evaluate:
        if self.kind in (NUMBER, ":"):
            return self._index(operators.identity)
        if self.kind == "*" and self._tokens[self._at + 1].kind == "]":
            return self._star(operators.identity)
        return self._list()

    def _bracket_after(self, left: Evaluate) -> Evaluate:
        if self.kind in (NUMBER, ":"):
            return self._index(left)
        return self._star(left)

    def _star(self, left: Evaluate) -> Evaluate:
        self._take("*")
        self._take("]")
        return operators.build_projection(left, self._after_projection(_POWERS["*"]))

    def _index(self, left: Evaluate) -> Evaluate:
        parts: list[int | None] = [None]
        while self.kind != "]":
            if self.kind == ":" and len(parts) < 3:
                self._advance()
                parts.append(None)
            elif parts[-1] is None:
                parts[-1] = self._integer()
            else:
                raise self.fault("expected ']'")
        self._advance()
        if len(parts) == 1:
            return operators.build_index(left, parts[0] or 0)
        return operators.build_slice(left, slice(*parts), self._after_projection(_POWERS["*"]))

    def _integer(self) -> int:
        if len(self._tokens[self._at].value) > _MAX_DIGITS:
            raise self.fault("the number is too large")
        return int(self._take(NUMBER).value)

    def _list(self) -> Evaluate:
        parts = [self.expression(0)]
        while self.kind != "]":
            self._take(",")
            parts.append(self.expression(0))
        self._advance()
        return operators.build_list(parts)

    def _object(self) -> Evaluate:
        parts: dict[str, Evaluate] = {}
        while True:
            token = self._advance()
            if token.kind not in (NAME, QUOTED):
                raise self.fault("expected a name")
            quoted = token.kind == QUOTED
            key = self._read_json(f'"{token.value}"', token) if quoted else token.value
            self._take(":")
            parts[key] = self.expression(0)
            if self.kind == "}":
                self._advance()
                return operators.build_object(parts)
            self._take(",")

    def _dot(self, left: Evaluate) -> Evaluate:
        if self.kind == "*":
            self._advance()
            right = self._after_projection(_POWERS["."])
            return operators.build_value_projection(left, right)
        return operators.build_sub(left, self._after_dot(_POWERS["."]))

    def _after_dot(self, power: int) -> Evaluate:
        if self.kind in (NAME, QUOTED, "*"):
            return self.expression(power)
        if self.kind == "[":
            self._advance()
            return self._list()
        if self.kind == "{":
            self._advance()
            return self._object()
        raise self.fault("expected a name, a list or an object")

    def _after_projection(self, power: int) -> Evaluate:
        if _POWERS.get(self.kind, 0) < _PROJECTION_END:
            return operators.identity
        if self.kind in ("[", "[?"):
            return self.expression(power)
        self._take(".")
        return self._after_dot(power)
