"""Keys of a pattern that are more than keys: `(name)`, `=(name)`, `X(name)` and their like."""

import re
from enum import StrEnum
from functools import lru_cache

import msgspec

from lictor.raw import Json

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
