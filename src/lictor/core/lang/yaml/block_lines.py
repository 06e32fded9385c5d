"""Parses common block YAML to plain JSON line by line, without nodes.

It accepts lines with only one meaning: `key: value`, `key:`, `- key: value`, `- value`, comments
and blank lines, in ASCII, with values on one line; and block scalars (`|`, `>-`). For anything else
(flow collections, anchors, tags, duplicate keys, lines whose indentation is not that of an open
collection) the result is None, and the complete YAML parser is used.
"""

import re
from functools import lru_cache
from typing import Final, TypeAlias

from lictor.core.lang.yaml.scalars import CAREFUL, MEANINGFUL, read_plain, resolve_plain
from lictor.core.raw import Json, JsonObject

# The level of a line's content; that of the mapping that starts after its dash, or zero; the key,
# or empty; the value, or a type that creates it. A mapping with keys in column n has the level 2n,
# a sequence with dashes there 2n + 1: it is inside that mapping, as it may be under a key of the
# same column.
_Line: TypeAlias = tuple[int, int, str, Json]

# No accepted indentation can be nested deeper: `MAX_DEPTH` need not be checked.
_MOST_COLUMNS: Final = 150
# libyaml's limit for the colon after a key.
_LONGEST_KEY: Final = 250
_KEY: Final = rf"(?:[A-Za-z_(]|[=^<+](?=\())[A-Za-z0-9_./:()*$-]{{0,{_LONGEST_KEY}}}"
# What precedes a block scalar in its line.
# re: linear - tried at one position of a line
_HEAD = re.compile(rf"( *)(- +)?(?:({_KEY}): +)?")
# The rest of that line, and the indentation of the first line that is not empty.
_BLOCK = re.compile(r"(?<= )([|>])([-+]?) *\n(?=\n*( +)[!-~])")
# re: linear - tried at one position after each block
_BLANKS = re.compile(r" +\n")
# Marks a block scalar that was joined to one line, and its line feeds: characters that YAML does
# not allow.
_BLOCK_MARK: Final = "\x02"
_LINE_FEED_MARK: Final = "\x03"
_LINE_FEED: Final = "\n"
# The end of a folded line, and the empty lines after it.
_FOLD = re.compile(r"(?<=[^\n])\n(\n*)")
# re: linear - no part of it can match in two ways, so failing costs no more
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
# A backtracking entry for each word of a line takes 200 bytes.
_LONGEST_LINE: Final = 1 << 20
# Below every level except that of the stack's end: no collection is open there.
_UNUSUAL: Final[_Line] = (-1, 0, "", None)
_BOTTOM: Final = -2
# The value of a key that has none, or has it on the next lines.
_OPEN: Final = type(None)
_EMPTY: Final = {"{}": dict, "[]": list}
# Of a value that JSON cannot represent.
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
            # Only a mapping is accepted, no sequence.
            level, inner, _, _ = first
            body = None if inner or level < 0 else _build(level, lines)
            return None if body is None else (body, number)
    return None


def _build(current: int, lines: list[str]) -> JsonObject | None:
    """The value of lines, if the level of the first line is that of the whole."""
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
    """Parsed lines, cached: most lines occur in several objects."""

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
    """Join each block scalar to one line; unusual ones are left unchanged."""
    parts: list[str] = []
    written = position = 0
    while (found := _BLOCK.search(text, position)) is not None:
        after = _compile_after(len(found[3])).search(text, found.end())
        position = after.start() if after else len(text)
        body = _shorten_block(found, text[found.end() : position])
        # A blank line may belong to it.
        if body is not None and not _BLANKS.match(text, position):
            parts += text[written : found.start()], body
            written = position
    return "".join((*parts, text[written:])) if parts else text


@lru_cache(maxsize=_MOST_COLUMNS)
def _compile_after(indent: int) -> re.Pattern[str]:
    """The start of a line that is not part of a block scalar."""
    # re: linear - matches one line from its start
    return re.compile(rf"^(?!\n| {{{indent}}} *[!-~][ -~]*\n)", re.MULTILINE)


def _shorten_block(found: re.Match[str], content: str) -> str | None:
    style, chomping, indent = found.groups()
    text, begin = found.string, found.start()
    head = _HEAD.fullmatch(text, text.rfind("\n", 0, begin) + 1, begin)
    # It must be deeper than the mapping or sequence that contains it.
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
    # A dash with nothing after it may contain anything.
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
