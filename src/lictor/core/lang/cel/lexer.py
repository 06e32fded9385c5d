"""Splits an expression into tokens, finished or not, and unescapes its literals."""

import re
from functools import lru_cache
from sys import intern
from typing import NamedTuple

import msgspec

from lictor.core.lang.cel.faults import CelCompileError, Issue

MAX_LENGTH = 100_000

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_TEXT = (
    rf"\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_RAW = r"[rR](?:\"\"\"(?:.|\n|\r)*?\"\"\"|'''(?:.|\n|\r)*?'''|\"[^\"\n\r]*\"|'[^'\n\r]*')"
# re: linear - the alternatives of a repetition begin with different characters
_TOKEN = re.compile(
    rf"(?P<blank>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
    rf"|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    rf"|(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])"
    rf"|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
    rf"|(?P<bytes>[bB](?:{_TEXT}|{_RAW}))"
    rf"|(?P<string>{_TEXT}|{_RAW})"
    rf"|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    rf"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    rf"|(?P<mark>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])"
)
_WORDS = frozenset(("in", "true", "false", "null"))
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_ESCAPED = re.compile(_ESCAPE)


class CelLexeme(NamedTuple):
    """A token: its kind, its text and its offset. Operators and words are their own kind."""

    kind: str
    text: str
    position: int


def split_tokens(source: str) -> list[CelLexeme]:
    """The tokens without blanks and comments, with an `end` behind them."""
    if len(source) > MAX_LENGTH:
        message = (
            f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_LENGTH}"
        )
        raise CelCompileError([Issue(0, message)], source)
    tokens: list[CelLexeme] = []
    position = 0
    match = _TOKEN.match
    while position < len(source):
        found = match(source, position)
        if found is None:
            raise fail(source, position, f"token recognition error at: '{source[position]}'")
        kind = found.lastgroup or ""
        if kind != "blank":
            # The same names occur in thousands of expressions.
            text = intern(found[0])
            tokens.append(
                CelLexeme(text if kind == "mark" or text in _WORDS else kind, text, position)
            )
        position = found.end()
    tokens.append(CelLexeme("end", "<EOF>", len(source)))
    return tokens


def fail(source: str, position: int, message: str) -> CelCompileError:
    """The error for a text that is not in the grammar."""
    return CelCompileError([Issue(position, f"Syntax error: {message}")], source)


def read_string(text: str) -> str:
    """The value of a string literal; ValueError for an invalid code point."""
    body, is_raw = _strip_quotes(text)
    if is_raw or "\\" not in body:
        return body
    return _ESCAPED.sub(_unescape, body)


def read_bytes(text: str) -> bytes:
    """The value of a bytes literal without its `b`; ValueError for Unicode escapes."""
    body, is_raw = _strip_quotes(text)
    if is_raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass")
    parts, end = [], 0
    for found in _ESCAPED.finditer(body):
        parts.append(body[end : found.start()].encode("utf-8", "surrogatepass"))
        if found[0][1] in "uU":
            raise ValueError("unable to unescape string")
        parts.append(_unescape(found).encode("latin-1"))
        end = found.end()
    parts.append(body[end:].encode("utf-8", "surrogatepass"))
    return b"".join(parts)


def _strip_quotes(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = text[0] in "rR"
    text = text[1:] if is_raw else text
    size = 3 if len(text) >= 6 and text.startswith(('"""', "'''")) else 1
    return text[size:-size], is_raw


def _unescape(found: re.Match[str]) -> str:
    text = found[0]
    letter = text[1]
    if letter in "xXuU":
        return _code_point(int(text[2:], 16))
    if letter in "0123":
        return _code_point(int(text[1:], 8))
    return _SIMPLE_ESCAPES.get(letter, letter)


def _code_point(number: int) -> str:
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(number)


_STRING = "|".join((
    r"[rR][bB]?'''.*?'''", r'[rR][bB]?""".*?"""', r"[bB]?[rR]?'''(?:\\.|[^\\])*?'''",
    r'[bB]?[rR]?"""(?:\\.|[^\\])*?"""', r"[bB]?[rR]'[^'\n]*'", r'[bB]?[rR]"[^"\n]*"',
    r"[rR][bB]'[^'\n]*'", r'[rR][bB]"[^"\n]*"',
    r"[bB]?'(?:\\.|[^\\'\n])*'", r'[bB]?"(?:\\.|[^\\"\n])*"',
))  # fmt: skip
# re: linear - a text that is not closed is one sign, up to the end
_ANY_TOKEN = re.compile(
    # Most signs, as they take longest to be found behind all else.
    r"[^\s\w'\"/]|"
    rf"(?P<space>\s+|//[^\n]*)|(?P<string>{_STRING})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>\d[\w.]*(?:[eE][+-]?\d+)?)|(?P<sign>['\"].*|.)",
    re.DOTALL,
)


class CelToken(msgspec.Struct, frozen=True):
    """A piece of text and where it starts; `kind` is name, string, number or sign."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def read_tokens(text: str) -> list[CelToken]:
    """All tokens but blanks and comments. What is odd becomes a sign: the parser will complain."""
    return list(_read_tokens(text))


# An expression is read when it is checked, compiled, and looked into for each kind of object.
@lru_cache(maxsize=512)
def _read_tokens(text: str) -> tuple[CelToken, ...]:
    return tuple(
        CelToken(match.lastgroup or "sign", match[0], match.start())
        for match in _ANY_TOKEN.finditer(text)
        if match.lastgroup != "space"
    )


def find_close(tokens: list[CelToken], index: int) -> int:
    """The index of the bracket that closes the one at `index`, or -1."""
    depth = 0
    for position in range(index, len(tokens)):
        token = tokens[position]
        if token.kind == "sign":
            depth += (token.text in "([{") - (token.text in ")]}")
            if not depth:
                return position
    return -1
