"""What is wrong with a document, and where: for people to read and for `lint` to count."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]


class Severity(StrEnum):
    """How bad it is: an error makes the document unusable."""

    WARNING = "warning"
    ERROR = "error"


class FieldFault(msgspec.Struct, frozen=True):
    """Something wrong at a path of one document, before anyone asked for its line."""

    path: Path
    message: str
    suggestion: str = ""
    severity: Severity = Severity.ERROR


class Problem(msgspec.Struct, frozen=True):
    """Something wrong in a file. Lines and columns count from one."""

    source: str
    line: int
    column: int
    path: str
    message: str
    suggestion: str = ""
    severity: Severity = Severity.ERROR
    # What the document is, where that can be known.
    kind: str = ""
    name: str = ""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"

    def __str__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        hint = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        return f"{self.where}: {path}{self.message}{hint}"


def write_path(path: Path) -> str:
    """`spec.rules[0].name`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
