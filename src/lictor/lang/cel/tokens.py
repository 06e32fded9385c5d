"""CEL text cut into tokens, just enough to rewrite names and leave strings and comments alone."""

import re

import msgspec

_STRING = "|".join((
    r"[rR][bB]?'''.*?'''", r'[rR][bB]?""".*?"""', r"[bB]?[rR]?'''(?:\\.|[^\\])*?'''",
    r'[bB]?[rR]?"""(?:\\.|[^\\])*?"""', r"[bB]?[rR]'[^'\n]*'", r'[bB]?[rR]"[^"\n]*"',
    r"[rR][bB]'[^'\n]*'", r'[rR][bB]"[^"\n]*"',
    r"[bB]?'(?:\\.|[^\\'\n])*'", r'[bB]?"(?:\\.|[^\\"\n])*"',
))  # fmt: skip
_TOKEN = re.compile(
    rf"(?P<space>\s+|//[^\n]*)|(?P<string>{_STRING})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>\d[\w.]*(?:[eE][+-]?\d+)?)|(?P<sign>.)",
    re.DOTALL,
)


class Token(msgspec.Struct, frozen=True):
    """A piece of text and where it starts; `kind` is name, string, number or sign."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def read_tokens(text: str) -> list[Token]:
    """All tokens but blanks and comments. What is odd becomes a sign: the parser will complain."""
    return [
        Token(match.lastgroup or "sign", match.group(), match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]


def find_close(tokens: list[Token], index: int) -> int:
    """The index of the bracket that closes the one at `index`, or -1."""
    depth = 0
    for position in range(index, len(tokens)):
        token = tokens[position]
        if token.kind == "sign":
            depth += (token.text in "([{") - (token.text in ")]}")
            if not depth:
                return position
    return -1
