"""Which values may a field have? Sets of values, and whether they exclude or contain each other."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

import msgspec

from lictor.lang.pattern.scalar import is_range, read_duration, read_quantity, split_operator
from lictor.lang.wildcard import has_wildcard, match_wildcard
from lictor.raw import Json

# Longer texts are not compared: the time for two patterns grows with their product.
_LONGEST = 200


class Interval(msgspec.Struct, frozen=True):
    """Numbers, amounts or durations between two ends."""

    low: Decimal | None = None
    high: Decimal | None = None
    has_low: bool = True
    has_high: bool = True
    # Nanoseconds, rather than numbers and amounts.
    is_time: bool = False

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high

    def holds(self, number: Decimal) -> bool:
        above = self.low is None or number > self.low or (self.has_low and number == self.low)
        below = self.high is None or number < self.high or (self.has_high and number == self.high)
        return above and below


class Text(msgspec.Struct, frozen=True):
    """Texts that fit a pattern with wildcards; `true` and `false` stand for booleans, too."""

    pattern: str


class OtherThan(msgspec.Struct, frozen=True):
    """Whatever fits none of these patterns."""

    patterns: frozenset[str] = frozenset()


ValuePart: TypeAlias = Interval | Text | OtherThan
ANY_VALUE = OtherThan()


class ValueSet(msgspec.Struct, frozen=True):
    """Values that a field may have, and where on the way to it nothing need be."""

    parts: tuple[ValuePart, ...] = ()
    # How many steps of the path lead to what may be absent.
    absent: frozenset[int] = frozenset()

    def __or__(self, other: "ValueSet") -> "ValueSet":
        parts = tuple(dict.fromkeys((*self.parts, *other.parts)))
        return ValueSet(parts, self.absent | other.absent)


def are_disjoint(first: ValueSet, second: ValueSet) -> bool:
    """Is there no value that both allow? In doubt there is one."""
    if first.absent & second.absent:
        return False
    return all(_exclude(one, other) for one in first.parts for other in second.parts)


def is_within(inner: ValueSet, outer: ValueSet) -> bool:
    """Does one allow all that the other does? In doubt it does not."""
    if not inner.absent <= outer.absent:
        return False
    return all(any(_contains(part, one) for part in outer.parts) for one in inner.parts)


# --- two parts


def _exclude(one: ValuePart, other: ValuePart) -> bool:
    """Have they nothing in common?"""
    if isinstance(one, OtherThan):
        return not isinstance(other, OtherThan) and _exclude(other, one)
    if isinstance(other, OtherThan):
        return any(_contains(_read_word(pattern), one) for pattern in other.patterns)
    if isinstance(one, Interval) and isinstance(other, Interval):
        return one.is_time == other.is_time and (_is_below(one, other) or _is_below(other, one))
    if isinstance(one, Text) and isinstance(other, Text):
        return not may_overlap(one.pattern, other.pattern)
    interval, text = (one, other) if isinstance(one, Interval) else (other, one)
    if not _is_word(text) or not isinstance(interval, Interval):
        return False
    number = _measure(text, interval)
    return number is None or not interval.holds(number)


def _is_word(part: ValuePart) -> bool:
    return isinstance(part, Text) and not has_wildcard(part.pattern)


def _measure(text: ValuePart, interval: Interval) -> Decimal | None:
    if not isinstance(text, Text):
        return None
    found = read_duration(text.pattern) if interval.is_time else read_quantity(text.pattern)
    return None if found is None else Decimal(found)


def _is_below(one: Interval, other: Interval) -> bool:
    if one.high is None or other.low is None:
        return False
    touches = one.high == other.low and one.has_high and other.has_low
    return one.high <= other.low and not touches


def _contains(outer: ValuePart, inner: ValuePart) -> bool:
    """Is all of the inner one in the outer one?"""
    if outer in (ANY_VALUE, inner):
        return True
    if isinstance(outer, OtherThan):
        if isinstance(inner, OtherThan):
            return all(any(is_wider(q, p) for q in inner.patterns) for p in outer.patterns)
        return all(_exclude(inner, _read_word(pattern)) for pattern in outer.patterns)
    if isinstance(outer, Interval):
        if isinstance(inner, Interval):
            return outer.is_time == inner.is_time and _reaches_over(outer, inner)
        number = _measure(inner, outer) if _is_word(inner) else None
        return number is not None and outer.holds(number)
    return isinstance(inner, Text) and is_wider(outer.pattern, inner.pattern)


def _reaches_over(outer: Interval, inner: Interval) -> bool:
    low = outer.low is None or (
        inner.low is not None
        and (inner.low > outer.low or (inner.low == outer.low and outer.has_low >= inner.has_low))
    )
    high = outer.high is None or (
        inner.high is not None
        and (
            inner.high < outer.high
            or (inner.high == outer.high and outer.has_high >= inner.has_high)
        )
    )
    return low and high


@lru_cache(maxsize=4096)
def may_overlap(left: str, right: str) -> bool:
    """Is there a text that fits both patterns?"""
    if len(left) > _LONGEST or len(right) > _LONGEST:
        return True
    # Which beginnings of the right pattern can stand for the same text as one of the left.
    reached = {0}
    reached = _skip_stars(reached, right)
    for letter in left:
        if letter == "*":
            reached = set(range(min(reached), len(right) + 1)) if reached else set()
        else:
            reached = _skip_stars(set(_step(reached, letter, right)), right)
    return len(right) in reached


def _step(reached: Iterable[int], letter: str, right: str) -> Iterator[int]:
    for at in reached:
        if at < len(right):
            if right[at] == "*":
                yield at
            elif letter == "?" or right[at] in ("?", letter):
                yield at + 1


def _skip_stars(reached: set[int], right: str) -> set[int]:
    found = set(reached)
    for start in reached:
        end = start
        while end < len(right) and right[end] == "*":
            end += 1
            found.add(end)
    return found


def is_wider(outer: str, inner: str) -> bool:
    """Does every text fit the outer pattern that fits the inner one? In doubt it does not."""
    if not has_wildcard(inner):
        return match_wildcard(outer, inner)
    # Letters that no pattern names stand for whatever is in place of the wildcards.
    runs = ("", "\0", "\0\1\0\1")
    return all(match_wildcard(outer, inner.replace("*", run).replace("?", "\1")) for run in runs)


# --- from what is written


def read_equal(value: Json) -> ValuePart | None:
    """Values that equal a literal, as patterns and conditions compare; None for no scalar."""
    if isinstance(value, bool):
        return Text("true" if value else "false")
    if isinstance(value, int | float):
        number = Decimal(str(value))
        return Interval(number, number)
    return _read_word(value) if isinstance(value, str) else None


def _read_word(text: str) -> ValuePart:
    number = None if has_wildcard(text) else read_quantity(text)
    if number is not None:
        return Interval(number, number)
    if not text.strip("*") and text:
        return ANY_VALUE
    return OtherThan(frozenset(("",))) if text == "?*" else Text(text)


def read_compared(sign: str, value: Json) -> ValuePart | None:
    """Values that are larger or smaller than a literal; `sign` is one of > >= < <=."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    number, is_time = read_quantity(text), False
    if number is None:
        nanoseconds = read_duration(text)
        if nanoseconds is None:
            return None
        number, is_time = Decimal(nanoseconds), True
    elif read_duration(text) not in (None, 0):
        # `5m` may be five minutes or five thousandths.
        return None
    ends = sign.endswith("=")
    if sign.startswith(">"):
        return Interval(low=number, has_low=ends, is_time=is_time)
    return Interval(high=number, has_high=ends, is_time=is_time)


