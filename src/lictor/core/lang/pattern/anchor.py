"""How a pattern is written: its shape, the anchors of its keys, and references to other leaves."""

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
    """Give the document with all references resolved, or the document itself if it has none.

    This comes before variables are filled in: what a request holds is never taken for a reference.
    """
    check_shape(document)
    _check_anchors(document)
    if not _holds_references(document):
        return document
    leaves: dict[str, Json] = {}
    _collect(document, (), leaves)
    return _resolve(document, (), leaves)


def _check_anchors(node: Json) -> None:
    """Raise CompileError for a key that looks like an anchor and is none, such as `=(hostPID`."""
    if isinstance(node, dict):
        for key, value in node.items():
            if is_broken_anchor(key):
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
    """List leaves by path; a path to a map gives one of its keys, as it does in Kyverno."""
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
    """Put something else in the place of each `$(...)` that has no backslash before it."""
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
        raise CompileError(f"{reference} at {place} refers to a place that the pattern has not")
    raise CompileError(f"{reference} at {place} refers to a value that is not a text")


MAX_DEPTH = 100
_LEAVES = (str, int, float, type(None))


def check_shape(document: Json) -> None:
    """Raise CompileError for keys that are no texts, values that are no JSON, and bottomless nests.

    All that follows may then recurse without fear.
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
    """What stands before the bracket."""

    CONDITION = ""
    GLOBAL = "<"
    NEGATION = "X"
    ADDITION = "+"
    EQUALITY = "="
    EXISTENCE = "^"


# An addition says something to a mutation only; a check takes it for a plain key.
CHECKED = frozenset(Modifier) - {Modifier.ADDITION}


class Anchor(msgspec.Struct, frozen=True):
    """A modifier and the key it is about."""

    modifier: Modifier
    key: str

    def __str__(self) -> str:
        return f"{self.modifier}({self.key})"


def parse_anchor(text: str) -> Anchor | None:
    """Read an anchor, or None where the text is a plain key."""
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
    """Tell whether a key of a pattern has brackets that belong to no anchor."""
    plain = strip_anchor(text)
    # An expression may call functions, and a reference is written with brackets.
    return ("(" in plain or ")" in plain) and "{{" not in plain and "$(" not in plain


def strip_anchor(text: str) -> str:
    """Give the key without its anchor."""
    anchor = parse_anchor(text)
    return text if anchor is None else anchor.key


def holds_anchors(pattern: Json) -> bool:
    """Tell whether any map within the pattern has a key with an anchor that is checked."""
    if isinstance(pattern, dict):
        for key in pattern:
            anchor = parse_anchor(key)
            if anchor is not None and anchor.modifier in CHECKED:
                return True
        return any(holds_anchors(value) for value in pattern.values())
    return isinstance(pattern, list) and any(holds_anchors(value) for value in pattern)


# The only maps whose keys may hold wildcards, and only below `metadata`.
_TAGS = frozenset(("labels", "annotations"))


class MismatchPath(msgspec.Struct, frozen=True):
    """Where in the pattern a map stands, which decides whether its keys are special."""

    is_metadata: bool = False
    is_tags: bool = False

    def enter(self, key: str) -> "MismatchPath":
        is_tags = self.is_metadata and key in _TAGS
        return MismatchPath(is_metadata=key == "metadata", is_tags=is_tags)


ANYWHERE = MismatchPath()
