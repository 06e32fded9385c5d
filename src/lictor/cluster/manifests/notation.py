"""Text in our notation of fields -> a tree of notes: names, types, limits, descriptions.

    Summary                          the name of a shape, or of a record: `policy.Rule`
      pass integer min=0 -- How many.      a field, its type, its attributes, its description
      owner! object atomic                 an exclamation mark: the field is required
        -- What the report is about.       a description may go on below
        name! string                       the fields of an object stand below it

Types are `string`, `boolean`, `integer`, `any`, `object`, the name of a shape or a record, `[type]`
for a list and `{type}` for a map. In notes on a record the type is left out: the record has it.
"""

import msgspec

from lictor.errors import LoadError

FLAGS = frozenset(("atomic", "free", "nullable", "open", "set"))
_DASHES = "--"
_STEP = 2


class Note(msgspec.Struct):
    """What is written about one field, and about the fields inside it."""

    name: str
    type: str = ""
    required: bool = False
    attributes: dict[str, str] = {}
    description: str = ""
    fields: dict[str, "Note"] = {}


def parse_notes(text: str) -> dict[str, Note]:
    """The notes of a text by name, in order."""
    top = Note("")
    path = [top]
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip())) // _STEP
        if words.startswith(_DASHES):
            _continue_description(path[-1], words.removeprefix(_DASHES).strip())
            continue
        if depth >= len(path):
            raise LoadError("a field is indented too far", where=f"line {number}")
        note = parse_line(words)
        del path[depth + 1 :]
        path[-1].fields[note.name] = note
        path.append(note)
    return top.fields


def parse_line(line: str) -> Note:
    """One line without its indentation."""
    head, _, description = line.partition(f" {_DASHES} ")
    name, *words = head.split()
    kind = words.pop(0) if words and not _is_attribute(words[0]) else ""
    attributes = dict(_read_attribute(word) for word in words)
    return Note(name.removesuffix("!"), kind, name.endswith("!"), attributes, description.strip())


def _is_attribute(word: str) -> bool:
    return word in FLAGS or "=" in word


def _read_attribute(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _continue_description(note: Note, text: str) -> None:
    note.description = f"{note.description} {text}".strip()
