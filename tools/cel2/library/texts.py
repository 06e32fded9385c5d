"""The extended string functions, version 2."""

from cel2.faults import CelError, no_overload
from cel2.functions import Library
from cel2.library.formatting import format_text
from cel2.operators import MAX_TEXT

# What Go takes for a space; Python's strip() knows more of them.
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: upper for upper, lower in _LOWER.items()}
_QUOTED = str.maketrans({
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
})  # fmt: skip


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part)
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _old_index_of(text: str, part: str, offset: int = 0) -> int:
    return offset if not part else _index_of(text, part, offset)


def _old_last_index_of(text: str, part: str, offset: int | None = None) -> int:
    return offset if not part and offset is not None else _last_index_of(text, part, offset)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    if len(new) > 1:
        places = text.count(old) if old else len(text) + 1
        if (places if count < 0 else min(places, count)) * len(new) > MAX_TEXT:
            raise CelError("the text is too long")
    return text.replace(old, new, max(count, -1))


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if 0 < count < len(text):
        return [*text[: count - 1], text[count - 1 :]]
    return list(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, len(text) if end is None else end):
        if not 0 <= index <= len(text):
            raise CelError(f"index out of range: {index}")
    return text[start:end]


def _join(texts: list[str], separator: str = "") -> str:
    size = len(separator) * len(texts)
    for text in texts:
        if type(text) is not str:
            raise no_overload("join")
        size += len(text)
    if size > MAX_TEXT:
        raise CelError("the text is too long")
    return separator.join(texts)


STRINGS = Library(
    ("string::charAt(int) -> string", _char_at),
    ("string::indexOf(string) -> int", _index_of),
    ("string::indexOf(string, int) -> int", _index_of),
    ("string::lastIndexOf(string) -> int", _last_index_of),
    ("string::lastIndexOf(string, int) -> int", _last_index_of),
    ("string::lowerAscii() -> string", lambda text: text.translate(_LOWER)),
    ("string::replace(string, string) -> string", _replace),
    ("string::replace(string, string, int) -> string", _replace),
    ("string::split(string) -> list(string)", _split),
    ("string::split(string, int) -> list(string)", _split),
    ("string::substring(int) -> string", _substring),
    ("string::substring(int, int) -> string", _substring),
    ("string::trim() -> string", lambda text: text.strip(_SPACES)),
    ("string::upperAscii() -> string", lambda text: text.translate(_UPPER)),
    ("string::format(list(dyn)) -> string", format_text),
    ("strings.quote(string) -> string", lambda text: f'"{text.translate(_QUOTED)}"'),
    ("list(string)::join() -> string", _join),
    ("list(string)::join(string) -> string", _join),
)
# Before Kubernetes 1.36 an empty text was found at any offset.
OLD_INDEXES = Library(
    ("string::indexOf(string) -> int", _old_index_of),
    ("string::indexOf(string, int) -> int", _old_index_of),
    ("string::lastIndexOf(string) -> int", _old_last_index_of),
    ("string::lastIndexOf(string, int) -> int", _old_last_index_of),
)
