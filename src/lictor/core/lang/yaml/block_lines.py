"""Block YAML as programs and people write it, into plain JSON line by line: no node is made.

Taken are lines that can mean one thing only: `key: value`, `key:`, `- key: value`, `- value`,
comments and blank lines, in ASCII, with values that begin and end on their line; and the lines of
block scalars (`|`, `>-`). Whatever else a document holds (flow collections, anchors, tags, keys
that stand twice, lines whose indentation is not that of an open collection), the answer is None,
and the reader that knows all of YAML is asked.
"""

import re
from functools import lru_cache
from typing import Final, TypeAlias

from lictor.core.lang.yaml.scalars import CAREFUL, MEANINGFUL, read_plain, resolve_plain
from lictor.core.raw import Json, JsonObject

# The level of what stands in a line; that of the mapping which begins behind its dash, zero where
# there is none; the key, empty where there is none; the value, or a type that makes it. A mapping
# whose keys stand in column n has the level 2n. A sequence whose dashes stand there has 2n + 1: it
# lies inside that mapping, as it may under a key of the same column.
_Line: TypeAlias = tuple[int, int, str, Json]

# Deeper than any indentation that is taken could nest, nothing is: `MAX_DEPTH` need not be checked.
_MOST_COLUMNS: Final = 150
# No more than libyaml looks for the colon behind a key.
_LONGEST_KEY: Final = 250
_KEY: Final = rf"(?:[A-Za-z_(]|[=^<+](?=\())[A-Za-z0-9_./:()*$-]{{0,{_LONGEST_KEY}}}"
# What stands before a block scalar in its line.
# re: linear - tried at one place of a line
_HEAD = re.compile(rf"( *)(- +)?(?:({_KEY}): +)?")
# The rest of that line, and the indentation of the first line that is not empty.
_BLOCK = re.compile(r"(?<= )([|>])([-+]?) *\n(?=\n*( +)[!-~])")
# re: linear - tried at one place behind each block
_BLANKS = re.compile(r" +\n")
# Before a block scalar that was put into one line, and in the place of its line feeds: nothing that
# YAML may hold.
_BLOCK_MARK: Final = "\x02"
_LINE_FEED_MARK: Final = "\x03"
_LINE_FEED: Final = "\n"
# The end of a line that is folded, and the empty lines behind it.
_FOLD = re.compile(r"(?<=[^\n])\n(\n*)")
# re: linear - no part of it can match in two ways, so that failing costs no more
_LINE = re.compile(
    rf"""
    (?P<indent>[ ]{{0,{_MOST_COLUMNS}}})(?![ ])
    (?P<dash>-[ ]{{1,9}}(?![ ]))?
    (?:(?P<key>{_KEY}):(?:[ ]+(?![ ])|$))?
    (?:
        "(?P<double>[ !#-\[\]-~]*)"
        | '(?P<single>[ -&(-~]*(?:''[ -&(-~]*)*)'
        | (?P<empty>\{{\}}|\[\])
        | {_BLOCK_MARK}(?P<block>[ -~{_LINE_FEED_MARK}]*)
        | (?P<plain>
            (?:[A-Za-z0-9_/.+~$(]|-(?=[!-~]))
            # A colon before a blank ends a key, and a number sign behind one begins a comment.
            [!-9;-~]*(?::(?=[!-~])[!-9;-~]*)*
            (?:[ ]+(?=[!-"$-~])[!-9;-~]*(?::(?=[!-~])[!-9;-~]*)*)*
        )
    )?
    [ ]*(?:(?<![^ ])\#[ -~]*)?
    """,
    re.VERBOSE,
)
# A way back for each word of a line costs 200 bytes.
_LONGEST_LINE: Final = 1 << 20
# Below every level but that of the end of the stack: no collection is open there.
_UNUSUAL: Final[_Line] = (-1, 0, "", None)
_BOTTOM: Final = -2
# The value of a key that has none, or has it on the lines that follow.
_OPEN: Final = type(None)
_EMPTY: Final = {"{}": dict, "[]": list}
# Of a value that JSON cannot hold.
_FAULTY: Final = object()


def read_block_lines(text: str) -> tuple[JsonObject, int] | None:
    """The only document of a text, and its first line, counted from zero."""
    if _BLOCK_MARK in text or not text.endswith("\n"):
        return None
    if "|" in text or ">" in text:
        text = _shorten_blocks(text)
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


def _shorten_blocks(text: str) -> str:
    """Block scalars as one line each; left as they are where they are unusual."""
    parts: list[str] = []
    written = position = 0
    while (found := _BLOCK.search(text, position)) is not None:
        after = _compile_after(len(found[3])).search(text, found.end())
        position = after.start() if after else len(text)
        body = _shorten_block(found, text[found.end() : position])
        # A line of blanks may belong to it.
        if body is not None and not _BLANKS.match(text, position):
            parts += text[written : found.start()], body
            written = position
    return "".join((*parts, text[written:])) if parts else text


@lru_cache(maxsize=_MOST_COLUMNS)
def _compile_after(indent: int) -> re.Pattern[str]:
    """The beginning of a line that is none of a block scalar."""
    # re: linear - looks at one line from its beginning
    return re.compile(rf"^(?!\n| {{{indent}}} *[!-~][ -~]*\n)", re.MULTILINE)


def _shorten_block(found: re.Match[str], content: str) -> str | None:
    style, chomping, indent = found.groups()
    text, begin = found.string, found.start()
    head = _HEAD.fullmatch(text, text.rfind("\n", 0, begin) + 1, begin)
    # It has to stand deeper than the mapping or sequence that it belongs to.
    if head is None or len(indent) <= len(head[1]) + (len(head[2] or "") if head[3] else 0):
        return None
    lines = [line[len(indent) :] for line in content.split("\n")]
    body = "\n".join(lines).rstrip("\n")
    if style == ">":
        # Lines that are indented further are not folded.
        if any(line.startswith(" ") for line in lines):
            return None
        body = _FOLD.sub(lambda breaks: breaks[1] or " ", body)
    if chomping != "-":
        ends = len(content) - len(content.rstrip("\n"))
        body += "\n" * (ends if chomping == "+" else 1)
    return f"{_BLOCK_MARK}{body.replace(_LINE_FEED, _LINE_FEED_MARK)}\n"


def _take_apart(line: str) -> _Line | None:
    """None for blank lines and comments."""
    found = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
    if found is None:
        return _UNUSUAL
    indent, dash, key = found.group("indent", "dash", "key")
    if key is None and dash is None:
        return None if found.lastgroup == "indent" else _UNUSUAL
    if key is not None and key[0] in CAREFUL and resolve_plain(key) != key:
        return _UNUSUAL
    value = _take_value(found)
    # A dash with nothing behind it may hold anything.
    if value is _FAULTY or (value is _OPEN and key is None):
        return _UNUSUAL
    column = len(indent)
    inner = 2 * (column + len(dash)) if dash else 0
    return 2 * column + (1 if dash else 0), inner, key or "", value


def _take_value(found: re.Match[str]) -> Json:
    plain, double, single, empty, block = found.group("plain", "double", "single", "empty", "block")
    if plain is not None:
        try:
            return read_plain(plain) if plain[0] in MEANINGFUL else plain
        except ValueError:
            return _FAULTY
    if block is not None:
        return block.replace(_LINE_FEED_MARK, _LINE_FEED)
    if empty is not None:
        return _EMPTY[empty]
    if single is not None:
        return single.replace("''", "'")
    return _OPEN if double is None else double
