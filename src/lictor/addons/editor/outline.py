"""Reads YAML that is still being written: to which field does each line, or the cursor, belong?

A real parser gives up at the first open bracket or quote. This one reads on as a person would: a
key that stands no deeper than the field whose value was left open ends that value.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from lictor.core.model.finding import FieldPath
from lictor.core.raw import Json

_DASHES = re.compile(r" *(?:- +|-$)*")
# re: linear - tried at one place of a line
_KEY = re.compile(r"""("[^"]*"\s*|'[^']*'\s*|[^\s'"\[\]{},#&!|>%@`*-][^\n]*?|\*+\s*):(?=\s|$)""")
_BLOCK = re.compile(r"(?:[&!]\S+\s+)*[|>][-+0-9]*\s*(?:#.*)?$")
_COMMENT = re.compile(r"\s#.*")
_BLANK = re.compile(r" *(?:#.*)?$")


class OpenLevel:
    """A mapping or a list that is open: where it begins, and at which entry it is."""

    __slots__ = ("column", "is_flow", "step")

    def __init__(self, column: int, step: str | int | None, *, is_flow: bool = False) -> None:
        self.column = column
        # A key, an index, or None in a mapping between braces before its key.
        self.step = step
        self.is_flow = is_flow


class OutlineReader:
    """One walk through the lines of one document; what it knows at the end is where it ended."""

    def __init__(self) -> None:
        self.levels: list[OpenLevel] = []
        # The scalar that is being read, and whether its text may go on in the next line.
        self.text = ""
        self.quote = ""
        # An empty text in quotes is a value too.
        self._was_quoted = False
        self.in_block = False
        self.leaves: list[tuple[FieldPath, str]] = []

    @property
    def path(self) -> FieldPath:
        return tuple(level.step for level in self.levels if level.step is not None)

    @property
    def in_flow(self) -> bool:
        return bool(self.levels) and self.levels[-1].is_flow

    def read(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.read_line(line)
        self.end_scalar()

    def read_line(self, line: str) -> None:
        """One more line."""
        if not self.continue_open(line) and not _BLANK.match(line):
            self._read_block_line(line)

    def continue_open(self, line: str) -> bool:
        """Read on in a block, quotes or brackets; False where the line is outside of these."""
        indent = len(line) - len(line.lstrip(" "))
        if self.in_block:
            if not line.strip() or indent > self._owner_column():
                self.text += f"\n{line.strip()}"
                return True
            self.end_scalar()
        if not self.quote and not self.in_flow:
            return False
        if self._is_left_open(line, indent):
            self._abandon()
            return False
        self.text += " " if self.quote else ""
        self._read_flow(line, indent)
        return True

    def _owner_column(self) -> int:
        # What is open in flow style has the column of what it stands in: there may be thousands.
        return self.levels[-1].column if self.levels else -1

    def _is_left_open(self, line: str, indent: int) -> bool:
        """Does the line begin an entry that cannot be inside what was opened above?"""
        head = _DASHES.match(line)
        at = head.end() if head else 0
        is_entry = at > indent or _KEY.match(line, at) is not None
        return is_entry and at <= max(self._owner_column(), 0)

    def _abandon(self) -> None:
        self.end_scalar()
        while self.in_flow:
            self.levels.pop()

    def _read_block_line(self, line: str) -> None:
        at = self._read_dashes(line)
        key = _KEY.match(line, at)
        if key is None:
            self._read_rest(line, at)
            return
        self.end_scalar()
        self._leave(at)
        if self.levels and self.levels[-1].column == at and isinstance(self.levels[-1].step, int):
            self.levels.pop()
        name = key[1].rstrip()
        name = name.strip("'\"") if name[0] in "'\"" else name
        if self.levels and self.levels[-1].column == at:
            self.levels[-1].step = name
        else:
            self.levels.append(OpenLevel(at, name))
        self._read_value(line, key.end())

    def read_unfinished(self, line: str) -> bool:
        """The line of the cursor up to it: whether the name of a field may stand there."""
        indent = len(line) - len(line.lstrip(" "))
        head = _DASHES.match(line)
        is_inside = self.in_block and indent > self._owner_column()
        if self.in_block and not is_inside:
            self.end_scalar()
        if is_inside or _KEY.match(line, head.end() if head else 0):
            self.read_line(line)
        elif not self.continue_open(line):
            at = self._read_dashes(line)
            before = len(self.levels)
            self._leave(at - 1)
            self.text = self.text if before == len(self.levels) else ""
            self._read_rest(line, at)
            return self._may_be_key() or not (self.quote or self.in_flow)
        return self.in_flow and self._may_be_key()

    def _may_be_key(self) -> bool:
        return self.in_flow and not isinstance(self.levels[-1].step, str)

    def _read_dashes(self, line: str) -> int:
        """Enter the lists that begin or go on in a line; where its content begins."""
        at = len(line) - len(line.lstrip(" "))
        while line[at : at + 2] in ("- ", "-"):
            self.end_scalar()
            self._leave(at)
            last = self.levels[-1] if self.levels else None
            if last is not None and last.column == at and isinstance(last.step, int):
                last.step += 1
            else:
                self.levels.append(OpenLevel(at, 0))
            rest = line[at + 1 :]
            at += 1 + len(rest) - len(rest.lstrip(" "))
        return at

    def _leave(self, column: int) -> None:
        """Leave what stands deeper than a column."""
        while self.levels and self.levels[-1].column > column:
            self.levels.pop()

    def _read_value(self, line: str, at: int) -> None:
        self.text = ""
        rest = line[at:].lstrip()
        if _BLOCK.match(rest):
            self.in_block = True
        else:
            self._read_rest(line, len(line) - len(rest))

    def _read_rest(self, line: str, at: int) -> None:
        """A value, or the next line of one; or a key that has no colon yet."""
        rest = line[at:]
        if rest[:1] in ("[", "{", '"', "'") and not self.text:
            self._read_flow(line, at)
        elif _BLOCK.match(rest) and not self.text:
            self.in_block = True
        else:
            words = _COMMENT.sub("", rest).strip()
            self.text = f"{self.text} {words}" if self.text else words

    def end_scalar(self) -> None:
        """The scalar that was read is whole."""
        if (self.text or self._was_quoted) and self.levels:
            self.leaves.append((self.path, self.text))
        self.text, self.quote, self.in_block, self._was_quoted = "", "", False, False

    # --- braces, brackets and quotes

    def _read_flow(self, line: str, at: int) -> None:
        while at < len(line):
            if self.quote:
                at = self._read_quoted(line, at)
            elif not self.in_flow and line[at] not in "[{'\"":
                return  # A comment, or unreadable.
            else:
                at = self._read_sign(line, at)

    def _read_quoted(self, line: str, at: int) -> int:
        letter = line[at]
        if letter == "\\" and self.quote == '"':
            self.text += line[at + 1 : at + 2]
            return at + 2
        if letter != self.quote:
            self.text += letter
            return at + 1
        if self.quote == "'" and line[at + 1 : at + 2] == "'":
            self.text += "'"
            return at + 2
        self.quote, self._was_quoted = "", True
        if not self.in_flow:
            self.end_scalar()
        return at + 1

    def _read_sign(self, line: str, at: int) -> int:
        letter = line[at]
        level = self.levels[-1] if self.in_flow else None
        if letter in "'\"" and not self.text.strip():
            self.quote, self.text = letter, ""
        elif letter in "[{":
            self.text = ""
            column = self._owner_column()
            self.levels.append(OpenLevel(column, 0 if letter == "[" else None, is_flow=True))
        elif letter in "]}" and level is not None:
            self._end_entry()
            self.levels.pop()
        elif letter == "," and level is not None:
            self._end_entry()
            level.step = level.step + 1 if isinstance(level.step, int) else None
        elif letter == ":" and level is not None and level.step is None and _ends(line, at):
            level.step, self.text, self._was_quoted = self.text.strip(), "", False
        elif letter == "#" and line[at - 1 : at] in (" ", ""):
            return len(line)
        else:
            self.text += letter
        return at + 1

    def _end_entry(self) -> None:
        self.text = self.text.strip()
        if self.levels[-1].step is not None:
            self.end_scalar()
        self.text = ""


def _ends(line: str, at: int) -> bool:
    return line[at + 1 : at + 2] in ("", " ", ",", "]", "}", "[", "{")


def build_body(leaves: Sequence[tuple[FieldPath, str]]) -> Json:
    """What the scalars of a document make together: all of them are texts."""
    body: Json = {}
    for path, text in leaves:
        _put(body, path, text)
    return body


def _put(body: Json, path: FieldPath, text: str) -> None:
    place = body
    for step, after in zip(path, [*path[1:], None], strict=True):
        inner: Json = text if after is None else [] if isinstance(after, int) else {}
        if isinstance(place, dict) and isinstance(step, str):
            place = place.setdefault(step, inner)
        elif isinstance(place, list) and isinstance(step, int):
            place.extend({} if isinstance(after, str) else None for _ in range(len(place), step))
            if len(place) == step:
                place.append(inner)
            place = place[step]
        else:
            return  # Something else stands there: the text is not whole.


def list_documents(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first line and the end of each document."""
    start = 0
    for number, line in enumerate(lines):
        if line.startswith("---"):
            yield start, number
            start = number + 1
    yield start, len(lines)


# --- where the cursor stands

_WORD = re.compile(r"(?<![\w./-])[\w./-]*$")


class Cursor(msgspec.Struct, frozen=True):
    """The fields that lead to a place, and what is being written there."""

    path: FieldPath
    # The beginning of the word at the place.
    word: str
    # Whether the name of a field may be written here; otherwise it is a value.
    is_key: bool
    # The scalar so far, over all of its lines.
    text: str = ""
    # The document as far as it can be read; all scalars are texts.
    body: Json = None

    @property
    def api_version(self) -> str:
        return _read_text(self.body, "apiVersion")

    @property
    def kind(self) -> str:
        return _read_text(self.body, "kind")

    @property
    def variable(self) -> str | None:
        """Within the braces of a variable, its text so far."""
        start = self.text.rfind("{{")
        return None if start <= self.text.rfind("}}") else self.text[start + 2 :]


def _read_text(body: Json, field: str) -> str:
    found = body.get(field) if isinstance(body, dict) else None
    return found if isinstance(found, str) else ""


def find_cursor(lines: Sequence[str], line: int, column: int) -> Cursor:
    """Reads the document down to the place."""
    start, end = next(each for each in list_documents(lines) if line <= each[1])
    whole, reader = OutlineReader(), OutlineReader()
    whole.read(lines[start:end])
    body = build_body(whole.leaves)
    before = lines[line][:column]
    if before.lstrip().startswith("#"):
        return Cursor((), "", is_key=False, body=body)
    for content in lines[start:line]:
        reader.read_line(content)
    is_key = reader.read_unfinished(before)
    word = _WORD.search(before)
    return Cursor(reader.path, word[0] if word else "", is_key, reader.text, body)
