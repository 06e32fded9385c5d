"""Values that patterns allow: whether two patterns have nothing in common."""

import pytest

from lictor.core.lang.pattern import compile_pattern
from lictor.lint.value_sets import ValueSet, are_disjoint, read_scalar, texts_overlap


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


def test_absence_counts_at_each_step():
    either, field = frozenset((1, 2)), frozenset((2,))
    number = read(3).parts
    assert not are_disjoint(ValueSet(number, either), ValueSet((), field))
    assert are_disjoint(ValueSet(number), ValueSet((), field))


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


def test_patterns_that_meet():
    assert texts_overlap("a*c", "ab*")
    assert texts_overlap("*", "")
    assert texts_overlap("a?", "?b*")
    assert not texts_overlap("a*c", "b*")
    assert not texts_overlap("?", "")
    assert not texts_overlap("*-shop", "prod-*-data")
