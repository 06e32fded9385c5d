"""Block YAML as programs write it, into plain JSON line by line: no node is made on the way.

Taken are lines that can mean one thing only: `key: value`, `key:`, `- key: value`, `- value`,
comments and blank lines, in ASCII, with values that begin and end on their line. Whatever else a
document holds (flow collections, block scalars, anchors, tags, keys that stand twice, lines whose
indentation is not that of an open collection), the answer is None, and the reader that knows all
of YAML is asked.
"""

import re
from typing import Final, TypeAlias

from lictor.lang.yaml.build import CAREFUL, read_plain
from lictor.lang.yaml.scalars import MEANINGFUL, resolve_plain
from lictor.raw import Json, JsonObject

# The level of what stands in a line; that of the mapping which begins behind its dash, zero where
# there is none; the key, empty where there is none; the value, or a type that makes it. A mapping
# whose keys stand in column n has the level 2n. A sequence whose dashes stand there has 2n + 1: it
# lies inside that mapping, as it may under a key of the same column.
_Line: TypeAlias = tuple[int, int, str, Json]

# Deeper than any indentation that is taken could nest, nothing is: `MAX_DEPTH` need not be checked.
_MOST_COLUMNS: Final = 150
# No more than libyaml looks for the colon behind a key.
_LONGEST_KEY: Final = 250
_LINE = re.compile(
    rf"""
    (?P<indent>[ ]{{0,{_MOST_COLUMNS}}}+)
    (?P<dash>-[ ]{{1,9}}+)?
    (?:(?P<key>[A-Za-z_][A-Za-z0-9_./:-]{{0,{_LONGEST_KEY}}}):(?:[ ]++|$))?
    (?:
        "(?P<double>[ !#-\[\]-~]*+)"
        | '(?P<single>[ -&(-~]*+)'
        | (?P<empty>\{{\}}|\[\])
        | (?P<plain>
            (?:[A-Za-z0-9_/.+~$(]|-(?=[!-~]))
            # A colon before a blank ends a key, and a number sign behind one begins a comment.
            (?:[!-9;-~]++|:(?=[!-~])|[ ]++(?=[!-"$-~]))*+
        )
    )?
    [ ]*+(?:(?<![^ ])\#[ -~]*+)?
    """,
    re.VERBOSE,
)
# Below every level but that of the end of the stack: no collection is open there.
_UNUSUAL: Final[_Line] = (-1, 0, "", None)
_BOTTOM: Final = -2
# The value of a key that has none, or has it on the lines that follow.
_OPEN: Final = type(None)
_EMPTY: Final = {"{}": dict, "[]": list}


def read_block_lines(text: str) -> tuple[JsonObject, int] | None:
    """The only document of a text, and its first line, counted from zero."""
    lines = text.split("\n")
    if lines[0] == "---":
        lines[0] = ""
    for number, line in enumerate(lines):
        first = _LINES[line]
        if first is not None:
            # Only a mapping is taken, and no sequence.
            level, inner, _, _ = first
            body = None if inner or level < 0 else _build(level, lines)
            return None if body is None else (body, number)
    return None


def _build(current: int, lines: list[str]) -> JsonObject | None:
    """What lines say, if the level of the first of them is that of the whole."""
    root: JsonObject = {}
    holder: Json = root
    stack: list[tuple[int, Json]] = [(_BOTTOM, root)]
    open_key = ""
    for level, inner, key, value in filter(None, map(_LINES.__getitem__, lines)):
        if open_key and level > current:
            stack.append((current, holder))
            child: Json = [] if inner else {}
            holder[open_key] = child
            current, holder = level, child
        else:
            while level < current:
                current, holder = stack.pop()
            if level != current:
                return None
        made = value() if value.__class__ is type else value
        if inner:
            if not key:
                holder.append(made)
                open_key = ""
                continue
            stack.append((current, holder))
            item: JsonObject = {}
            holder.append(item)
            current, holder = inner, item
        elif key in holder:
            return None
        holder[key] = made
        open_key = key if value is _OPEN else ""
    return root


class _Lines(dict[str, _Line | None]):
    """Lines taken apart, and remembered: most lines of most objects stand in others as well."""

    _MOST: Final = 4096
    _LONGEST: Final = 100

    def __missing__(self, line: str) -> _Line | None:
        found = _take_apart(line)
        if len(line) <= self._LONGEST:
            if len(self) >= self._MOST:
                self.clear()
            self[line] = found
        return found


_LINES = _Lines()


def _take_apart(line: str) -> _Line | None:
    """None for blank lines and comments."""
    found = _LINE.fullmatch(line)
    if found is None:
        return _UNUSUAL
    indent, dash, key, double, single, empty, plain = found.groups()
    if key is None and dash is None:
        return None if double is single is empty is plain is None else _UNUSUAL
    if key is not None and key[0] in CAREFUL and resolve_plain(key) != key:
        return _UNUSUAL
    column = len(indent)
    inner = 2 * (column + len(dash)) if dash else 0
    level = 2 * column + (1 if dash else 0)
    if plain is not None:
        return _take_plain(level, inner, key or "", plain)
    if empty is not None:
        return level, inner, key or "", _EMPTY[empty]
    text = double if double is not None else single
    # A dash with nothing behind it may hold anything.
    if text is None and key is None:
        return _UNUSUAL
    return level, inner, key or "", _OPEN if text is None else text


def _take_plain(level: int, inner: int, key: str, text: str) -> _Line:
    try:
        return level, inner, key, read_plain(text) if text[0] in MEANINGFUL else text
    except ValueError:
        return _UNUSUAL
