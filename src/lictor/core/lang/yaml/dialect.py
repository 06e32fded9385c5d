"""Adapts text to the differences between Kubernetes' YAML parser and libyaml.

Characters are replaced one by one, so that all lines and columns stay the same.
"""

import re
from typing import Any, Final, TypeAlias

from yaml.error import MarkedYAMLError, YAMLError

from lictor.core.lang.yaml.plain_json import YamlFault

# One of libyaml's events, distinguished by class: they have no common fields.
YamlEvent: TypeAlias = Any
# The tag `!` of a scalar, which libyaml does not report, after its anchor.
# re: linear - tried once at each scalar, before its value
_BARE_TAG = re.compile(r"(?:&[A-Za-z0-9_-]+\s+(?:#.*\n\s*)*)?!")

_LONE_EXCLAMATION = re.compile(r"!(?!\S)")
# What libyaml reads differently is replaced by a private-use character, and restored afterwards. In
# Kubernetes a byte order mark is part of the text, except for the first; after its first buffer of
# 512 bytes, that parser may skip other characters because of one.
BYTE_ORDER_MARK: Final = "\ufeff"
_LAST_MARK: Final = 160
_PRIVATE_USE: Final = range(0xE000, 0xE100)
# Errors of libyaml only: the character that causes them, and the text to replace.
_REPAIRS: Final = {
    "found unexpected ':'": (":", ":"),
    "found unknown escape character": ("\\'", ""),
}


def replace_marks(text: str) -> tuple[str, dict[int, str]]:
    """A text without its first byte order mark, with the others replaced; and the replacements."""
    replaced: dict[int, str] = {}
    text = text.removeprefix(BYTE_ORDER_MARK)
    last = text.rfind(BYTE_ORDER_MARK)
    if last < 0:
        return text, replaced
    if last > _LAST_MARK or text.startswith(BYTE_ORDER_MARK):
        begin = text.rfind("\n", 0, last) + 1
        raise YamlFault("unexpected byte order mark", text.count("\n", 0, last), last - begin)
    return text.replace(BYTE_ORDER_MARK, _choose(text, BYTE_ORDER_MARK, replaced)), replaced


def _choose(text: str, meant: str, replaced: dict[int, str]) -> str:
    """A character that the text does not contain; records its meaning."""
    free = next((code for code in _PRIVATE_USE if chr(code) not in text), None)
    if free is None:
        raise YamlFault("too many characters of private use")
    replaced[free] = meant
    return chr(free)


def repair_text(text: str, error: YAMLError, replaced: dict[int, str]) -> str:
    """The text without what only libyaml rejects; nothing if Kubernetes rejects it too."""
    if not isinstance(error, MarkedYAMLError) or error.problem not in _REPAIRS:
        return ""
    written, meant = _REPAIRS[error.problem]
    index = error.problem_mark.index if error.problem_mark else -1
    if index < 0 or not text.startswith(written, index):
        return ""
    return f"{text[:index]}{_choose(text, meant, replaced)}{text[index + 1 :]}"


def may_hold_bare_tags(text: str) -> bool:
    """Whether a text may contain the tag `!`."""
    return "!" in text and _LONE_EXCLAMATION.search(text) is not None


def has_bare_tag(text: str, event: YamlEvent) -> bool:
    """Whether a scalar without a reported tag has the tag `!`: then it is text."""
    return _BARE_TAG.match(text, event.start_mark.index, event.end_mark.index) is not None
