"""Where values with dotted names end up."""

import pytest

from lictor.core.errors import EvaluationError
from lictor.core.lang.json_type import merge_dotted, split_dotted


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a", "b", "c"]),
        ('a."b.c"', ["a", "b.c"]),
        ("", [""]),
        ("a..b", ["a", "", "b"]),
    ],
)
def test_names_are_split_at_dots(name, parts):
    assert split_dotted(name) == parts


def test_a_name_with_half_a_quote_is_none():
    with pytest.raises(EvaluationError, match="not a variable name"):
        split_dotted('"a')


@pytest.mark.parametrize(
    ("base", "values", "merged"),
    [
        ({"a": {"b": 1}}, {"a.c": 2}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}}, {"a.b": {"c": 2}}, {"a": {"b": {"c": 2}}}),
        ({"a": 1}, {"a.b": 2}, {"a": {"b": 2}}),
        ({}, {"": 1}, {"": 1}),
    ],
)
def test_values_are_merged_at_their_place(base, values, merged):
    before = {**base}
    assert merge_dotted(base, values) == merged
    assert base == before
