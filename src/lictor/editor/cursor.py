"""Where does the cursor stand in a YAML text? Also while the text is not yet whole."""

import re
from collections.abc import Sequence

import msgspec

from lictor.model.finding import FieldPath

_ENTRY = re.compile(r"^(?P<head> *(?:- +)*)(?P<key>[^\s:#'\"{\[-][^\s:]*):(?=\s|$)")
_HEAD = re.compile(r"^ *(?:- *)*")
_WORD = re.compile(r"[\w./-]*$")


class Cursor(msgspec.Struct, frozen=True):
    """The fields that lead to a place, and what is being written there."""

    # Indexes of lists are all 0: only the type of a place is asked for.
    path: FieldPath
    # The beginning of the word at the place.
    word: str
    # Whether the name of a field is written, not its value.
    is_key: bool
    api_version: str = ""
    kind: str = ""
    # Within the braces of a variable: its text so far.
    in_variable: bool = False


def find_cursor(lines: Sequence[str], line: int, column: int) -> Cursor:
    """Reads the indents upward from a line, as a person would."""
    before = lines[line][:column]
    entry = _ENTRY.match(before)
    head = _HEAD.match(before)
    path = _climb(lines, line, entry["head"] if entry else head[0] if head else "")
    found = _WORD.search(before)
    version, kind = _find_head(lines, line)
    return Cursor(
        (*path, entry["key"]) if entry else path,
        found[0] if found else "",
        entry is None,
        version,
        kind,
        before.rfind("{{") > before.rfind("}}"),
    )


def _climb(lines: Sequence[str], line: int, head: str) -> FieldPath:
    steps: list[str | int] = []
    limit = _enter(head, steps)
    for number in range(line - 1, -1, -1):
        if lines[number].startswith("---") or limit == 0:
            break
        entry = _ENTRY.match(lines[number])
        if entry is None or len(entry["head"]) > limit:
            continue
        if len(entry["head"]) < limit:
            steps.append(entry["key"])
        elif "-" not in entry["head"]:
            continue
        # Also at the first field of the item of a list that the place belongs to.
        limit = _enter(entry["head"], steps)
    return tuple(reversed(steps))


def _enter(head: str, steps: list[str | int]) -> int:
    """How far left the parent must stand: a list may begin right below its key."""
    dashes = head.count("-")
    steps.extend([0] * dashes)
    return head.index("-") + 1 if dashes else len(head)


def _find_head(lines: Sequence[str], line: int) -> tuple[str, str]:
    """The apiVersion and kind of the document that a line belongs to."""
    found = {"apiVersion": "", "kind": ""}
    start = next((n for n in range(line, -1, -1) if lines[n].startswith("---")), -1)
    for content in lines[start + 1 :]:
        if content.startswith("---"):
            break
        key, _, value = content.partition(":")
        if key in found:
            found[key] = value.strip().strip("'\"")
    return found["apiVersion"], found["kind"]
