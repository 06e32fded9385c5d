"""Whatever we emit as YAML reads back as the very same value."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lictor.core.errors import EvaluationError
from lictor.core.report.yaml_text import render_scalar, render_yaml


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [1, "x"]}, "a:\n- 1\n- x\nb: 1\n"),
        ({"a": {"b": {"c": []}}, "d": {}}, "a:\n  b:\n    c: []\nd: {}\n"),
        ([{"a": 1, "b": 2}, [1, [2]], {}], "- a: 1\n  b: 2\n-\n  - 1\n  -\n    - 2\n- {}\n"),
        ({"a": [{"b": ["c"]}]}, "a:\n- b:\n  - c\n"),
        ({"a": "one\ntwo\n"}, "a: |\n  one\n  two\n"),
        ({"a": ["one\ntwo"], "b": 1}, "a:\n- |-\n  one\n  two\nb: 1\n"),
        ({"a": "one\n\n\n", "b": 1}, "a: |+\n  one\n\n\nb: 1\n"),
        ({"a": None, "b": True, "c": 1.0, "d": 1e21}, "a: null\nb: true\nc: 1\nd: 1.0e+21\n"),
        ("text", "text\n"),
        ([], "[]\n"),
        (18446744073709551615, "18446744073709551615\n"),
    ],
)
def test_shapes(value, text):
    assert render_yaml(value) == text
    assert yaml.safe_load(text) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two words", "two words"),
        ("a/b.c-d_e", "a/b.c-d_e"),
        ("yes", '"yes"'),
        ("Off", '"Off"'),
        ("null", '"null"'),
        ("", '""'),
        ("12", '"12"'),
        ("1.5e3", '"1.5e3"'),
        ("0x1F", '"0x1F"'),
        ("2020-01-01", '"2020-01-01"'),
        ("a: b", "'a: b'"),
        ("a #b", "'a #b'"),
        ("a:", "'a:'"),
        ("it's: so", "'it''s: so'"),
        ("?*", "'?*'"),
        ("{{ x }}", "'{{ x }}'"),
        ("- w", "'- w'"),
        ("tab\there", '"tab\\there"'),
        ("\x07", '"\\u0007"'),
        ("\x7f\x85", '"\\x7f\\x85"'),
        (" lead", "' lead'"),
        ("<<", '"<<"'),
        ("+.INF", '"+.INF"'),
        ("-.inf", '"-.inf"'),
    ],
)
def test_scalars(text, shown):
    assert render_scalar(text) == shown
    assert yaml.safe_load(f"k: {shown}") == {"k": text}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


# The time of one example says nothing on a busy machine.
@settings(deadline=None)
@given(_JSON)
def test_everything_reads_back(value):
    assert yaml.safe_load(render_yaml(value)) == value


def test_too_deep_is_an_error_of_ours():
    value: list = []
    for _ in range(2000):
        value = [value]
    with pytest.raises(EvaluationError):
        render_yaml(value)
    with pytest.raises(EvaluationError):
        render_yaml({"a": b"bytes"})
