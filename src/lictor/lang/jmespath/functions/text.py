"""Functions that take text apart, put it together or change its letters."""

import posixpath

from lictor.lang.jmespath.functions.spec import FunctionSpec, check_size, define

_MAX_COUNT = 1 << 62
_INT64 = 1 << 63


def _equal_fold(left: str, right: str) -> bool:
    if left == right:
        return True
    return len(left) == len(right) and all(
        a == b or a.casefold() == b.casefold() for a, b in zip(left, right, strict=True)
    )


def _replace_all(text: str, old: str, new: str) -> str:
    check_size(len(text) + (text.count(old) * len(new)))
    return text.replace(old, new)


def _replace(text: str, old: str, new: str, count: float) -> str:
    if count < 0 or count > _MAX_COUNT:
        return _replace_all(text, old, new)
    times = int(count)
    check_size(len(text) + min(text.count(old), times) * len(new))
    return text.replace(old, new, times)


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _to_lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    # One letter stays one letter: longer forms are not what Go's mapping knows.
    return "".join(letter.lower()[0] for letter in text)


def _to_upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(map(_raise_letter, text))


def _raise_letter(letter: str) -> str:
    return next((form for form in (letter.upper(), letter.title()) if len(form) == 1), letter)


def _truncate(text: str, length: float) -> str:
    # What does not fit 64 bits turns negative in Go, and nothing is left.
    return text[: int(length)] if 1 <= length < _INT64 else ""


def _canonicalize(path: str) -> str:
    if not path:
        return ""
    clean = posixpath.normpath(path)
    return "/" + clean.lstrip("/") if clean.startswith("//") else clean


TEXT: tuple[FunctionSpec, ...] = (
    define(
        "equal_fold(string, string) bool",
        _equal_fold,
        "says whether two texts differ in nothing but upper and lower case",
    ),
    define(
        "path_canonicalize(string) string",
        _canonicalize,
        "cleans a path of double slashes, `.` and `..`",
    ),
    define(
        "replace(string, string, string, number) string",
        _replace,
        "replaces so many occurrences of the second text by the third; all, if negative",
    ),
    define(
        "replace_all(string, string, string) string",
        _replace_all,
        "replaces every occurrence of the second text by the third",
    ),
    define("split(string, string) array[string]", _split, "cuts a text at a separator"),
    define("to_lower(string) string", _to_lower, "makes all letters small"),
    define("to_upper(string) string", _to_upper, "makes all letters capital"),
    define(
        "trim(string, string) string",
        str.strip,
        "takes the characters of the second text from both ends of the first",
    ),
    define(
        "trim_prefix(string, string) string",
        str.removeprefix,
        "takes the second text from the start of the first",
    ),
    define("truncate(string, number) string", _truncate, "keeps the first so many characters"),
)
