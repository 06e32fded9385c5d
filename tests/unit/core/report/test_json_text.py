"""JSON text is what Go's encoder writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.core.errors import EvaluationError
from lictor.core.report.json_text import render_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ("x<y>&é\u2028", '"x\\u003cy\\u003e\\u0026é\\u2028"'),
        ('\x01\b\f\n"\\', '"\\u0001\\b\\f\\n\\"\\\\"'),
        ("\ud800", '"\\ufffd"'),
        (1.0, "1"),
        (-0.5, "-0.5"),
        (12345678901234567890, "12345678901234567000"),
        (9007199254740993, "9007199254740992"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-7, "1e-7"),
        (1.25e-10, "1.25e-10"),
        (0.000001, "0.000001"),
        (123456789.125, "123456789.125"),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_compact(value, text):
    assert render_json(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, {}], "b": []}, '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}'),
        ([[1]], "[\n  [\n    1\n  ]\n]"),
        ("x", '"x"'),
    ],
)
def test_indented(value, text):
    assert render_json(value, indent=True) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, b"x", {1, 2}])
def test_what_is_not_json(value):
    with pytest.raises(EvaluationError):
        render_json(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_reads_back(value):
    assert json.loads(render_json(value), parse_int=float) == value
    assert json.loads(render_json(value, indent=True), parse_int=float) == value
