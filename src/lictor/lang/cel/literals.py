"""`Object.spec{replicas: 3}` and `JSONPatch{op: "add"}`: rewritten to maps, which the engine knows.

The checker still tells an `Object` and a `JSONPatch` from other maps: the map is handed to a
function that only the checker knows, and in its place `wire` then puts the engine's own `dyn`.
"""

from collections.abc import Iterator

import msgspec

from lictor.errors import SyntaxFaultError
from lictor.lang.cel.rewriting import Edit
from lictor.lang.cel.selections import PATCH_FIELDS
from lictor.lang.cel.tokens import Token, find_close
from lictor.lang.cel.wire import OBJECT_MARK, PATCH_MARK


class _Literal(msgspec.Struct, frozen=True):
    """One literal: the indices of its first token, its brackets, and the name of its type."""

    first: int
    opens: int
    closes: int
    name: str

    def holds(self, index: int) -> bool:
        return self.opens < index < self.closes


def replace_literals(text: str, tokens: list[Token]) -> list[Edit]:
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


def _find_literals(tokens: list[Token]) -> Iterator[_Literal]:
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


def _find_fields(tokens: list[Token], literal: _Literal) -> Iterator[Token]:
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
    text: str, tokens: list[Token], literal: _Literal, literals: list[_Literal]
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


def _check_fields(text: str, literal: _Literal, fields: list[Token]) -> None:
    if literal.name != "JSONPatch":
        return
    for field in fields:
        if field.text not in PATCH_FIELDS:
            raise SyntaxFaultError(
                f"undefined field '{field.text}'", text=text, position=field.start
            )


def _brackets(tokens: list[Token], literal: _Literal) -> tuple[str, str]:
    if literal.name in {"Object", "JSONPatch"}:
        return f"{OBJECT_MARK if literal.name == 'Object' else PATCH_MARK}({{", "})"
    # Of the inner types nothing is known but that they are objects: they fit anywhere. As the whole
    # value of a field they do so anyway, and the engine reads only some thirty levels.
    before, after = _text(tokens, literal.first - 1), _text(tokens, literal.closes + 1)
    return ("{", "}") if before == ":" and after in {",", "}"} else ("dyn({", "})")


def _start(tokens: list[Token], literal: _Literal) -> int:
    return tokens[literal.first].start


def _text(tokens: list[Token], index: int) -> str:
    return tokens[index].text if index < len(tokens) else ""
