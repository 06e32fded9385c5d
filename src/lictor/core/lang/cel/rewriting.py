"""Expressions rewritten before the checker sees them; errors point into the original text.

Policies' variables become names that the checker knows. `Object.spec{replicas: 3}` and
`JSONPatch{op: "add"}` become maps, which the engine knows; the checker still tells them from other
maps, because the map is handed to a function that only the checker has, and `wire` then puts the
engine's own `dyn` in its place. To the checker these are types without fields: where it complains
about one, the value is made a map first.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.wire import OBJECT_MARK, PATCH_MARK

_STRING = "|".join((
    r"[rR][bB]?'''.*?'''", r'[rR][bB]?""".*?"""', r"[bB]?[rR]?'''(?:\\.|[^\\])*?'''",
    r'[bB]?[rR]?"""(?:\\.|[^\\])*?"""', r"[bB]?[rR]'[^'\n]*'", r'[bB]?[rR]"[^"\n]*"',
    r"[rR][bB]'[^'\n]*'", r'[rR][bB]"[^"\n]*"',
    r"[bB]?'(?:\\.|[^\\'\n])*'", r'[bB]?"(?:\\.|[^\\"\n])*"',
))  # fmt: skip
# re: linear - a text that is not closed is one sign, up to the end
_TOKEN = re.compile(
    # Most signs, as they take longest to be found behind all else.
    r"[^\s\w'\"/]|"
    rf"(?P<space>\s+|//[^\n]*)|(?P<string>{_STRING})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>\d[\w.]*(?:[eE][+-]?\d+)?)|(?P<sign>['\"].*|.)",
    re.DOTALL,
)


class CelToken(msgspec.Struct, frozen=True):
    """A piece of text and where it starts; `kind` is name, string, number or sign."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def read_tokens(text: str) -> list[CelToken]:
    """All tokens but blanks and comments. What is odd becomes a sign: the parser will complain."""
    return list(_read_tokens(text))


# An expression is read when it is checked, compiled, and looked into for each kind of object.
@lru_cache(maxsize=512)
def _read_tokens(text: str) -> tuple[CelToken, ...]:
    return tuple(
        CelToken(match.lastgroup or "sign", match[0], match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    )


def refuse_names(text: str, forbidden: Collection[str]) -> None:
    """Raise SyntaxFaultError where an expression uses a name that its authors may not use."""
    if not any(name in text for name in forbidden):
        return
    tokens = read_tokens(text)
    for before, token in zip((None, *tokens), tokens, strict=False):
        if token.text in forbidden and not (before and before.text == "."):
            message = f"undeclared reference to '{token.text}'"
            raise SyntaxFaultError(message, text=text, position=token.start)


def find_close(tokens: list[CelToken], index: int) -> int:
    """The index of the bracket that closes the one at `index`, or -1."""
    depth = 0
    for position in range(index, len(tokens)):
        token = tokens[position]
        if token.kind == "sign":
            depth += (token.text in "([{") - (token.text in ")]}")
            if not depth:
                return position
    return -1


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


Rewrite = Callable[[str, list[CelToken]], list[Edit]]


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


def replace_variables(text: str, tokens: list[CelToken], slots: Mapping[str, str]) -> list[Edit]:
    """`variables.x` becomes the name that the checker knows; an unknown one is an error here."""
    edits = []
    for index, token in enumerate(tokens):
        if token.text != "variables" or token.kind != "name" or _follows_dot(tokens, index):
            continue
        if not _is_selection(tokens, index):
            continue
        name = tokens[index + 2]
        if name.text not in slots:
            raise _undefined_field(text, name)
        edits.append(_replace_variable(tokens, index, slots[name.text]))
    return edits


def unwrap_lists(tokens: list[CelToken]) -> list[Edit]:
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


def rename_methods(tokens: list[CelToken]) -> list[Edit]:
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


def _follows_dot(tokens: list[CelToken], index: int) -> bool:
    return index > 0 and tokens[index - 1].text == "."


def _is_selection(tokens: list[CelToken], index: int) -> bool:
    following = tokens[index + 1 : index + 3]
    return len(following) == 2 and following[0].text == "." and following[1].kind == "name"


def _replace_variable(tokens: list[CelToken], index: int, slot: str) -> Edit:
    around = (*tokens[max(index - 2, 0) : index], *tokens[index + 3 : index + 4])
    if [token.text for token in around] == ["has", "(", ")"]:
        # A declared variable is always there; has() takes nothing but a selection.
        return Edit(around[0].start, around[2].end, "true")
    return Edit(tokens[index].start, tokens[index + 2].end, slot)


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


def _change(text: str, tokens: list[CelToken], offset: int, kind: str) -> Iterator[Edit]:
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
        raise _undefined_field(text, name)
    yield Edit(tokens[index].start, tokens[index].start, f".{method}()")


def _find_offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(each) + 1 for each in lines[: line - 1]) + column - 1


