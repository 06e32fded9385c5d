"""Splits an expression into tokens, and unescapes its literals."""

import re
from sys import intern
from typing import NamedTuple

from cel2.faults import CelCompileError, Issue

MAX_LENGTH = 100_000

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_TEXT = (
    rf"\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_RAW = r"[rR](?:\"\"\"(?:.|\n|\r)*?\"\"\"|'''(?:.|\n|\r)*?'''|\"[^\"\n\r]*\"|'[^'\n\r]*')"
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


class Token(NamedTuple):
    """A token: its kind, its text and its offset. Operators and words are their own kind."""

    kind: str
    text: str
    position: int


def split_tokens(source: str) -> list[Token]:
    """The tokens without blanks and comments, with an `end` behind them."""
    if len(source) > MAX_LENGTH:
        message = (
            f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_LENGTH}"
        )
        raise CelCompileError([Issue(0, message)], source)
    tokens: list[Token] = []
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
            tokens.append(Token(text if kind == "mark" or text in _WORDS else kind, text, position))
        position = found.end()
    tokens.append(Token("end", "<EOF>", len(source)))
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
