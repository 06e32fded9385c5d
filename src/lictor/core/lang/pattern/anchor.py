"""The syntax of patterns: shape, anchors of keys, and references to other leaves."""

import posixpath
import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

import msgspec

from lictor.core.errors import CompileError
from lictor.core.lang.pattern.scalar import split_operator
from lictor.core.lang.regex import compile_regex, replace_matches
from lictor.core.raw import Json

_REFERENCE = r"(^|[^\\])(\$\(.[^ ]*\))"
_ESCAPED = r"\\(\$\(.[^ )]*\))"

Path = tuple[str, ...]


def resolve_references(document: Json) -> Json:
    """The document with all references resolved, or the document itself if it has none.

    Runs before variables are resolved: text from a request is never treated as a reference.
    """
    check_shape(document)
    _check_anchors(document)
    if not _holds_references(document):
        return document
    leaves: dict[str, Json] = {}
    _collect(document, (), leaves)
    return _resolve(document, (), leaves)


def _check_anchors(node: Json) -> None:
    """Raise CompileError for an invalid anchor, such as `=(hostPID`."""
    if isinstance(node, dict):
        for key, value in node.items():
            if ("(" in key or ")" in key) and is_broken_anchor(key):
                raise CompileError(f'"{key}" is not an anchor; known are {ANCHOR_FORMS}')
            _check_anchors(value)
    elif isinstance(node, list):
        for item in node:
            _check_anchors(item)


def _holds_references(node: Json) -> bool:
    if isinstance(node, dict):
        return any(_holds_references(key) or _holds_references(node[key]) for key in node)
    if isinstance(node, list):
        return any(_holds_references(item) for item in node)
    return isinstance(node, str) and "$(" in node


def _collect(node: Json, path: Path, leaves: dict[str, Json]) -> None:
    """List leaves by path; a path to a map returns one of its keys, as in Kyverno."""
    if isinstance(node, dict):
        for key, value in node.items():
            leaves["/" + "/".join(path)] = key
            _collect(value, (*path, strip_anchor(key)), leaves)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _collect(value, (*path, str(index)), leaves)
    else:
        leaves["/" + "/".join(path)] = node


def _resolve(node: Json, path: Path, leaves: dict[str, Json]) -> Json:
    if isinstance(node, dict):
        return {
            _resolve(key, path, leaves): _resolve(value, (*path, strip_anchor(key)), leaves)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_resolve(value, (*path, str(i)), leaves) for i, value in enumerate(node)]
    return _resolve_text(node, path, leaves) if isinstance(node, str) else node


def _resolve_text(text: str, path: Path, leaves: dict[str, Json]) -> str:
    if "$(" not in text:
        return text
    made = replace_references(text, lambda found: _look_up(found, path, leaves))
    return replace_matches(_ESCAPED, made, ((1,),))


def replace_references(text: str, replace: Callable[[str], str]) -> str:
    """Replace each `$(...)` that has no backslash before it."""
    pieces: list[str] = []
    end = 0
    for found in compile_regex(_REFERENCE).finditer(text):
        pieces += text[end : found.start(2)], replace(text[found.start(2) : found.end()])
        end = found.end()
    return "".join([*pieces, text[end:]])


def _look_up(reference: str, path: Path, leaves: dict[str, Json]) -> str:
    sign, target = split_operator(reference.strip("$()"))
    place = "/" + "/".join(path)
    if not target:
        raise CompileError(f"{reference} at {place} refers to nothing")
    value = leaves.get(posixpath.normpath(posixpath.join(place, target)))
    if isinstance(value, str):
        return sign + value
    if sign and isinstance(value, (int, float)) and not isinstance(value, bool):
        return sign + (str(value) if isinstance(value, int) else f"{value:f}")
    if value is None:
        raise CompileError(
            f"{reference} at {place} refers to a path that does not exist in the pattern"
        )
    raise CompileError(f"{reference} at {place} refers to a value that is not a text")


MAX_DEPTH = 100
_LEAVES = (str, int, float, type(None))


def check_shape(document: Json) -> None:
    """Raise CompileError for keys that are no texts, values that are no JSON, and deep nesting.

    Later code may then recurse safely.
    """
    level, depth = [document], 0
    while level:
        if depth > MAX_DEPTH:
            raise CompileError(f"the pattern is nested more than {MAX_DEPTH} levels deep")
        level = [child for node in level for child in _list_children(node)]
        depth += 1


def _list_children(node: Json) -> list[Json]:
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str):
                raise CompileError(f"the key {key!r} of a pattern is not a text")
        return list(node.values())
    if isinstance(node, list):
        return node
    if not isinstance(node, _LEAVES):
        raise CompileError(f"a pattern cannot hold a value of type {type(node).__name__}")
    return []


_FORM = re.compile(r"([+<=X^])?\((.+)\)")


class Modifier(StrEnum):
    """The prefix of an anchor."""

    CONDITION = ""
    GLOBAL = "<"
    NEGATION = "X"
    ADDITION = "+"
    EQUALITY = "="
    EXISTENCE = "^"


# An addition matters to mutations only; a check treats it as a plain key.
CHECKED = frozenset(Modifier) - {Modifier.ADDITION}


class Anchor(msgspec.Struct, frozen=True):
    """A modifier and its key."""

    modifier: Modifier
    key: str

    def __str__(self) -> str:
        return f"{self.modifier}({self.key})"


def parse_anchor(text: str) -> Anchor | None:
    """Parse an anchor; None for a plain key."""
    if ")" not in text:
        return None
    return _remember_anchor(text) if len(text) <= _LONGEST_KNOWN else _parse_anchor(text)


def _parse_anchor(text: str) -> Anchor | None:
    form = _FORM.fullmatch(text.strip())
    if form is None:
        return None
    return Anchor(Modifier(form.group(1) or ""), form.group(2))


# Long keys would only fill the memory.
_LONGEST_KNOWN = 256
_remember_anchor = lru_cache(maxsize=4096)(_parse_anchor)


ANCHOR_FORMS = "(key), =(key), X(key), ^(key), <(key) and, in patches, +(key)"


def is_broken_anchor(text: str) -> bool:
    """Whether a key of a pattern has brackets that belong to no anchor."""
    plain = strip_anchor(text)
    # Expressions and references also have brackets.
    return ("(" in plain or ")" in plain) and "{{" not in plain and "$(" not in plain


def strip_anchor(text: str) -> str:
    """Give the key without its anchor."""
    anchor = parse_anchor(text)
    return text if anchor is None else anchor.key


def holds_anchors(pattern: Json) -> bool:
    """Whether any map in the pattern has a key with an anchor that is checked."""
    if isinstance(pattern, dict):
        for key in pattern:
            anchor = parse_anchor(key)
            if anchor is not None and anchor.modifier in CHECKED:
                return True
        return any(holds_anchors(value) for value in pattern.values())
    return isinstance(pattern, list) and any(holds_anchors(value) for value in pattern)


# The only maps with wildcards in keys, and only below `metadata`.
_TAGS = frozenset(("labels", "annotations"))


class MismatchPath(msgspec.Struct, frozen=True):
    """The path of a map in the pattern, which decides whether its keys are special."""

    is_metadata: bool = False
    is_tags: bool = False

    def enter(self, key: str) -> "MismatchPath":
        is_tags = self.is_metadata and key in _TAGS
        return MismatchPath(is_metadata=key == "metadata", is_tags=is_tags)


ANYWHERE = MismatchPath()
