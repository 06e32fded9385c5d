"""In, AnyIn, AllIn and their negations.

The value may be a list, a text that contains a JSON list of texts, a range such as `1-10` (not for
In and NotIn), or one text. For anything else the result is None: neither the operator nor its
negation holds.
"""

from collections.abc import Callable, Iterable

import orjson

from lictor.core.errors import EvaluationError
from lictor.core.lang.pattern.go_values import print_value
from lictor.core.lang.pattern.scalar import compile_text, is_range
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.raw import Json

Holds = Callable[[Json], bool]
One = Callable[[str], bool | None]
Many = Callable[[list[Json]], bool | None]
Contains = Callable[[str], bool]
Quantifier = Callable[[Iterable[bool]], bool]


def build_in(value: Json) -> Holds:
    """Build In (old): every key is in the value, without wildcards."""
    return _join(
        lambda: _compile_one(value, ranges=False),
        lambda: _compile_old_many(value, negated=False),
    )


def build_not_in(value: Json) -> Holds:
    """Build NotIn (old): some key is not in the value, without wildcards."""
    return _join(
        lambda: _compile_one(value, ranges=False),
        lambda: _compile_old_many(value, negated=True),
        negated=True,
    )


def build_any_in(value: Json) -> Holds:
    """Build AnyIn: some key is in the value."""
    return _join(
        lambda: _compile_one(value), lambda: _compile_many(_widen(value), any, negated=False)
    )


def build_any_not_in(value: Json) -> Holds:
    """Build AnyNotIn: some key is not in the value."""
    return _join(
        lambda: _compile_one(value),
        lambda: _compile_many(_widen(value), any, negated=True),
        negated=True,
    )


def build_all_in(value: Json) -> Holds:
    """Build AllIn: every key is in the value."""
    return _join(lambda: _compile_one(value), lambda: _compile_many(value, all, negated=False))


def build_all_not_in(value: Json) -> Holds:
    """Build AllNotIn: no key is in the value."""
    return _join(
        lambda: _compile_one(value), lambda: _compile_many(value, all, negated=True), negated=True
    )


def _join(
    compile_one: Callable[[], One], compile_many: Callable[[], Many], *, negated: bool = False
) -> Holds:
    """Join the tests for a single key and for a list of keys.

    Each is compiled for the first key of its type: if the value depends on the request, there is
    only one key to test.
    """
    one: One | None = None
    many: Many | None = None

    def holds(key: Json) -> bool:
        nonlocal one, many
        if isinstance(key, list):
            if many is None:
                many = compile_many()
            return many(key) is True
        if not isinstance(key, (str, int, float)):
            return False
        if one is None:
            one = compile_one()
        found = one(key if isinstance(key, str) else print_value(key))
        return found is not None and found is not negated

    return holds


def _widen(value: Json) -> Json:
    """A single number or boolean as a list; only the Any operators accept it."""
    return [value] if isinstance(value, (int, float)) else value


def _compile_one(value: Json, *, ranges: bool = True) -> One:
    if isinstance(value, list):
        return _compile_contains([print_value(item) for item in value])
    if not isinstance(value, str):
        return _answer_nothing
    matches = compile_wildcard(value)
    if ranges and is_range(value):
        is_within = compile_text(value)
        return lambda key: matches(key) or is_within(key)
    members = _read_members(value, lenient=ranges)
    if members is None:
        return lambda key: matches(key) or None
    known = frozenset(members)
    return lambda key: matches(key) or key in known


def _answer_nothing(key: Json) -> bool | None:  # noqa: ARG001
    return None


def _compile_contains(texts: list[str]) -> Contains:
    """Search a text among others; either side may be a wildcard pattern."""
    known = frozenset(texts)
    patterns: tuple[Contains, ...] | None = None

    def contains(text: str) -> bool:
        nonlocal patterns
        if text in known:
            return True
        if patterns is None:
            patterns = tuple(compile_wildcard(each) for each in texts if has_wildcard(each))
        for matches in patterns:
            if matches(text):
                return True
        return has_wildcard(text) and any(map(compile_wildcard(text), texts))

    return contains


def _read_members(text: str, *, lenient: bool) -> list[str] | None:
    """Parse a JSON list of texts; if lenient, text that is no JSON is a single member."""
    try:
        members = orjson.loads(text)
    except ValueError:
        return [text] if lenient else None
    if members is None:
        return []
    if not isinstance(members, list):
        return None
    # Go decodes null to an empty text.
    texts = ["" if member is None else member for member in members]
    return texts if all(isinstance(member, str) for member in texts) else None


def _compile_many(value: Json, quantify: Quantifier, *, negated: bool) -> Many:
    test = _compile_test(value, quantify, negated=negated)
    if test is None and not isinstance(value, str):
        return _answer_nothing

    def many(keys: list[Json]) -> bool | None:
        texts = [print_value(key) for key in keys]
        # A single text is literal, even if it is JSON: `[true]` is in "true".
        if len(texts) == 1 and texts[0] == value:
            return not negated
        return None if test is None else quantify(map(test, texts))

    return many


def _compile_test(value: Json, quantify: Quantifier, *, negated: bool) -> Contains | None:
    """Compile the test for each key; None if the value cannot contain keys."""
    if isinstance(value, str):
        if is_range(value):
            return _compile_range_test(value, quantify, negated=negated)
        members = _read_members(value, lenient=True)
    elif isinstance(value, list):
        members = [print_value(item) for item in value]
    else:
        return None
    if members is None:
        return None
    contains = _compile_contains(members)
    return (lambda key: not contains(key)) if negated else contains


def _compile_range_test(value: str, quantify: Quantifier, *, negated: bool) -> Contains:
    if not negated:
        return compile_text(value)
    if quantify is any:
        # Not the negation of within: a text that is no number is neither.
        return compile_text(value.replace("-", "!-", 1))
    is_within = compile_text(value)
    return lambda key: not is_within(key)


def _compile_old_many(value: Json, *, negated: bool) -> Many:
    members = _read_members(value, lenient=False) if isinstance(value, str) else value
    if not isinstance(members, list) or not all(isinstance(item, str) for item in members):
        members = None
    known = None if members is None else frozenset(members)

    def many(keys: list[Json]) -> bool | None:
        for key in keys:
            if not isinstance(key, str):
                raise EvaluationError(
                    f"In and NotIn take lists of texts only, not {print_value(key)!r}; "
                    "use AnyIn, AllIn, AnyNotIn or AllNotIn"
                )
        if len(keys) == 1 and keys[0] == value:
            return True
        if known is None:
            return None
        return known.issuperset(keys) is not negated

    return many
