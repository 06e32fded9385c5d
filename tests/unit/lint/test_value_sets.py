"""Sets of values: whether two have nothing in common, and whether one holds the other."""

import pytest

from lictor.lang.pattern import compile_pattern
from lictor.lint.value_sets import (
    ValueSet,
    are_disjoint,
    describe_values,
    is_wider,
    is_within,
    may_overlap,
    negate,
    read_scalar,
)


def read(pattern):
    return ValueSet(read_scalar(pattern))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (">=3", "<=2"),
        (">3", "<=3"),
        ("1-5", ">5"),
        ("<1Gi", ">=1024Mi"),
        (">=1h", "<30s"),
        (True, False),
        ("true", False),
        ("a | b", "c | d"),
        ("registry/*", "mirror/*"),
        ("*:latest", "*:1.?"),
        (5, "!5"),
        ("a", "!a"),
        ("app:latest", "!*:latest"),
        (3, "web"),
        (3, 4),
        ("", "?*"),
    ],
)
def test_nothing_in_common(one, other):
    assert are_disjoint(read(one), read(other))
    assert are_disjoint(read(other), read(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (">=3", "<=3"),
        (">2", "<3"),
        ("a*", "*b"),
        ("a?c", "*b*"),
        ("!a", "!b"),
        ("!a", "a | b"),
        ("a | b", "b | c"),
        (">=1h", ">=3"),
        ("3", 3),
        ("1Gi", "1024Mi"),
        ("*", ">=3"),
        ("x-*", "!x-a"),
    ],
)
def test_something_in_common(one, other):
    assert not are_disjoint(read(one), read(other))
    assert not are_disjoint(read(other), read(one))


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (">=3", ">=2"),
        (">3", ">=3"),
        ("2-4", "1-5"),
        (3, ">=3"),
        ("a", "a | b"),
        ("a | b", "a | b | c"),
        ("registry/app:*", "registry/*"),
        ("a-?", "a-*"),
        ("a", "!b"),
        ("web-*", "!data-*"),
        ("!a & !b", "!a"),
        ("!a*", "!ab"),
        ("a", "?*"),
        (">=2", "*"),
        (5, "!6"),
    ],
)
def test_one_holds_the_other(inner, outer):
    assert is_within(read(inner), read(outer))


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (">=2", ">=3"),
        (">=3", ">3"),
        ("a | c", "a | b"),
        ("registry/*", "registry/app:*"),
        ("a-*", "a-?"),
        ("*", "?"),
        ("!a", "!a & !b"),
        ("!ab", "!a*"),
        ("*", "?*"),
        (">=2", "2"),
        ("!a", "b"),
    ],
)
def test_one_does_not_hold_the_other(inner, outer):
    assert not is_within(read(inner), read(outer))


def test_absence_counts_at_each_step():
    either, field = frozenset((1, 2)), frozenset((2,))
    number = read(3).parts
    assert not are_disjoint(ValueSet(number, either), ValueSet((), field))
    assert are_disjoint(ValueSet(number), ValueSet((), field))
    assert is_within(ValueSet((), field), ValueSet(number, either))
    assert not is_within(ValueSet(number, either), ValueSet(number, field))


@pytest.mark.parametrize("pattern", ["{{ request.name }}", "$(./a)", "5m", "<=5m", "1!-5", "a & b"])
def test_what_is_not_understood_is_not_guessed(pattern):
    parts = read_scalar(pattern)
    # Five thousandths or five minutes: as a bound nobody knows, as a value it equals itself.
    assert parts is None or pattern == "5m"


@pytest.mark.parametrize("pattern", [">=3", "<3", "a | b", "!a", True, 4, "?*"])
@pytest.mark.parametrize("value", [2, 3, 4, "a", "b", "c", True, False, ""])
def test_a_value_is_held_where_the_pattern_fits(pattern, value):
    fits = compile_pattern({"k": pattern})({"k": value}) is None
    assert are_disjoint(read(pattern), read(value)) is not fits


def test_all_other_values():
    for pattern in (">=3", "<5", "2-4", "!a", "a", 4):
        parts = read_scalar(pattern)
        assert are_disjoint(ValueSet(parts), ValueSet(negate(parts))), pattern
    assert negate(read_scalar("a | >3")) is None


def test_patterns_that_meet():
    assert may_overlap("a*c", "ab*")
    assert may_overlap("*", "")
    assert not may_overlap("a*c", "b*")
    assert not may_overlap("?", "")
    assert is_wider("*a*", "*a?")
    assert not is_wider("a?", "a*")


def test_words():
    assert describe_values(read(">=3")) == ">=3"
    assert describe_values(read("1-5")) == ">=1 & <=5"
    assert describe_values(read("a | b")) == '"a" or "b"'
    assert describe_values(read("!a & !b")) == 'other than "a" or "b"'
    assert describe_values(read("<90s")) == "<90s"
    assert describe_values(ValueSet((), frozenset((1,)))) == "absent"
    assert describe_values(read("*")) == "there"
