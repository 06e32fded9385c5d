"""Random text that matches a POSIX regular expression, such as `[a-z]{5}-(x|y)[0-9]+`."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

Choose: TypeAlias = Callable[[int], int]
# Generates text; the list contains the number of characters that may still be generated.
Make: TypeAlias = Callable[[Choose, list[int]], str]

# Go's generator repeats up to 4096 times without an upper bound, too long for any name.
_UNBOUNDED = 4096
_MAX_REPEAT = 1000
_MAX_LENGTH = 1 << 20
_MAX_PATTERN = 4096
_MAX_DEPTH = 50
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_COUNT = re.compile(r"\{([0-9]{1,4})(,?)([0-9]{0,4})\}")
_CODE = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,6})\})")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_CLASS_NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\x01", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\x01", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}


def make_random_text(pattern: str, choose: Choose) -> str:
    """Generate a text; `choose(n)` returns a random number below n. ValueError if invalid."""
    if not pattern:
        raise ValueError("no pattern provided")
    return _compile(pattern)(choose, [_MAX_LENGTH])


@lru_cache(maxsize=32)
def _compile(pattern: str) -> Make:
    if len(pattern) > _MAX_PATTERN:
        raise ValueError("error parsing regexp: expression too large")
    parser = _Parser(pattern)
    make = parser.alternatives(_MAX_DEPTH)
    if parser.rest:
        raise ValueError(f"error parsing regexp: unexpected ): `{pattern}`")
    return make


class _Parser:
    """The rest of a pattern."""

    def __init__(self, pattern: str) -> None:
        self.rest = pattern
        self._pattern = pattern

    def alternatives(self, depth: int) -> Make:
        if depth == 0:
            raise self._fault("expression nests too deeply")
        choices = [self._sequence(depth)]
        while self._accept("|"):
            choices.append(self._sequence(depth))
        if len(choices) == 1:
            return choices[0]
        return lambda choose, left: choices[choose(len(choices))](choose, left)

    def _fault(self, what: str) -> ValueError:
        return ValueError(f"error parsing regexp: {what}: `{self._pattern}`")

    def _accept(self, text: str) -> bool:
        if not self.rest.startswith(text):
            return False
        self.rest = self.rest[len(text) :]
        return True

    def _take(self) -> str:
        if not self.rest:
            raise self._fault("missing closing ]")
        taken, self.rest = self.rest[0], self.rest[1:]
        return taken

    def _sequence(self, depth: int) -> Make:
        items: list[Make] = []
        while self.rest and self.rest[0] not in "|)":
            items.append(self._repeated(self._item(depth)))
        return lambda choose, left: "".join([item(choose, left) for item in items])

    def _item(self, depth: int) -> Make:
        character = self._take()
        if character == "(":
            inner = self.alternatives(depth - 1)
            if not self._accept(")"):
                raise self._fault("missing closing )")
            return inner
        if character == "[":
            return _pick(self._bracket())
        if character == ".":
            return _pick([(1, 9), (11, _LAST)])
        if character in "^$":
            return lambda _, __: ""
        if character in "*+?":
            raise self._fault("missing argument to repetition operator")
        return _constant(self._escape() if character == "\\" else character)

    def _repeated(self, item: Make) -> Make:
        for _ in range(_MAX_DEPTH):
            bounds = self._bounds() if self.rest[:1] in ("*", "+", "?", "{") else None
            if bounds is None:
                return item
            item = _repeat(item, *bounds)
        raise self._fault("expression nests too deeply")

    def _bounds(self) -> tuple[int, int] | None:
        for sign, bounds in (("*", (0, _UNBOUNDED)), ("+", (1, _UNBOUNDED)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        found = _COUNT.match(self.rest)
        if found is None:
            # A brace that starts no count is literal; the sequence will read it.
            return None
        self.rest = self.rest[found.end() :]
        low = int(found[1])
        high = low if not found[2] else int(found[3]) if found[3] else max(low, _UNBOUNDED)
        if low > _MAX_REPEAT or (found[3] and int(found[3]) > _MAX_REPEAT) or high < low:
            raise self._fault("invalid repeat count")
        return low, high

    def _escape(self) -> str:
        if not self.rest:
            raise self._fault("trailing backslash at end of expression")
        coded = _CODE.match(self.rest)
        if coded is not None:
            self.rest = self.rest[coded.end() :]
            return chr(min(int(coded[1] or coded[2], 16), _LAST))
        character = self._take()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isascii() and not character.isalnum():
            return character
        raise ValueError(f"error parsing regexp: invalid escape sequence: `\\{character}`")

    def _bracket(self) -> list[tuple[int, int]]:
        inverted = self._accept("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._accept("]"):
            ranges.extend(self._class_name() or [self._range()])
            first = False
        ranges = _merge(ranges)
        return _invert(ranges) if inverted else ranges

    def _class_name(self) -> list[tuple[int, int]]:
        found = re.match(r"\[:(\^?)([a-z]+):\]", self.rest)
        if found is None:
            return []
        if found[2] not in _CLASS_NAMES:
            raise self._fault("invalid character class range")
        self.rest = self.rest[found.end() :]
        ranges = [(ord(low), ord(high)) for low, high in _CLASS_NAMES[found[2]]]
        return _invert(ranges) if found[1] else ranges

    def _range(self) -> tuple[int, int]:
        low = self._bracket_character()
        if not self.rest.startswith("-") or self.rest[1:2] == "]":
            return low, low
        self._take()
        high = self._bracket_character()
        if high < low:
            raise self._fault("invalid character class range")
        return low, high

    def _bracket_character(self) -> int:
        character = self._take()
        return ord(self._escape() if character == "\\" else character)


def _constant(text: str) -> Make:
    def constant(_: Choose, left: list[int]) -> str:
        left[0] -= 1
        return text

    return constant


def _pick(ranges: list[tuple[int, int]]) -> Make:
    total = sum(high - low + 1 for low, high in ranges)
    if total < 1:
        raise ValueError("error parsing regexp: the class has no characters")

    def pick(choose: Choose, left: list[int]) -> str:
        left[0] -= 1
        index = choose(total)
        for low, high in ranges:
            if index <= high - low:
                code = low + index
                return "\ufffd" if code in _SURROGATES else chr(code)
            index -= high - low + 1
        return ""

    return pick


def _repeat(item: Make, low: int, high: int) -> Make:
    def repeat(choose: Choose, left: list[int]) -> str:
        pieces = []
        for _ in range(low + choose(high - low + 1)):
            # Each iteration counts, also one that generates nothing.
            left[0] -= 1
            if left[0] < 0:
                raise ValueError("the random text would be too long")
            pieces.append(item(choose, left))
        return "".join(pieces)

    return repeat


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


def _invert(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """All other characters but NUL, which no text should contain."""
    inverted, start = [], 1
    for low, high in ranges:
        if low > start:
            inverted.append((start, low - 1))
        start = high + 1
    if start <= _LAST:
        inverted.append((start, _LAST))
    return inverted
