"""Functions of texts: cel-go's strings, and its regular expressions."""

from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.functions import Library
from lictor.core.lang.cel.library.formatting import format_text
from lictor.core.lang.cel.library.kubernetes import list_matches
from lictor.core.lang.cel.library.standard import read_regex
from lictor.core.lang.cel.operators import MAX_TEXT
from lictor.core.lang.cel.values import NONE, Optional, Value
from lictor.core.lang.go_number import GO_ESCAPES
from lictor.core.lang.regex import RegexMatch

# What Go takes for a space; Python's strip() knows more of them.
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: upper for upper, lower in _LOWER.items()}
_QUOTED = str.maketrans(GO_ESCAPES)


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


def _replace_pattern(text: str, pattern: str, replacement: str, count: int = -1) -> str:
    if count == 0:
        return text
    regex = read_regex(pattern)
    parts, end = [], 0
    for number, found in enumerate(list_matches(regex, text)):
        if 0 <= count <= number:
            break
        parts.append(text[end : found.start()])
        parts.append(_fill(replacement, found, regex.groups))
        end = found.end()
    parts.append(text[end:])
    return "".join(parts)


def _fill(replacement: str, found: RegexMatch, groups: int) -> str:
    made: list[str] = []
    letters = iter(replacement)
    for letter in letters:
        if letter != "\\":
            made.append(letter)
            continue
        after = next(letters, "")
        if after == "\\":
            made.append("\\")
        elif not (after.isascii() and after.isdecimal()):
            raise CelError(
                f"invalid replacement string: '{replacement}' \\ must be followed by a digit or \\"
            )
        elif int(after) > groups:
            raise CelError(
                f"replacement string references group {after} but regex has only {groups} group(s)"
            )
        else:
            made.append(found.group(int(after)) or "")
    return "".join(made)


def _check_groups(pattern: str) -> int:
    groups = read_regex(pattern).groups
    if groups > 1:
        raise CelError(f'regular expression has more than one capturing group: "{pattern}"')
    return groups


def _extract(text: str, pattern: str) -> Optional:
    groups = _check_groups(pattern)
    found = read_regex(pattern).search(text)
    if found is None:
        return NONE
    value = found.group(groups) or ""
    return Optional((value,)) if value or not groups else NONE


def _extract_all(text: str, pattern: str) -> list[Value]:
    groups = _check_groups(pattern)
    found = list_matches(read_regex(pattern), text)
    values = [match.group(groups) or "" for match in found]
    return [value for value in values if value or not groups]


REGEX_FUNCTIONS = Library(
    ("regex.extract(string, string) -> optional(string)", _extract),
    ("regex.extractAll(string, string) -> list(string)", _extract_all),
    ("regex.replace(string, string, string) -> string", _replace_pattern),
    ("regex.replace(string, string, string, int) -> string", _replace_pattern),
)
