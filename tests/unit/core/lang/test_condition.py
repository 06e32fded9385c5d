"""For which keys and values the operators of conditions hold."""

from contextlib import suppress

import pytest

from lictor.core.errors import CompileError, EvaluationError, TooLargeError
from lictor.core.lang.condition import OPERATORS, compile_operator, compile_operator_with
from lictor.core.lang.semver import parse_version

HOLDS = [
    # equality
    ("Equals", "web", "web", True),
    ("Equal", "web", "w*", True),
    ("Equals", "w*", "web", False),
    ("NotEquals", "db", "w*", True),
    ("Equals", "1Gi", "1024Mi", True),
    ("Equals", "2h", "120m", True),
    ("Equals", "2h", 7200, True),
    ("Equals", "2m", 7200, False),
    ("Equals", 7200, "2h", False),
    ("Equals", 3, "3", True),
    ("Equals", 3, 3.0, True),
    ("Equals", 3, "three", False),
    ("NotEquals", 3, "three", True),
    ("Equals", True, True, True),
    ("Equals", True, "true", False),
    ("Equals", 1, True, False),
    ("NotEquals", True, 1, True),
    ("Equals", {"a": [1]}, {"a": [1.0]}, True),
    ("Equals", [1], [True], False),
    ("NotEquals", [1], "1", True),
    ("Equals", None, None, False),
    ("NotEquals", None, "x", False),
    # a quantity and a text that is none: neither equal nor not
    ("Equals", "5", "x", False),
    ("NotEquals", "5", "x", True),
    ("NotEquals", "5", "", True),
    # membership of one
    ("AnyIn", "web", ["db", "w*"], True),
    ("AnyIn", "w*", ["web"], True),
    ("AllIn", 3, ["3"], True),
    ("AllIn", True, ["true"], True),
    ("AnyIn", "web", '["web", "db"]', True),
    ("AnyIn", "web", "w*", True),
    ("AnyIn", "web", "[1]", False),
    ("AnyIn", [True], "true", True),
    ("AnyIn", [1], "1", True),
    ("AnyIn", [True, False], "true", False),
    ("AllIn", [True], "true", True),
    ("AnyNotIn", [True], "true", False),
    ("AnyNotIn", [False], "true", False),
    ("AllNotIn", [True], "true", False),
    ("AnyNotIn", "web", "[1]", False),
    ("AnyNotIn", "web", "db", True),
    ("AnyNotIn", "web", 5, False),
    ("AnyIn", "5", "1-10", True),
    ("AllNotIn", "50", "1-10", True),
    ("In", "5", "1-10", False),
    ("NotIn", "5", "1-10", False),
    ("In", "web", ["w?b"], True),
    ("NotIn", "web", ["db"], True),
    ("AnyIn", None, ["x"], False),
    ("AnyNotIn", {}, ["x"], False),
    # membership of many
    ("AnyIn", ["a", "b"], ["b", "c"], True),
    ("AllIn", ["a", "b"], ["b", "c"], False),
    ("AllIn", [], ["b"], True),
    ("AnyIn", [], ["b"], False),
    ("AnyNotIn", ["a", "b"], ["b", "c"], True),
    ("AllNotIn", ["a", "b"], ["b", "c"], False),
    ("AllNotIn", ["a", "x*"], ["c", "xy"], False),
    ("AnyIn", [1, 2], 2, True),
    ("AllIn", [2], 2, False),
    ("AnyIn", ["5", "50"], "1-10", True),
    ("AllIn", ["5", "50"], "1-10", False),
    ("AnyNotIn", ["5", "50"], "1-10", True),
    ("AllNotIn", ["5", "50"], "1-10", False),
    ("AnyNotIn", ["x"], "1-10", False),
    ("AllNotIn", ["x"], "1-10", True),
    ("AnyIn", ["[x"], "[x", True),
    ("AnyNotIn", ["a"], "a", False),
    ("In", ["a", "b"], ["a", "b", "c"], True),
    ("In", ["a*"], ["ab"], False),
    ("NotIn", ["a", "x"], ["a", "b"], True),
    ("NotIn", ["a"], ["a", 1], False),
    ("NotIn", ["a"], "a", True),
    ("In", ["a"], '["a", null]', True),
    ("In", [""], '["a", null]', True),
    ("NotIn", ["a"], "null", True),
    # order
    ("GreaterThan", 5, 3, True),
    ("GreaterThan", 3, 3, False),
    ("GreaterThanOrEquals", 3, "3", True),
    ("LessThan", 1.5, "2", True),
    ("LessThanOrEquals", "1Gi", "1024Mi", True),
    ("LessThan", "100m", "1", True),
    ("LessThan", "30s", "1m", True),
    ("LessThan", 30, "1m", True),
    ("LessThan", "30", "1h", True),
    ("LessThan", "30", "1m", False),
    ("GreaterThan", "1h", 60, True),
    ("GreaterThan", "1.10.0", "1.9.9", True),
    ("GreaterThan", "1.0.0", "1.0.0-rc.1", True),
    ("LessThan", "1.0.0-rc.2", "1.0.0-rc.11", True),
    ("GreaterThan", "v1.10.0", "v1.9.9", False),
    ("GreaterThan", "1.2.3", 1, False),
    ("GreaterThan", True, 0, False),
    ("GreaterThan", 1, False, False),
    ("GreaterThan", [5], 1, False),
    ("GreaterThan", 5, "x", False),
    ("LessThan", "0", "5", True),
    # the old duration operators
    ("DurationGreaterThan", "2h", "60m", True),
    ("DurationLessThan", "0", 1, True),
    ("DurationLessThanOrEquals", 60, "1m", True),
    ("DurationGreaterThanOrEquals", 59.9, 60, False),
    ("DurationGreaterThan", "5", 1, False),
    ("DurationLessThan", None, 1, False),
]


