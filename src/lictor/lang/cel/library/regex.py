"""Kubernetes' `text.find(regex)` and `text.findAll(regex)`."""

from lictor.errors import FunctionError, SyntaxFaultError
from lictor.lang.cel.declaration import member
from lictor.lang.regex import Regex, compile_regex


def _compile(expression: str) -> Regex:
    try:
        return compile_regex(expression)
    except SyntaxFaultError as error:
        raise FunctionError(f"Illegal regex: {error}") from None


def _find(text: str, expression: str) -> str:
    found = _compile(expression).search(text)
    return (found.group() or "") if found else ""


def _find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    results: list[str] = []
    end = -1
    for found in _compile(expression).finditer(text):
        if 0 <= limit <= len(results):
            break
        # As in Go, an empty match that touches the one before does not count.
        if found.end() > found.start() or found.start() != end:
            results.append(found.group() or "")
        end = found.end()
    return results


OVERLOADS = (
    member("find", "string, string -> string", _find),
    member("findAll", "string, string -> list<string>", _find_all),
    member("findAll", "string, string, int -> list<string>", _find_all),
)