def read_scalar(pattern: Json) -> tuple[ValuePart, ...] | None:
    """The leaf of a pattern; None where it is not understood."""
    if pattern is None:
        zero = Decimal(0)
        return Text(""), Text("false"), Interval(zero, zero)
    if not isinstance(pattern, str):
        part = read_equal(pattern)
        return None if part is None else (part,)
    if "{{" in pattern or "$(" in pattern or len(pattern) > _LONGEST:
        return None
    parts = [_read_all(each.split("&")) for each in pattern.split("|")]
    found = tuple(part for part in parts if part is not None)
    return found if len(found) == len(parts) else None


def _read_all(texts: list[str]) -> ValuePart | None:
    parts = [_read_one(text.strip(" ")) for text in texts]
    whole, *others = parts
    for other in others:
        whole = None if whole is None or other is None else _meet(whole, other)
    return whole


def _read_one(text: str) -> ValuePart | None:
    sign, operand = split_operator(text)
    if sign == "!":
        return OtherThan(frozenset((operand,)))
    if sign:
        return read_compared(sign, operand)
    if "!-" in text:
        return None
    if is_range(text):
        low, _, high = text.partition("-")
        first, second = read_compared(">=", low), read_compared("<=", high)
        return None if first is None or second is None else _meet(first, second)
    return _read_word(text)


