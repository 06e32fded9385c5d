"""Wildcard patterns: `*` matches any run of characters, `?` exactly one."""

import operator
import re
from collections.abc import Callable
from functools import partial

Matcher = Callable[[str], bool]

# Longer ones would take `re` long to compile, and longer to match in the worst case.
_LONG = 256


def has_wildcard(text: str) -> bool:
    """Whether the text contains `*` or `?`, which cannot be escaped."""
    return "*" in text or "?" in text


def compile_wildcard(pattern: str) -> Matcher:
    """Compile a pattern to a predicate; common shapes are a single call of C code."""
    if not has_wildcard(pattern):
        return partial(operator.eq, pattern)
    if "?" in pattern:
        return _compile_marked(pattern)
    if not pattern.strip("*"):
        return _always
    return _compile_starred(pattern)


def match_wildcard(pattern: str, text: str) -> bool:
    """Match once, for patterns that depend on the request."""
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    return compile_wildcard(pattern)(text)


def _always(text: str) -> bool:  # noqa: ARG001
    return True


def _compile_starred(pattern: str) -> Matcher:
    """Stars only: a prefix, a suffix, and pieces in order in between."""
    prefix, *middle, suffix = pattern.split("*")
    pieces = tuple(piece for piece in middle if piece)
    if pieces:
        return _compile_pieces(prefix, pieces, suffix)
    if not suffix:
        return operator.methodcaller("startswith", prefix)
    if not prefix:
        return operator.methodcaller("endswith", suffix)
    shortest = len(prefix) + len(suffix)
    return lambda text: len(text) >= shortest and text.startswith(prefix) and text.endswith(suffix)


def _compile_pieces(prefix: str, pieces: tuple[str, ...], suffix: str) -> Matcher:
    if len(pieces) == 1 and not prefix and not suffix:
        return operator.methodcaller("__contains__", pieces[0])
    start, tail = len(prefix), len(suffix)

    def matches(text: str) -> bool:
        end = len(text) - tail
        if end < start or not (text.startswith(prefix) and text.endswith(suffix)):
            return False
        at = start
        # The leftmost match of each piece is the best one: it leaves most characters for the rest.
        for piece in pieces:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return matches


def _compile_marked(pattern: str) -> Matcher:
    """Question marks as well: `?*` and `*?` require a text that is not empty."""
    if pattern in ("?*", "*?"):
        return bool
    if len(pattern) > _LONG:
        return _compile_long(pattern)
    first, *rest = [_escape_piece(piece) for piece in pattern.split("*")]
    if not rest:
        expression = first
    else:
        *middle, last = rest
        # A lookahead is not retried: no second position is tried for a piece, so the time is
        # bounded by pattern times text.
        expression = first + "".join(
            f"(?=(?P<n{index}>.*?{piece}))(?P=n{index})"
            for index, piece in enumerate(middle)
            if piece
        )
        expression += f".*{last}"
    # re: bounded - patterns have at most 256 characters, and no second position is tried
    fullmatch = re.compile(expression, re.DOTALL).fullmatch
    return lambda text: fullmatch(text) is not None


def _escape_piece(piece: str) -> str:
    return ".".join(re.escape(part) for part in piece.split("?"))


def _compile_long(pattern: str) -> Matcher:
    shortest = len(pattern) - pattern.count("*")
    return lambda text: len(text) >= shortest and _walk(pattern, text)


def _walk(pattern: str, text: str) -> bool:
    """Follow all paths through the pattern at once: bit n means n characters matched."""
    loops, size = 0, 0
    places: dict[str, int] = {}
    for character in pattern:
        if character == "*":
            loops |= 1 << size
        else:
            size += 1
            places[character] = places.get(character, 0) | 1 << size
    anything = places.pop("?", 0)
    state = 1
    for character in text:
        state = (state << 1 & (places.get(character, 0) | anything)) | (state & loops)
    return bool(state >> size)
