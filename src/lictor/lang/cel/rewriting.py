"""Expressions with names replaced before the checker sees them; errors point into the original."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from lictor.errors import SyntaxFaultError
from lictor.lang.cel.tokens import Token, find_close, read_tokens

REPLACED_METHODS = {"getMilliseconds": "allMilliseconds"}
RANGE = "boundedRange"
_WORDS = ("variables", ".validate", "format.named", "lists", *REPLACED_METHODS)


class Edit(msgspec.Struct, frozen=True):
    """The text from `start` to `end` becomes `text`."""

    start: int
    end: int
    text: str


class Rewritten(msgspec.Struct, frozen=True):
    """A changed expression that knows where each of its letters came from."""

    text: str
    original: str
    edits: tuple[Edit, ...] = ()

    def original_offset(self, offset: int) -> int:
        """Where in the original the letter at `offset` stands, or the start of what it replaced."""
        shift = 0
        for edit in self.edits:
            begins = edit.start + shift
            if offset < begins:
                break
            grown = len(edit.text) - (edit.end - edit.start)
            if offset < begins + len(edit.text):
                return edit.start
            shift += grown
        return offset - shift


Rewrite = Callable[[str, list[Token]], list[Edit]]


def apply_edits(text: str, edits: list[Edit]) -> Rewritten:
    """Replace; the edits must not overlap."""
    if not edits:
        return Rewritten(text, text)
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    parts: list[str] = []
    at = 0
    for edit in ordered:
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    return Rewritten("".join((*parts, text[at:])), text, tuple(ordered))


def replace_variables(text: str, tokens: list[Token], slots: Mapping[str, str]) -> list[Edit]:
    """`variables.x` becomes the name that the checker knows; an unknown one is an error here."""
    edits = []
    for index, token in enumerate(tokens):
        if token.text != "variables" or token.kind != "name" or _follows_dot(tokens, index):
            continue
        if not _is_selection(tokens, index):
            continue
        name = tokens[index + 2]
        if name.text not in slots:
            raise SyntaxFaultError(f"undefined field '{name.text}'", text=text, position=name.start)
        edits.append(_replace_variable(tokens, index, slots[name.text]))
    return edits


def unwrap_lists(tokens: list[Token]) -> list[Edit]:
    """`f.validate(x)` and `format.named(x)` answer an optional, which no function of ours can make.

    They answer a list of none or one instead, and the engine's own `first()` makes it an optional.
    """
    edits = []
    for index, token in enumerate(tokens[:-1]):
        if tokens[index + 1].text != "(" or not _follows_dot(tokens, index):
            continue
        if token.text == "validate" or (
            token.text == "named" and tokens[index - 2].text == "format"
        ):
            close = find_close(tokens, index + 1)
            if close > 0:
                edits.append(Edit(tokens[close].end, tokens[close].end, ".first()"))
    return edits


def rename_methods(tokens: list[Token]) -> list[Edit]:
    """Functions that the engine computes otherwise than Kubernetes are replaced by ours."""
    edits = []
    for index, token in enumerate(tokens):
        if not _follows_dot(tokens, index):
            continue
        if token.text in REPLACED_METHODS:
            edits.append(Edit(token.start, token.end, REPLACED_METHODS[token.text]))
        elif token.text == "range" and index > 1 and tokens[index - 2].text == "lists":
            edits.append(Edit(token.start, token.end, RANGE))
    return edits


def rewrite_expression(
    text: str, slots: Mapping[str, str], more: Sequence[Rewrite] = ()
) -> Rewritten:
    """All replacements of one expression; `more` are those of its environment."""
    if not more and not any(word in text for word in _WORDS):
        return Rewritten(text, text)
    tokens = read_tokens(text)
    edits = replace_variables(text, tokens, slots) + unwrap_lists(tokens) + rename_methods(tokens)
    for rewrite in more:
        edits += rewrite(text, tokens)
    return apply_edits(text, edits)


def _follows_dot(tokens: list[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].text == "."


def _is_selection(tokens: list[Token], index: int) -> bool:
    following = tokens[index + 1 : index + 3]
    return len(following) == 2 and following[0].text == "." and following[1].kind == "name"


def _replace_variable(tokens: list[Token], index: int, slot: str) -> Edit:
    around = (*tokens[max(index - 2, 0) : index], *tokens[index + 3 : index + 4])
    if [token.text for token in around] == ["has", "(", ")"]:
        # A declared variable is always there; has() takes nothing but a selection.
        return Edit(around[0].start, around[2].end, "true")
    return Edit(tokens[index].start, tokens[index + 2].end, slot)
