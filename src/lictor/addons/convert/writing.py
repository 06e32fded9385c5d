"""CEL source text: literals, names, brackets."""

import re

import orjson

from lictor.core.errors import CompileError
from lictor.core.raw import Json

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that cannot follow a dot, or that some reader of CEL does not take there.
_WORDS = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "return", "var", "void", "while",
))  # fmt: skip
# More than the API server takes.
_LONGEST = 64 * 1024
_PRIMARY = re.compile(r"[A-Za-z_][A-Za-z0-9_.?]*(\([^()]*\))?|\"[^\"]*\"|[0-9]+")
# re: trusted - our own CEL, in which every text is closed
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MAX_INTEGER = 1 << 63


def is_name(text: str) -> bool:
    """Can the text follow a dot?"""
    return _NAME.fullmatch(text) is not None and text not in _WORDS


def quote(text: str) -> str:
    """A string literal."""
    try:
        return orjson.dumps(text).decode()
    except TypeError as error:
        raise CompileError("a text is not valid Unicode") from error


def literal(value: Json) -> str:
    """Any JSON as a literal."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        pairs = [f"{quote(str(key))}: {literal(item)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, int) and not isinstance(value, bool):
        if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise CompileError(f"{value} is too large for CEL")
        return str(value)
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise CompileError("a value cannot be written in CEL") from error


def wrap(text: str) -> str:
    """Put parentheses around a text if precedence requires them."""
    if len(text) > _LONGEST:
        # Entries of a context that name each other twice make texts without end.
        raise CompileError("an expression would become too long")
    if _PRIMARY.fullmatch(text) or _is_closed(text):
        return text
    return f"({text})"


def _is_closed(text: str) -> bool:
    """Whether outside of brackets the text has only names, dots and calls."""
    depth = 0
    for letter in _STRING.sub("_", text):
        if letter == '"':
            return False
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and not (letter.isalnum() or letter in "_.?"):
            return False
    return True


def field(base: str, name: str) -> str:
    """`base.name`, or `base["name"]` where the name is none."""
    return f"{base}.{name}" if is_name(name) else f"{base}[{quote(name)}]"


def optional_field(base: str, name: str) -> str:
    """The field if it is there, as an optional value."""
    return f"{base}.?{name}" if is_name(name) else f"{base}[?{quote(name)}]"


def regex_of(pattern: str) -> str:
    """The regular expression for a wildcard pattern."""
    made = "".join(_escape(letter) for letter in pattern)
    return f"^{made}$" if "\n" not in pattern else f"(?s)^{made}$"


def _escape(letter: str) -> str:
    if letter == "*":
        return ".*"
    if letter == "?":
        return "."
    return f"\\{letter}" if letter in "\\.+()|[]{}^$" else letter


class PolicyVariables:
    """Variables of the new policy, in the order in which they are needed.

    With `inline`, there are none: what they would stand for is written out.
    """

    def __init__(self, *, inline: bool = False) -> None:
        self.expressions: dict[str, str] = {}
        self._inline = inline

    def add(self, name: str, expression: str) -> str:
        """Declare a variable, or find an equal one; returns the reference."""
        if self._inline:
            return f"({expression})"
        for known, text in self.expressions.items():
            if text == expression:
                return f"variables.{known}"
        free, number = name, 2
        while free in self.expressions:
            free, number = f"{name}{number}", number + 1
        self.expressions[free] = expression
        return f"variables.{free}"
