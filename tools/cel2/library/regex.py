"""cel-go's functions of regular expressions: regex.replace() and regex.extract()."""

from cel2.faults import CelError
from cel2.functions import Library
from cel2.library.kubernetes import list_matches
from cel2.library.standard import read_regex
from cel2.values import NONE, Optional, Value
from lictor.core.lang.regex import RegexMatch


def _replace(text: str, pattern: str, replacement: str, count: int = -1) -> str:
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
    ("regex.replace(string, string, string) -> string", _replace),
    ("regex.replace(string, string, string, int) -> string", _replace),
)
