"""Expression text into tokens: JMESPath with variables, arithmetic and `let`."""

import re
from collections.abc import Iterator

import msgspec

from lictor.errors import SyntaxFaultError

NAME = "name"
QUOTED = "quoted"
VARIABLE = "variable"
NUMBER = "number"
TEXT = "text"
JSON = "json"
END = "end"

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
# Signs that mean the same.
_ALIASES = {"\u2212": "-", "\u00f7": "/"}


class Token(msgspec.Struct, frozen=True):
    """A sign, or a value of one of the kinds above; `kind` of a sign is the sign."""

    kind: str
    value: str
    position: int


def read_tokens(text: str) -> Iterator[Token]:
    """Cut the text into tokens, the last one being END."""
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
            yield Token(sign, sign, position)
        elif kind != "space":
            yield Token(kind, value, position)
        position = found.end()
    yield Token(END, "", len(text))
