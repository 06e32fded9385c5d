"""What changed between two documents, told as a JSON Patch; and laws that all patches obey."""

import copy
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lictor.core.errors import EvaluationError, LictorError, TooLargeError
from lictor.core.lang.patch import (
    compile_json_patch,
    compile_overlay,
    merge_strategic,
    parse_json_patch,
)
from lictor.core.lang.patch.pointer import diff, is_same

# The first call may import what it needs.
unhurried = settings(deadline=None)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "a", "b", "*", "(a)", "delete", "$patch"]),
)
KEYS = st.sampled_from(
    [
        *("a", "b", "name", "spec", "containers", "ports", "containerPort", "finalizers"),
        *("(a)", "(name)", "+(b)", "<(a)", "=(a)", "$patch", "a/b", "~", "0", "-", ""),
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
PODS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("Pod"), "spec": VALUES, "metadata": VALUES}
)
PLAIN_KEYS = st.sampled_from(["a", "b", "c", "x/y"])
PLAIN_MAPS = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.booleans()),
    lambda inner: st.dictionaries(PLAIN_KEYS, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(PLAIN_KEYS, PLAIN_MAPS, max_size=3)
PATHS = st.lists(st.sampled_from(["a", "spec", "0", "-1", "-", "7", "x~1y", ""]), max_size=4).map(
    lambda parts: "".join([f"/{part}" for part in parts])
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": PATHS,
            "from": PATHS,
            "value": VALUES,
        }
    ),
    max_size=3,
)


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [{"op": "replace", "path": "/a", "value": 2}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({}, {"a": None}, [{"op": "add", "path": "/a", "value": None}]),
        ({"a": True}, {"a": 1}, [{"op": "replace", "path": "/a", "value": 1}]),
        ({"x/y~": {"b": 1}}, {"x/y~": {}}, [{"op": "remove", "path": "/x~1y~0/b"}]),
        ({"l": [1, 2]}, {"l": [0, 1, 2]}, [{"op": "add", "path": "/l/0", "value": 0}]),
        ({"l": [1, 2]}, {"l": [1, 2, 3]}, [{"op": "add", "path": "/l/2", "value": 3}]),
        ({"l": [1, 2, 3]}, {"l": [1, 3]}, [{"op": "remove", "path": "/l/1"}]),
        (
            {"l": [1, 2, 3]},
            {"l": []},
            [{"op": "remove", "path": f"/l/{index}"} for index in (2, 1, 0)],
        ),
        (
            {"l": [{"n": 1, "v": 1}, {"n": 2}]},
            {"l": [{"n": 1, "v": 2}, {"n": 2}]},
            [{"op": "replace", "path": "/l/0/v", "value": 2}],
        ),
        ({"a": []}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
        ([], {}, [{"op": "replace", "path": "", "value": {}}]),
    ],
)
def test_diff(before, after, operations):
    assert diff(before, after) == operations


@pytest.mark.parametrize(("before", "after"), [({1: 2}, {}), ({}, {None: 1}), ({}, {True: 1})])
def test_refuse_keys_that_are_no_texts(before, after):
    with pytest.raises(EvaluationError, match="cannot be the key"):
        diff(before, after)


def test_refuse_deep_documents():
    left: list = []
    right: list = [1]
    for _ in range(100_000):
        left, right = [left], [right]
    with pytest.raises(TooLargeError, match="nested too deeply"):
        diff(left, right)


@unhurried
@given(VALUES.filter(lambda value: isinstance(value, (dict, list))), VALUES)
def test_applying_a_diff_gives_the_other_document(before, after):
    # A document is a map or a list; no operation makes it a scalar.
    after = {"value": after} if not isinstance(after, (dict, list)) else after
    patched = compile_json_patch(diff(before, after))(before)
    assert is_same(_mask(patched), _mask(after))


@unhurried
@given(VALUES)
def test_nothing_to_do_between_equals(value):
    masked = _mask(value)
    assert diff(masked, copy.deepcopy(masked)) == []


@unhurried
@given(DOCUMENTS, DOCUMENTS)
def test_merging_twice_is_merging_once(resource, patch):
    try:
        once = merge_strategic(resource, patch)
    except EvaluationError:
        return
    assert merge_strategic(once, patch) is once


@unhurried
@given(st.one_of(PODS, VALUES), VALUES)
def test_merge_raises_nothing_else(resource, patch):
    _leave_alone(merge_strategic, resource, patch)


@unhurried
@given(st.one_of(PODS, VALUES), VALUES)
def test_overlay_raises_nothing_else(resource, patch):
    _leave_alone(
        lambda given_resource, given: compile_overlay(given)(given_resource), resource, patch
    )


@unhurried
@given(VALUES, st.one_of(OPERATIONS, VALUES))
def test_json_patch_raises_nothing_else(resource, patch):
    _leave_alone(
        lambda given_resource, given: compile_json_patch(given)(given_resource), resource, patch
    )


@unhurried
@given(st.text(alphabet="[]{}:-,&*!|>'\"#% \nab0/op", max_size=30))
def test_parse_raises_nothing_else(text):
    _leave_alone(lambda _, given: parse_json_patch(given), None, text)


def _leave_alone(act, resource, patch):
    """Neither argument is changed, whatever comes of it, and only errors of our own are raised."""
    before = copy.deepcopy((resource, patch))
    with suppress(LictorError):
        act(resource, patch)
    assert is_same(_mask(before[0]), _mask(resource))
    assert is_same(_mask(before[1]), _mask(patch))


def _mask(value):
    """NaN is not equal to itself."""
    if isinstance(value, dict):
        return {key: _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return "NaN" if value != value else value  # noqa: PLR0124
