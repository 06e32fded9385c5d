"""Where does the cursor stand in a YAML text? Also while the text is not yet whole."""

import re
from collections.abc import Sequence

import msgspec

from lictor.editor.outline import OutlineReader, build_body, list_documents
from lictor.model.finding import FieldPath
from lictor.raw import Json

_WORD = re.compile(r"[\w./-]*$")


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
