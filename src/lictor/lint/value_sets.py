"""The values that the leaf of a pattern allows, and whether two leaves are disjoint."""

from decimal import Decimal
from typing import TypeAlias

import msgspec

from lictor.core.lang.pattern.scalar import is_range, read_duration, read_quantity, split_operator
from lictor.core.lang.wildcard import has_wildcard, match_wildcard
from lictor.core.raw import Json

# Longer texts are skipped: comparing two patterns takes time that grows with their length.
_LONGEST = 200


class Interval(msgspec.Struct, frozen=True):
    """Numbers, quantities or durations between two ends."""

    low: Decimal | None = None
    high: Decimal | None = None
    has_low: bool = True
    has_high: bool = True
    # Nanoseconds instead of numbers and quantities.
    is_time: bool = False

    def holds(self, number: Decimal) -> bool:
        above = self.low is None or number > self.low or (self.has_low and number == self.low)
        below = self.high is None or number < self.high or (self.has_high and number == self.high)
        return above and below


class Text(msgspec.Struct, frozen=True):
    """Texts that match a wildcard pattern; `true` and `false` also mean booleans."""

    pattern: str


class OtherThan(msgspec.Struct, frozen=True):
    """Everything that matches none of these patterns."""

    patterns: frozenset[str] = frozenset()


ValuePart: TypeAlias = Interval | Text | OtherThan


class ValueSet(msgspec.Struct, frozen=True):
    """The values of a field, and how much of its path is optional."""

    parts: tuple[ValuePart, ...] = ()
    # How many steps of the path are optional.
    absent: frozenset[int] = frozenset()


def are_disjoint(first: ValueSet, second: ValueSet) -> bool:
    """Whether no value is allowed by both; False in doubt."""
    if first.absent & second.absent:
        return False
    return all(_exclude(one, other) for one in first.parts for other in second.parts)


def texts_overlap(left: str, right: str) -> bool:
    """Whether a text can match both patterns; True in doubt."""
    if not has_wildcard(left):
        return match_wildcard(right, left)
    if not has_wildcard(right):
        return match_wildcard(left, right)
    starts, ends = ((left.split("*")[at], right.split("*")[at]) for at in (0, -1))
    return _agree(*starts) and _agree(ends[0][::-1], ends[1][::-1])


def _agree(one: str, other: str) -> bool:
    return all(a == b or "?" in (a, b) for a, b in zip(one, other, strict=False))


def _exclude(one: ValuePart, other: ValuePart) -> bool:
    """Whether they have nothing in common."""
    if isinstance(one, OtherThan):
        return not isinstance(other, OtherThan) and _exclude(other, one)
    if isinstance(other, OtherThan):
        return any(_takes_all(pattern, one) for pattern in other.patterns)
    if isinstance(one, Interval) and isinstance(other, Interval):
        return one.is_time == other.is_time and (_is_below(one, other) or _is_below(other, one))
    if isinstance(one, Text) and isinstance(other, Text):
        return not texts_overlap(one.pattern, other.pattern)
    return _is_outside(one, other) if isinstance(one, Text) else _is_outside(other, one)


def _takes_all(pattern: str, part: ValuePart) -> bool:
    if isinstance(part, Text) and not has_wildcard(part.pattern):
        return match_wildcard(pattern, part.pattern)
    return _read_word(pattern) == part


def _is_outside(text: ValuePart, interval: ValuePart) -> bool:
    """Whether a text is no number, or outside of the interval."""
    if not isinstance(text, Text) or not isinstance(interval, Interval):
        return False
    if has_wildcard(text.pattern):
        return False
    read = read_duration if interval.is_time else read_quantity
    number = read(text.pattern)
    return number is None or not interval.holds(Decimal(number))


def _is_below(one: Interval, other: Interval) -> bool:
    if one.high is None or other.low is None:
        return False
    touches = one.high == other.low and one.has_high and other.has_low
    return one.high <= other.low and not touches


# --- from what is written


def read_scalar(pattern: Json) -> tuple[ValuePart, ...] | None:
    """The leaf of a pattern; None if it is not understood."""
    if pattern is None:
        zero = Decimal(0)
        return Text(""), Text("false"), Interval(zero, zero)
    if isinstance(pattern, bool):
        return (Text("true" if pattern else "false"),)
    if isinstance(pattern, int | float):
        number = Decimal(str(pattern))
        return (Interval(number, number),)
    if not isinstance(pattern, str) or len(pattern) > _LONGEST:
        return None
    if "{{" in pattern or "$(" in pattern:
        return None
    parts = [_read_all(each.split("&")) for each in pattern.split("|")]
    found = tuple(part for part in parts if part is not None)
    return found if len(found) == len(parts) else None


def _read_all(texts: list[str]) -> ValuePart | None:
    whole, *others = [_read_one(text.strip(" ")) for text in texts]
    for other in others:
        whole = None if whole is None or other is None else _meet(whole, other)
    return whole


def _read_one(text: str) -> ValuePart | None:
    sign, operand = split_operator(text)
    if sign == "!":
        return OtherThan(frozenset((operand,)))
    if sign:
        return _read_compared(sign, operand)
    if "!-" in text:
        return None
    if is_range(text):
        low, _, high = text.partition("-")
        first, second = _read_compared(">=", low), _read_compared("<=", high)
        return None if first is None or second is None else _meet(first, second)
    return _read_word(text)


def _read_word(text: str) -> ValuePart:
    number = None if has_wildcard(text) else read_quantity(text)
    if number is not None:
        return Interval(number, number)
    if text and not text.strip("*"):
        return OtherThan()
    return OtherThan(frozenset(("",))) if text == "?*" else Text(text)


def _read_compared(sign: str, text: str) -> Interval | None:
    """Values greater or less than a literal; `sign` is one of > >= < <=."""
    number, nanoseconds = read_quantity(text), read_duration(text)
    is_time = number is None
    # `5m` may be five minutes or five thousandths.
    if (nanoseconds is None) if is_time else nanoseconds not in (None, 0):
        return None
    end = Decimal(nanoseconds or 0) if number is None else number
    has_end = sign.endswith("=")
    if sign.startswith(">"):
        return Interval(low=end, has_low=has_end, is_time=is_time)
    return Interval(high=end, has_high=has_end, is_time=is_time)


def _meet(one: ValuePart, other: ValuePart) -> ValuePart | None:
    """The intersection, if it is a part again."""
    if isinstance(one, OtherThan) and isinstance(other, OtherThan):
        return OtherThan(one.patterns | other.patterns)
    if isinstance(one, Interval) and isinstance(other, Interval) and one.is_time == other.is_time:
        lower, upper = (one, other) if one.low is not None else (other, one)
        if lower.high is None and upper.low is None:
            return Interval(lower.low, upper.high, lower.has_low, upper.has_high, one.is_time)
    return None
