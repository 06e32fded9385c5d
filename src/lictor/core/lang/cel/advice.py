"""What the author of an expression that is refused probably meant."""

import difflib
import re

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.faults import CelCompileError
from lictor.core.lang.cel.program import Environment

_CONTAINER = " (in container '')"
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")


def advise(error: CelCompileError, environment: Environment) -> SyntaxFaultError:
    """The error in one line, with names that are like those that are not declared."""
    messages = (_word(issue.message, environment) for issue in error.issues)
    return SyntaxFaultError(
        "; ".join(dict.fromkeys(messages)),
        text=error.text,
        position=_find_start(error),
        code=error.code,
        arguments=error.arguments,
    )


def _find_start(error: CelCompileError) -> int:
    """Where the name begins; the position of a call is that of its bracket."""
    first = error.issues[0]
    if error.arguments:
        return find_name(error.text, error.arguments[0], first.position)
    match = _UNDECLARED.match(first.message)
    start = first.position - len(match[1]) if match else -1
    is_call = match is not None and error.text[max(start, 0) : first.position] == match[1]
    return start if is_call else max(first.position, 0)


def find_name(text: str, name: str, position: int) -> int:
    """Where a field is named: before the colon of a literal, or after the dot of a selection."""
    if text[position : position + 1] == ":":
        return max(text.rfind(name, 0, position), 0)
    return max(text.find(name, position), position)


def _word(message: str, environment: Environment) -> str:
    text = message.replace(_CONTAINER, "")
    match = _UNDECLARED.search(text)
    if match is None:
        return text
    close = _suggest(match[1], environment)
    return f"{text}, did you mean '{close}'?" if close else text


def _suggest(word: str, environment: Environment) -> str:
    """A similar name; for a method called without a receiver, the function of a library."""
    names = [*environment.variables, *environment.functions, *_MACROS]
    known = [name for name in names if name[0].isalpha() and "@" not in name]
    if word in known:
        return next((name for name in known if name.endswith(f".{word}")), "")
    close = difflib.get_close_matches(word, known, 1)
    return close[0] if close else ""


_MACROS = ("all", "exists", "exists_one", "filter", "map", "has")
