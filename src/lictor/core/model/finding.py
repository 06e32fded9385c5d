"""A problem in a document: its location and severity."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

# The keys and list indexes from the root of a document to a field.
FieldPath: TypeAlias = tuple[str | int, ...]


class Severity(StrEnum):
    """An error makes the document unusable; a warning should be looked at."""

    WARNING = "warning"
    ERROR = "error"


class Location(msgspec.Struct, frozen=True):
    """A position in a file. Lines and columns count from one."""

    file: str = ""
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class TextOffset(msgspec.Struct, frozen=True):
    """A position within the text of a field, in characters."""

    text: str
    offset: int


class Finding(msgspec.Struct, frozen=True):
    """A problem at a path of a document."""

    path: FieldPath
    message: str
    suggestion: str = ""
    severity: Severity = Severity.ERROR
    # The `lint` check that found it; empty if a document is only loaded.
    check: str = ""
    # Identifies the problem, with arguments, for callers that format their own message; or empty.
    code: str = ""
    arguments: tuple[str, ...] = ()
    # Position in the text of the field, if it is an expression.
    offset: TextOffset | None = None
    # The file, and kind and name of the object; set when the document is known.
    location: Location = Location()
    kind: str = ""
    name: str = ""

    def with_code(self, code: str, *arguments: str) -> "Finding":
        """The same with a code, for callers that format their own message."""
        return msgspec.structs.replace(self, code=code, arguments=arguments)

    @property
    def field(self) -> str:
        """The path in its usual notation."""
        return write_path(self.path)

    @property
    def text(self) -> str:
        """The message, with the suggestion."""
        hint = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        return f"{self.message}{hint}"

    @property
    def field_and_text(self) -> str:
        """The problem, after the field if there is one."""
        return f"{self.field}: {self.text}" if self.path else self.text

    def __str__(self) -> str:
        return f"{self.location}: {self.field_and_text}"


def write_path(path: FieldPath) -> str:
    """`spec.rules[0].name`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
