"""`JSONPatch{…}.op`: fields of values that the checker knows by name only.

To the checker an `Object` and a `JSONPatch` are types without fields. Where it says so, the value
is made a map first, and the field is read from that.
"""

import re
from collections.abc import Iterator

from lictor.errors import SyntaxFaultError
from lictor.lang.cel.rewriting import Edit, Rewritten, apply_edits
from lictor.lang.cel.tokens import Token, find_close, read_tokens

# Methods of ours: all fields with their defaults, and those that are set.
FIELDS, SET_FIELDS = "_Fields", "_SetFields"
PATCH_FIELDS = frozenset({"op", "path", "from", "value"})
_REFUSED = re.compile(
    r"ERROR: <input>:(\d+):(\d+): expression of type '(Object|JSONPatch)' cannot be the operand "
    "of a select operation"
)


def read_fields(rewritten: Rewritten, refusal: str) -> Rewritten | None:
    """The expression with the selections changed that the checker refused; None: it was not that.

    Raises SyntaxFaultError for a field that such a value does not have.
    """
    places = _REFUSED.findall(refusal)
    if not places:
        return None
    tokens = read_tokens(rewritten.original)
    edits = list(rewritten.edits)
    for line, column, kind in places:
        offset = rewritten.original_offset(_find_offset(rewritten.text, int(line), int(column)))
        edits += _change(rewritten.original, tokens, offset, kind)
    if len(edits) == len(rewritten.edits):
        return None
    return apply_edits(rewritten.original, edits)


def _change(text: str, tokens: list[Token], offset: int, kind: str) -> Iterator[Edit]:
    index = next((i for i, token in enumerate(tokens) if token.start == offset), -1)
    if index < 0:
        return
    method = FIELDS
    if tokens[index].text == "(":
        # The macro has(x.y): the selection is what stands last in the brackets.
        index = find_close(tokens, index) - 2
        method = SET_FIELDS
    elif tokens[index + 1 : index + 2] and tokens[index + 1].text == "?":
        method = SET_FIELDS
    if index < 0 or tokens[index].text != ".":
        return
    name = tokens[index + 2] if tokens[index + 1].text == "?" else tokens[index + 1]
    if kind == "JSONPatch" and name.text not in PATCH_FIELDS:
        raise SyntaxFaultError(f"undefined field '{name.text}'", text=text, position=name.start)
    yield Edit(tokens[index].start, tokens[index].start, f".{method}()")


def _find_offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