def _meet(one: ValuePart, other: ValuePart) -> ValuePart | None:
    """What both have in common, where it is a part again."""
    if isinstance(one, OtherThan) and isinstance(other, OtherThan):
        return OtherThan(one.patterns | other.patterns)
    if isinstance(one, Interval) and isinstance(other, Interval) and one.is_time == other.is_time:
        if one.low is not None and other.low is not None:
            return None
        if one.high is not None and other.high is not None:
            return None
        lower, upper = (one, other) if one.low is not None else (other, one)
        return Interval(lower.low, upper.high, lower.has_low, upper.has_high, one.is_time)
    return None


def negate(parts: Iterable[ValuePart]) -> tuple[ValuePart, ...] | None:
    """All values but these; None where that is no union of parts."""
    listed = list(parts)
    if len(listed) == 1 and isinstance(listed[0], Interval):
        return _leave_out(listed[0])
    if listed and all(isinstance(part, Text) for part in listed):
        return (OtherThan(frozenset(part.pattern for part in listed if isinstance(part, Text))),)
    if len(listed) == 1 and isinstance(listed[0], OtherThan):
        return tuple(_read_word(pattern) for pattern in sorted(listed[0].patterns))
    return None


def _leave_out(interval: Interval) -> tuple[ValuePart, ...]:
    low, high, time = interval.low, interval.high, interval.is_time
    below = Interval(high=low, has_high=not interval.has_low, is_time=time)
    above = Interval(low=high, has_low=not interval.has_high, is_time=time)
    return (*((below,) if low is not None else ()), *((above,) if high is not None else ()))


# --- in words


def describe_values(allowed: ValueSet) -> str:
    """`>=3`, `"a" or "b"`, `absent`."""
    words = [_describe(part) for part in allowed.parts]
    if allowed.absent or not words:
        words.append("absent")
    return " or ".join(words)


def _describe(part: ValuePart) -> str:
    match part:
        case Text(pattern):
            return pattern if pattern in ("true", "false") else f'"{pattern}"'
        case OtherThan(patterns):
            if part == ANY_VALUE:
                return "there"
            listed = " or ".join(f'"{pattern}"' for pattern in sorted(patterns))
            return f"other than {listed}"
        case Interval():
            return _describe_interval(part)


def _describe_interval(part: Interval) -> str:
    if part.is_point and part.low is not None:
        return _write(part.low, part)
    ends = []
    if part.low is not None:
        ends.append(f"{'>=' if part.has_low else '>'}{_write(part.low, part)}")
    if part.high is not None:
        ends.append(f"{'<=' if part.has_high else '<'}{_write(part.high, part)}")
    return " & ".join(ends)


def _write(number: Decimal, part: Interval) -> str:
    if part.is_time:
        return f"{number / 10**9:f}s"
    return f"{number:f}"
