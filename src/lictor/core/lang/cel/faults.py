"""What can go wrong with an expression: when it is compiled, and when it is evaluated."""

import re
from collections.abc import Sequence

import msgspec

from lictor.core.errors import (
    EvaluationError,
    LictorError,
    SyntaxFaultError,
    TooLargeError,
    TooSlowError,
)

_UNDEFINED = re.compile("undefined field '(.*)'$")


class Issue(msgspec.Struct, frozen=True):
    """A problem found by the parser or the type checker, at an offset of the source."""

    position: int
    message: str

    def locate(self, source: str) -> tuple[int, int]:
        """Line and column, both from 1, as Kubernetes prints them."""
        position = max(self.position, 0)
        start = source.rfind("\n", 0, position) + 1
        return source.count("\n", 0, position) + 1, position - start + 1

    def render(self, source: str) -> str:
        """The message with the line it refers to, as cel-go formats it."""
        line, column = self.locate(source)
        text = source.split("\n")[line - 1].replace("\t", " ")
        marker = "".join("\uff0e" if _is_wide(letter) else "." for letter in text[: column - 1])
        arrow = "\uff3e" if text[column - 1 : column] and _is_wide(text[column - 1]) else "^"
        return f"ERROR: <input>:{line}:{column}: {self.message}\n | {text}\n | {marker}{arrow}"


def _is_wide(letter: str) -> bool:
    return len(letter.encode("utf-8", "surrogatepass")) > 1


class CelCompileError(SyntaxFaultError):
    """An expression that is refused; `issues` has every reason."""

    def __init__(self, issues: Sequence[Issue], source: str) -> None:
        self.issues = tuple(sorted(issues, key=lambda issue: issue.position))
        first = self.issues[0]
        undefined = _UNDEFINED.match(first.message)
        super().__init__(
            "\n".join(issue.render(source) for issue in self.issues),
            text=source,
            position=first.position,
            code="undefined-field" if undefined else "",
            arguments=undefined.groups() if undefined else (),
        )


class CelError(EvaluationError):
    """An evaluation that failed; `&&`, `||`, `all` and `exists` may absorb it."""


class CelLimitError(TooLargeError):
    """An evaluation that was stopped: no operator absorbs this."""


class CostExceededError(CelLimitError):
    """The evaluation costs more than its budget."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class TimeExceededError(TooSlowError):
    """The evaluation takes longer than it may."""

    def __init__(self) -> None:
        super().__init__("operation interrupted: deadline exceeded")


def no_overload(name: str = "") -> CelError:
    """The error for arguments that no overload of a function takes."""
    return CelError(f"no such overload: {name}" if name else "no such overload")


class OutsideError(CelError):
    """What a function of the host raised; `cause` is raised where no operator absorbs it."""

    def __init__(self, cause: LictorError) -> None:
        super().__init__(str(cause))
        self.cause = cause