@pytest.mark.parametrize(("name", "key", "value", "holds"), HOLDS)
def test_operator(name, key, value, holds):
    assert compile_operator(name)(key, value) is holds
    assert compile_operator_with(name, value)(key) is holds


@pytest.mark.parametrize("name", ["In", "NotIn"])
@pytest.mark.parametrize("key", [[1], ["a", None], [True]])
def test_old_operators_take_texts_only(name, key):
    with pytest.raises(EvaluationError, match="lists of texts"):
        compile_operator(name)(key, ["a"])


def test_names_are_known_in_any_case():
    assert compile_operator("equals")("a", "a")
    assert len(OPERATORS) == 18


@pytest.mark.parametrize(
    ("name", "hint"), [("Equls", "did you mean Equals"), ("", "not an operator"), (None, "None")]
)
def test_unknown_names_are_refused(name, hint):
    with pytest.raises(CompileError, match=hint):
        compile_operator(name)


def nest(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize(
    "odd", [nest(5000), b"x", 10**400, float("nan"), {1: 2}, "\ud800", "[" * 3000]
)
def test_odd_values_do_no_harm(name, odd):
    for key, value in ((odd, odd), ("1h", odd), (odd, "1h"), ([odd], [odd]), (1, odd)):
        with suppress(EvaluationError, TooLargeError):
            assert compile_operator(name)(key, value) in (True, False)


@pytest.mark.parametrize(
    "text", ["1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3.4", "", "1.2.x"]
)
def test_what_is_no_version(text):
    with pytest.raises(ValueError, match=r"version|leading zeros"):
        parse_version(text)


def test_versions_are_ordered():
    texts = ["0.9.0", "1.0.0-1", "1.0.0-2", "1.0.0-a", "1.0.0-a.1", "1.0.0-b", "1.0.0", "1.0.1"]
    versions = [parse_version(text) for text in texts]
    assert versions == sorted(versions)
    assert parse_version("1.0.0+x") == parse_version("1.0.0+y")


@pytest.mark.parametrize("name", sorted(name for name in OPERATORS if name.endswith("In")))
@pytest.mark.parametrize("key", ["ALL", "A*", "", "1", "true", "?"])
@pytest.mark.parametrize(
    "value",
    [[], ["ALL"], ["all"], ["A*", "B"], ["", "ALL"], [1, True, None], [["ALL"], {"ALL": 1}, "ALL"]],
)
def test_a_list_of_the_request_is_asked_like_a_known_one(name, key, value):
    assert compile_operator(name)(key, value) is compile_operator_with(name, value)(key)
