"""HTML made by calls: whatever is not markup yet is escaped, so that no text can become a tag."""

import re
from collections.abc import Iterable
from typing import TypeAlias


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
# None and False leave an attribute out; True writes its name alone.
Attribute: TypeAlias = "str | int | bool | None"

# Beside what has a meaning in HTML: control characters, halves of characters, and marks that turn
# the direction of text, with which a name or a policy could show something else than it says.
_SPECIAL = re.compile(
    "[&<>\"'\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\r": " "}
_VOID = frozenset(("br", "col", "hr", "img", "input", "link", "meta"))
_ADDRESSES = frozenset(("action", "formaction", "href", "src"))
# A path of ours, or a page of the web; never a script, nor another host without saying so.
_SAFE_ADDRESS = re.compile(r"(?:https?://[^\s\\]*|[/?#](?![/\\])[^\s\\]*)")
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")


def escape(text: str) -> Html:
    """Text as it can stand between tags and in attributes."""
    if isinstance(text, Html):
        return text
    return Html(_SPECIAL.sub(_replace, text))


def _replace(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0], "\N{REPLACEMENT CHARACTER}")


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element. `class_` and `for_` lose their last `_`; `aria_label` becomes `aria-label`."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        parts.append(_write_attribute(key.rstrip("_").replace("_", "-"), value))
    parts.append(">")
    if name in _VOID:
        return Html("".join(parts))
    for child in children:
        _add(parts, child)
    parts.append(f"</{name}>")
    return Html("".join(parts))


def join(*children: Child) -> Html:
    """Elements and texts beside each other."""
    parts: list[str] = []
    for child in children:
        _add(parts, child)
    return Html("".join(parts))


def _add(parts: list[str], child: Child) -> None:
    if isinstance(child, str):
        parts.append(escape(child))
    elif isinstance(child, int):
        parts.append(str(child))
    elif child is not None:
        for each in child:
            _add(parts, each)


def _write_attribute(name: str, value: str | int) -> str:
    # Scripts and styles in attributes are refused by the page's own Content-Security-Policy.
    if name.startswith("on") or name == "style" or not _NAME.fullmatch(name):
        raise ValueError(f"{name} is not an attribute for a page")
    if value is True:
        return f" {name}"
    text = str(value)
    if name in _ADDRESSES and not is_safe_address(text):
        return ""
    return f' {name}="{escape(text)}"'


def is_safe_address(text: str) -> bool:
    """May a link lead there? To a page of ours or of the web, not to a script."""
    return _SAFE_ADDRESS.fullmatch(text) is not None
