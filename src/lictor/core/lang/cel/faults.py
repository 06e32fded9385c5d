"""What the engine complains of, in Kubernetes' words and with a position in the policy's text."""

import difflib
import re
from collections.abc import Iterable

from lictor.core.errors import EvaluationError, SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.rewriting import Rewritten

_STATUS = re.compile(r"^[A-Z_]+: ")
_ISSUE = re.compile(r"^(?:[A-Z_]+: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
# The engine tells what is wrong by text only.
_UNDEFINED = re.compile("undefined field '(.*)'$")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_CONTAINER = " (in container '')"
_OVER_BUDGET = "operation cancelled: actual cost limit exceeded"
_SAME_WORDS = (
    (re.compile(r'^Key not found in map : "?(.*?)"?$', re.DOTALL), r"no such key: \1"),
    (re.compile(r"^No matching overloads found : (.*)$", re.DOTALL), r"no such overload: \1"),
    (re.compile(r"^Applying SELECT to non-message type$"), "no such key: it has no fields"),
    (re.compile(r"^Index error: index=(-?\d+) size=\d+$"), r"index out of bounds: \1"),
    (re.compile(r"^divide by zero$"), "division by zero"),
    (re.compile(r"^Iteration budget exceeded$"), _OVER_BUDGET),
    (re.compile(r'^No value with name "(.*)" found in Activation$'), r"no such attribute(s): \1"),
)  # fmt: skip


def explain_failure(status: str) -> str:
    """An error of the engine at run time, as Kubernetes would put it."""
    text = _STATUS.sub("", status)
    text = re.sub(r" \[[A-Z_]+\]$", "", text)
    for pattern, words in _SAME_WORDS:
        if pattern.match(text):
            return pattern.sub(words, text)
    return text


def evaluation_fault(status: str) -> EvaluationError | TooLargeError:
    """The error to raise for what the engine answered."""
    text = explain_failure(status)
    return TooLargeError(text) if text == _OVER_BUDGET else EvaluationError(text)


def syntax_fault(message: str, rewritten: Rewritten, known: Iterable[str]) -> SyntaxFaultError:
    """The error to raise for an expression that does not parse or does not fit its types."""
    issues = _ISSUE.findall(message)
    if not issues:
        return SyntaxFaultError(explain_failure(message), text=rewritten.original)
    line, column, first = issues[0]
    offset = _offset(rewritten.text, int(line), int(column))
    unknown = _UNDECLARED.search(first)
    if unknown:
        root = _root(unknown[1])
        # The engine tells the whole chain a.b.c and where it ends; the culprit is where it begins.
        offset = max(rewritten.text.rfind(root, 0, offset + len(root)), 0)
    told = "; ".join(_advise(text.strip(), known) for _, _, text in issues)
    undefined = _UNDEFINED.match(told)
    return SyntaxFaultError(
        told,
        text=rewritten.original,
        position=rewritten.original_offset(offset),
        code="undefined-field" if undefined else "",
        arguments=undefined.groups() if undefined else (),
    )


def _root(chain: str) -> str:
    return chain.partition(".")[0]


# Functions that people misspell: those of CEL itself and of Kubernetes' libraries.
_FUNCTIONS = (
    *("size", "startsWith", "endsWith", "contains", "matches", "exists", "exists_one", "filter"),
    *("string", "double", "duration", "timestamp", "charAt", "indexOf", "lastIndexOf", "join"),
    *("lowerAscii", "upperAscii", "replace", "split", "substring", "trim", "format", "find"),
    *("findAll", "isSorted", "quantity", "isQuantity", "isGreaterThan", "isLessThan", "compareTo"),
    *("asInteger", "isInteger", "isURL", "getHost", "isIP", "isCIDR", "containsIP", "orValue"),
    *("hasValue", "getFullYear", "getHours", "getMinutes", "getSeconds"),
)


def _suggest(word: str, known: tuple[str, ...]) -> list[str]:
    """What was probably meant: of a function of values called by itself, the one of a library."""
    if word in known:
        return [name for name in known if name.endswith(f".{word}")][:1]
    return difflib.get_close_matches(word, known, 1) or difflib.get_close_matches(
        word, [name for name in _FUNCTIONS if name != word], 1
    )


def _advise(text: str, known: Iterable[str]) -> str:
    text = re.sub(r" \[[A-Z_]+\]$", "", text).replace(_CONTAINER, "")
    if text.startswith("Exceeded max recursion depth"):
        return "the expression is nested too deeply, or has more than 32 operands in a row"
    match = _UNDECLARED.search(text)
    if match is None:
        return text
    text = text.replace(match[0], f"undeclared reference to '{_root(match[1])}'")
    close = _suggest(_root(match[1]), tuple(known))
    return f"{text}, did you mean '{close[0]}'?" if close else text


def _offset(text: str, line: int, column: int) -> int:
    if line < 1:
        return 0
    lines = text.split("\n")
    return min(sum(len(each) + 1 for each in lines[: line - 1]) + column - 1, len(text))
