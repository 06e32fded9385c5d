"""Compiles leaves of a pattern, such as `?*`, `>=1Gi & <4Gi`, `!a | 1h-2h`, 5 or null."""

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache, partial

from lictor.core.lang.duration import parse_duration
from lictor.core.lang.pattern.go_values import parse_float, print_comparable, to_float
from lictor.core.lang.quantity import parse_quantity
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.raw import Json

# Most texts are no quantities; testing the first character avoids an exception.
_DURATION_START = frozenset("+-.0123456789")
_QUANTITY_START = _DURATION_START | frozenset("eEinumkKMGTP")


def read_duration(text: str) -> int | None:
    """The nanoseconds of a text such as `1h30m`, or None."""
    if text[:1] not in _DURATION_START:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def read_quantity(text: str) -> Decimal | None:
    """The quantity of a text such as `1.5Gi`, or None."""
    if text[:1] not in _QUANTITY_START:
        return None
    return _remember_quantity(text) if len(text) <= _LONGEST_KNOWN else _parse_quantity(text)


def _parse_quantity(text: str) -> Decimal | None:
    try:
        return parse_quantity(text).value
    except ValueError:
        return None


# Clusters use few different quantities repeatedly; long texts would only fill the memory.
_LONGEST_KNOWN = 40
_remember_quantity = lru_cache(maxsize=4096)(_parse_quantity)


def measure_duration(value: Json) -> int | None:
    """The nanoseconds of a duration; null is zero."""
    if isinstance(value, str):
        return read_duration(value)
    return 0 if value is None else None


def measure_quantity(value: Json) -> Decimal | int | None:
    """The quantity of a value; null is zero."""
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is str:
        return read_quantity(value)
    if kind is float:
        return read_quantity(f"{value:f}")
    return 0 if value is None else None


Predicate = Callable[[Json], bool]
Comparison = Callable[[Json, Json], bool]

_END = r"([-|+]?[0-9]+(?:\.[0-9]+)?[A-Za-z]*)"
_RANGE = re.compile(f"{_END}-{_END}")
_OUTSIDE = re.compile(f"{_END}!-{_END}")
_OPERATORS: tuple[tuple[str, Comparison], ...] = (
    (">=", operator.ge),
    ("<=", operator.le),
    (">", operator.gt),
    ("<", operator.lt),
    ("!", operator.ne),
)
_BOOLEANS = frozenset(("true", "false"))


def compile_scalar(pattern: Json) -> Predicate:
    """Compile a leaf of a pattern to a predicate for values other than lists."""
    if pattern is None:
        return _is_nothing
    if isinstance(pattern, bool):
        return partial(operator.is_, pattern)
    if isinstance(pattern, str):
        return compile_text(pattern)
    return _compile_number(pattern)


def split_operator(text: str) -> tuple[str, str]:
    """Split a text such as `>=5` into operator and operand; the operator may be empty."""
    if len(text) > 1:
        for sign, _ in _OPERATORS:
            if text.startswith(sign):
                return sign, text[len(sign) :]
    return "", text


def is_range(text: str) -> bool:
    """Whether the text as a whole is a range such as `1-10`."""
    return split_operator(text)[0] == "" and _RANGE.fullmatch(text) is not None


def _is_nothing(value: Json) -> bool:
    """Null matches the zero value of any type."""
    return not value and not isinstance(value, (dict, list))


def _compile_number(pattern: float) -> Predicate:
    number = to_float(pattern)

    def holds(value: Json) -> bool:
        kind = type(value)
        if kind is int or kind is float:
            return bool(value == pattern)
        return kind is str and parse_float(value) == number

    return holds


def compile_text(text: str) -> Predicate:
    """Compile a text pattern to a predicate: alternatives by `|`, each of parts joined by `&`."""
    alternatives = [
        [part.strip(" ") for part in dict.fromkeys(alternative.strip(" ").split("&"))]
        for alternative in dict.fromkeys(text.split("|"))
    ]
    words = [part for parts in alternatives for part in parts]
    if len(words) == 1:
        return _compile_part(words[0], whole=text)
    if len(words) == len(alternatives) and all(is_word(word) for word in words):
        return _compile_words(frozenset((*words, text)))
    return _compile_alternatives(alternatives, text)


def is_word(text: str) -> bool:
    """A text that matches only itself."""
    return (
        split_operator(text)[0] == ""
        and not has_wildcard(text)
        and text == text.strip()
        and text not in _BOOLEANS
        and _OUTSIDE.fullmatch(text) is None
        and _RANGE.fullmatch(text) is None
        and read_duration(text) is None
        and read_quantity(text) is None
    )