class _Literal(msgspec.Struct, frozen=True):
    """One literal: the indices of its first token, its brackets, and the name of its type."""

    first: int
    opens: int
    closes: int
    name: str

    def holds(self, index: int) -> bool:
        return self.opens < index < self.closes


def replace_literals(text: str, tokens: list[CelToken]) -> list[Edit]:
    """The edits that make maps of all literals; a type that does not fit its field is an error."""
    literals = list(_find_literals(tokens))
    edits = []
    for literal in literals:
        fields = list(_find_fields(tokens, literal))
        _check_type(text, tokens, literal, literals)
        _check_fields(text, literal, fields)
        begin, end = _brackets(tokens, literal)
        edits.append(Edit(tokens[literal.first].start, tokens[literal.opens].end, begin))
        edits.append(Edit(tokens[literal.closes].start, tokens[literal.closes].end, end))
        edits += [Edit(token.start, token.end, f'"{token.text}"') for token in fields]
    return edits


def _find_literals(tokens: list[CelToken]) -> Iterator[_Literal]:
    for index, token in enumerate(tokens):
        if token.text not in {"Object", "JSONPatch"} or token.kind != "name":
            continue
        if index and tokens[index - 1].text == ".":
            continue
        end, name = index + 1, token.text
        while _text(tokens, end) == "." and _text(tokens, end + 1).isidentifier():
            name += f".{tokens[end + 1].text}"
            end += 2
        closes = find_close(tokens, end) if _text(tokens, end) == "{" else -1
        if closes > 0:
            yield _Literal(index, end, closes, name)


def _find_fields(tokens: list[CelToken], literal: _Literal) -> Iterator[CelToken]:
    index = literal.opens + 1
    while index < literal.closes:
        if _text(tokens, index) == "?":
            index += 1
        if tokens[index].kind == "name" and _text(tokens, index + 1) == ":":
            yield tokens[index]
        while index < literal.closes and _text(tokens, index) != ",":
            is_bracket = _text(tokens, index) in {"(", "[", "{"}
            close = find_close(tokens, index) if is_bracket else index
            index = max(close, index) + 1
        index += 1


def _check_type(
    text: str, tokens: list[CelToken], literal: _Literal, literals: list[_Literal]
) -> None:
    around = [each for each in literals if each.holds(literal.first) and each.name != "JSONPatch"]
    if not around or literal.name == "JSONPatch":
        return
    outer = around[-1]
    before = [
        field for field in _find_fields(tokens, outer) if field.start < _start(tokens, literal)
    ]
    expected = f"{outer.name}.{before[-1].text}" if before else outer.name
    if literal.name != expected:
        raise SyntaxFaultError(
            f'type mismatch: unexpected type name "{literal.name}", expected "{expected}", '
            "which matches field name path from root Object type",
            text=text,
            position=_start(tokens, literal),
        )


def _check_fields(text: str, literal: _Literal, fields: list[CelToken]) -> None:
    if literal.name != "JSONPatch":
        return
    for field in fields:
        if field.text not in PATCH_FIELDS:
            raise _undefined_field(text, field)


def _brackets(tokens: list[CelToken], literal: _Literal) -> tuple[str, str]:
    if literal.name in {"Object", "JSONPatch"}:
        return f"{OBJECT_MARK if literal.name == 'Object' else PATCH_MARK}({{", "})"
    # Of the inner types nothing is known but that they are objects: they fit anywhere. As the whole
    # value of a field they do so anyway, and the engine reads only some thirty levels.
    before, after = _text(tokens, literal.first - 1), _text(tokens, literal.closes + 1)
    return ("{", "}") if before == ":" and after in {",", "}"} else ("dyn({", "})")


def _start(tokens: list[CelToken], literal: _Literal) -> int:
    return tokens[literal.first].start


def _text(tokens: list[CelToken], index: int) -> str:
    return tokens[index].text if index < len(tokens) else ""


def _undefined_field(text: str, name: CelToken) -> SyntaxFaultError:
    return SyntaxFaultError(
        f"undefined field '{name.text}'",
        text=text,
        position=name.start,
        code="undefined-field",
        arguments=(name.text,),
    )
