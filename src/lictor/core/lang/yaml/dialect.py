"""Where Kubernetes' YAML reader and libyaml differ: its texts so that libyaml takes them too.

A text is changed character by character, so that every line and column stays what it is.
"""

import re
from typing import Any, Final, TypeAlias

from yaml.error import MarkedYAMLError, YAMLError

from lictor.core.lang.yaml.plain_json import YamlFault

# One of libyaml's events, told apart by its class: they have no common fields.
YamlEvent: TypeAlias = Any
# The tag `!` of a scalar, which libyaml does not report, behind its anchor.
# re: linear - tried once at each scalar, before its value
_BARE_TAG = re.compile(r"(?:&[A-Za-z0-9_-]+\s+(?:#.*\n\s*)*)?!")

_LONE_EXCLAMATION = re.compile(r"!(?!\S)")
# What libyaml reads otherwise than Kubernetes is replaced by a character of private use, and put
# back afterwards. A byte order mark is a character of the text there, but for the first; behind its
# first buffer of 512 bytes that reader may skip other characters because of one.
_BYTE_ORDER_MARK: Final = "\ufeff"
_LAST_MARK: Final = 160
_PRIVATE_USE: Final = range(0xE000, 0xE100)
# Problems of libyaml alone: the character that it stumbles over, and what the text holds for it.
_REPAIRS: Final = {
    "found unexpected ':'": (":", ":"),
    "found unknown escape character": ("\\'", ""),
}


def replace_marks(text: str) -> tuple[str, dict[int, str]]:
    """A text without its first byte order mark and with replaced others; and what for what."""
    replaced: dict[int, str] = {}
    text = text.removeprefix(_BYTE_ORDER_MARK)
    last = text.rfind(_BYTE_ORDER_MARK)
    if last < 0:
        return text, replaced
    if last > _LAST_MARK or text.startswith(_BYTE_ORDER_MARK):
        begin = text.rfind("\n", 0, last) + 1
        raise YamlFault("unexpected byte order mark", text.count("\n", 0, last), last - begin)
    return text.replace(_BYTE_ORDER_MARK, _choose(text, _BYTE_ORDER_MARK, replaced)), replaced


def _choose(text: str, meant: str, replaced: dict[int, str]) -> str:
    """A character that the text does not hold; what it stands for is noted."""
    free = next((code for code in _PRIVATE_USE if chr(code) not in text), None)
    if free is None:
        raise YamlFault("too many characters of private use")
    replaced[free] = meant
    return chr(free)


def repair_text(text: str, error: YAMLError, replaced: dict[int, str]) -> str:
    """The text without what only libyaml refuses; nothing where Kubernetes refuses it too."""
    if not isinstance(error, MarkedYAMLError) or error.problem not in _REPAIRS:
        return ""
    written, meant = _REPAIRS[error.problem]
    index = error.problem_mark.index if error.problem_mark else -1
    if index < 0 or not text.startswith(written, index):
        return ""
    return f"{text[:index]}{_choose(text, meant, replaced)}{text[index + 1 :]}"


def may_hold_bare_tags(text: str) -> bool:
    """Whether the tag `!` may stand in a text."""
    return "!" in text and _LONE_EXCLAMATION.search(text) is not None


def has_bare_tag(text: str, event: YamlEvent) -> bool:
    """Whether a scalar without a tag has the tag `!`: then it is text."""
    return _BARE_TAG.match(text, event.start_mark.index, event.end_mark.index) is not None