def _compile_words(words: frozenset[str]) -> Predicate:
    return lambda value: isinstance(value, str) and value in words


def _compile_alternatives(alternatives: list[list[str]], text: str) -> Predicate:
    compiled = tuple(tuple(_compile_part(part) for part in parts) for parts in alternatives)

    def holds(value: Json) -> bool:
        if value == text:
            return True
        for parts in compiled:
            for part in parts:
                if not part(value):
                    break
            else:
                return True
        return False

    return holds


def _compile_part(text: str, whole: str | None = None) -> Predicate:
    """Compile one comparison; a value equal to the `whole` pattern always matches."""
    sign, operand = split_operator(text)
    if not sign:
        outside = _OUTSIDE.fullmatch(text)
        if outside is not None:
            below, above = (("<", outside.group(1)), (">", outside.group(2)))
            return _compile_ends(below, above, whole, inside=False)
        inside = _RANGE.fullmatch(text)
        if inside is not None:
            least, most = ((">=", inside.group(1)), ("<=", inside.group(2)))
            return _compile_ends(least, most, whole, inside=True)
    return _compile_comparison(sign, operand.strip(), whole)


def _compile_ends(
    left: tuple[str, str], right: tuple[str, str], whole: str | None, *, inside: bool
) -> Predicate:
    first, second = _compile_comparison(*left), _compile_comparison(*right)
    if inside:
        return lambda value: (
            (first(value) and second(value)) or (whole is not None and value == whole)
        )
    return lambda value: first(value) or second(value) or (whole is not None and value == whole)


def _compile_comparison(sign: str, operand: str, whole: str | None = None) -> Predicate:
    if operand[:1] in _QUANTITY_START:
        duration, quantity = read_duration(operand), read_quantity(operand)
        if duration is not None or quantity is not None:
            return _compile_amount(sign, operand, (duration, quantity), whole)
    if not sign:
        fits = _compile_equality(operand)
        return fits if whole is None or whole == operand else _or_whole(fits, whole)
    if sign == "!":
        return _compile_negation(operand, whole)
    # Texts have no order; only the pattern's own text can still match.
    return _never if whole is None else partial(operator.eq, whole)


def _or_whole(fits: Predicate, whole: str) -> Predicate:
    return lambda value: fits(value) or bool(value == whole)


def _compile_equality(operand: str) -> Predicate:
    if operand in _BOOLEANS:
        truth = operand == "true"
        return lambda value: value is truth or bool(value == operand)
    if not has_wildcard(operand):
        return partial(operator.eq, operand)
    matches = compile_wildcard(operand)

    def holds(value: Json) -> bool:
        text = value if isinstance(value, str) else print_comparable(value)
        return text is not None and matches(text)

    return holds


def _compile_negation(operand: str, whole: str | None) -> Predicate:
    matches = compile_wildcard(operand)

    def holds(value: Json) -> bool:
        text = value if isinstance(value, str) else print_comparable(value)
        # Null, maps and lists are not "something else": no comparison holds for them.
        return text is not None and (not matches(text) or text == whole)

    return holds


def _compile_amount(
    sign: str, operand: str, amounts: tuple[int | None, Decimal | None], whole: str | None
) -> Predicate:
    """Compare with a duration, a quantity, or (if the value is neither) a text."""
    duration, quantity = amounts
    compare: Comparison = dict(_OPERATORS).get(sign, operator.eq)
    as_text = _compile_as_text(sign, operand)
    is_whole = _never if whole is None else partial(operator.eq, whole)

    def holds(value: Json) -> bool:
        if duration is not None:
            length = measure_duration(value)
            if length is not None:
                return compare(length, duration) or is_whole(value)
        if quantity is not None:
            amount = measure_quantity(value)
            if amount is not None:
                return compare(amount, quantity) or is_whole(value)
        return as_text(value) or is_whole(value)

    return holds


def _compile_as_text(sign: str, operand: str) -> Predicate:
    matches = compile_wildcard(operand)

    def differs(value: Json) -> bool:
        text = print_comparable(value)
        return text is not None and not matches(text)

    def fits(value: Json) -> bool:
        text = print_comparable(value)
        return text is not None and matches(text)

    if sign == "!":
        return differs
    return _never if sign else fits


def _never(value: Json) -> bool:  # noqa: ARG001
    return False
