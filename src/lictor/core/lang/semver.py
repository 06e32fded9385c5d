"""Semantic versions, and ranges of them such as `>=1.2.0 <2.0.0 || 3.x`."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

# Major, minor, patch, 0 with a pre-release or 1 without, the parts of the pre-release: ordered.
SemVer: TypeAlias = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]
Range: TypeAlias = Callable[[SemVer], bool]

_NUMBER = "(0|[1-9][0-9]*)"
_WORDS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_WORDS}))?(?:\+{_WORDS})?")
_LIMIT = 1 << 64
_MAX_TEXT = 1024
_ZERO: SemVer = (0, 0, 0, 1, ())

_COMPARATORS: dict[str, Callable[[SemVer, SemVer], bool]] = {
    "": lambda left, right: left == right,
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "!": lambda left, right: left != right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}
# With a wildcard: the comparison with the lowest version, then the one with the next version.
_WITH_WILDCARD: dict[str, tuple[str | None, str | None]] = {
    ">": (None, ">="),
    ">=": (">=", None),
    "<": ("<", None),
    "<=": (None, "<"),
    "": (">=", "<"),
    "=": (">=", "<"),
    "==": (">=", "<"),
    "!": ("<", ">="),
    "!=": ("<", ">="),
}


def parse_version(text: str) -> SemVer:
    """Parse `major.minor.patch` with pre-release and build; raises ValueError otherwise."""
    found = _VERSION.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if found is None:
        raise ValueError(f"{text[:64]!r} is not a semantic version")
    major, minor, patch = (_read_number(number) for number in found.groups()[:3])
    release = found[4]
    if release is None:
        return major, minor, patch, 1, ()
    return major, minor, patch, 0, tuple(_read_word(word) for word in release.split("."))


def parse_version_or_zero(text: str) -> SemVer:
    """Parse a version; an invalid one counts as 0.0.0."""
    try:
        return parse_version(text)
    except ValueError:
        return _ZERO


@lru_cache(maxsize=1024)
def parse_range(text: str) -> Range:
    """Parse a range: a space means and, `||` means or; raises ValueError if it is invalid."""
    if len(text) > _MAX_TEXT:
        raise ValueError("the range is too long")
    alternatives: list[list[Range]] = [[]]
    for piece in _split_range(text):
        if piece == "||":
            alternatives.append([])
        else:
            alternatives[-1].extend(_read_comparison(piece))
    if not all(alternatives):
        raise ValueError(f"{text!r} has nothing on one side of '||'")
    choices = tuple(tuple(tests) for tests in alternatives)
    return lambda version: any(all(test(version) for test in tests) for tests in choices)


def _split_range(text: str) -> list[str]:
    """Split at spaces, but not after `<`, `>` or `=`; a single character is ignored."""
    joined = re.sub(r"([<>=]) +", r"\1", text)
    return [piece for piece in joined.split(" ") if len(piece) > 1]


def _read_comparison(piece: str) -> list[Range]:
    start = re.search(r"[0-9]", piece)
    if start is None:
        raise ValueError(f"{piece!r} has no version")
    operator, version = piece[: start.start()].strip(), piece[start.start() :]
    if "x" in piece:
        return _read_wildcard(operator, version)
    if operator not in _COMPARATORS:
        raise ValueError(f"{operator!r} is no comparison")
    return [_compare(operator, parse_version(version))]


def _read_wildcard(operator: str, text: str) -> list[Range]:
    parts = text.split(".")
    flat = text.replace(".x.x", ".x", 1).replace(".x", ".0", 1)
    if flat.count(".") == 1:
        flat += ".0"
    # Kyverno reads any other text before a version, as in `nginx:1.2`, as "equal to".
    at, after = _WITH_WILDCARD.get(operator, ("=", None))
    tests = []
    if at is not None:
        tests.append(_compare(at, parse_version(flat)))
    if after is not None:
        if parts[-1] != "x" or len(parts) not in (2, 3):
            raise ValueError(f"{text!r} has its wildcard in the wrong place")
        tests.append(_compare(after, parse_version(_increment(flat, len(parts) - 2))))
    return tests


def _increment(version: str, position: int) -> str:
    numbers = version.split(".")
    if not numbers[position].isdecimal():
        raise ValueError(f"{version!r} is not a semantic version")
    numbers[position] = str(int(numbers[position]) + 1)
    return ".".join(numbers)


def _compare(operator: str, bound: SemVer) -> Range:
    compare = _COMPARATORS[operator]
    return lambda version: compare(version, bound)


def _read_number(text: str) -> int:
    number = int(text)
    if number >= _LIMIT:
        raise ValueError(f"{text[:32]} is too large for a version")
    return number


def _read_word(word: str) -> tuple[int, int, str]:
    if not word.isdecimal():
        return 1, 0, word
    if len(word) > 1 and word[0] == "0":
        raise ValueError(f"the numeric pre-release {word!r} has leading zeros")
    return 0, _read_number(word), ""
