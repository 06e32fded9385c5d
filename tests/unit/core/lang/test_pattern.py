"""Which resources fit which patterns, and what is said about those that do not."""

import pytest

from lictor.core.errors import CompileError, LictorError
from lictor.core.lang.pattern import compile_pattern, resolve_references


def judge(pattern, resource):
    """Name the outcome: pass, skip, error, or the path of the failure."""
    mismatch = compile_pattern(pattern)(resource)
    if mismatch is None:
        return "pass"
    if mismatch.skip:
        return "skip"
    return "error" if mismatch.is_error else mismatch.path


CONTAINERS = {"containers": [{"(image)": "nginx*", "pull": "Always"}]}
PRIVILEGED = {"spec": {"containers": [{"=(security)": {"=(privileged)": "false"}}]}}

OUTCOMES = [
    # maps
    ({}, {"a": 1}, "pass"),
    ({"a": {}}, {"a": []}, "/a/"),
    ({"a": {"b": "x"}}, {}, "/a/"),
    ({"a": {"b": "x"}}, {"a": {"b": "y"}}, "/a/b/"),
    ({"a": {"b": "*"}}, {"a": {}}, "/a/"),
    ({"b": 1, "a": 1}, {}, "/a/"),
    # lists
    ({"l": []}, {"l": []}, "/l/"),
    ({"l": ["a*"]}, {"l": "a"}, "/l/"),
    ({"l": ["a*", "never looked at"]}, {"l": ["ab", "ac"]}, "pass"),
    ({"l": ["a*"]}, {"l": ["ab", "b"]}, "/l/"),
    ({"l": [{"n": "?*"}]}, {"l": [{"n": "x"}, {"n": ""}]}, "/l/1/n/"),
    ({"l": [{"n": "?*"}]}, {"l": []}, "pass"),
    ({"l": [{"n": "?*"}]}, {"l": ["x"]}, "/l/0/"),
    ({"l": [["a"], ["b"]]}, {"l": [["a"], ["b"], ["c"]]}, "pass"),
    ({"l": [["a"], ["b"]]}, {"l": [["a"], ["x"]]}, "/l/1/"),
    ({"l": [["a"], ["b"]]}, {"l": [["a"]]}, "error"),
    # condition anchors
    ({"(a)": 1, "b": 2}, {"a": 1, "b": 2}, "pass"),
    ({"(a)": 1, "b": 2}, {"a": 1, "b": 3}, "/b/"),
    ({"(a)": 1, "b": 2}, {"a": 2, "b": 3}, "skip"),
    ({"(a)": 1, "b": 2}, {"b": 3}, "skip"),
    ({"(a)": 1, "(b)": 2, "c": 3}, {"a": 1, "b": 0}, "skip"),
    ({"(a)": {"b": {"X(c)": "null"}}, "d": 1}, {"a": {"b": {"c": 1}}}, "skip"),
    (CONTAINERS, {"containers": [{"image": "nginx", "pull": "Never"}]}, "/containers/0/pull/"),
    (CONTAINERS, {"containers": [{"image": "redis", "pull": "Never"}]}, "skip"),
    (
        CONTAINERS,
        {"containers": [{"image": "redis"}, {"image": "nginx", "pull": "Always"}]},
        "pass",
    ),
    # maps of one key, inside each other
    (PRIVILEGED, {"spec": {"containers": []}}, "pass"),
    (PRIVILEGED, {"spec": {"containers": [{}, {"security": {}}]}}, "pass"),
    (
        PRIVILEGED,
        {"spec": {"containers": [{"security": {"privileged": False}}, {"security": None}]}},
        "/spec/containers/1/security/",
    ),
    (
        PRIVILEGED,
        {"spec": {"containers": [{}, {"security": {"privileged": True}}]}},
        "/spec/containers/1/security/privileged/",
    ),
    (PRIVILEGED, {"spec": {"containers": [{}, "x"]}}, "/spec/containers/1/"),
    (PRIVILEGED, {"spec": {"containers": {}}}, "/spec/containers/"),
    (PRIVILEGED, {"spec": None}, "/spec/"),
    ({"a": {"=(b)": {"c": "x"}}}, {"a": {}}, "pass"),
    ({"a": {"=(b)": {"c": "x"}}}, {"a": {"b": {}}}, "/a/b/c/"),
    ({"a": {"=(b)": {"c": "x"}}}, {"a": {"b": {"c": ["x", "x"]}}}, "pass"),
    ({"a": {"=(b)": {"c": "x"}}}, {"a": {"b": {"c": ["x", "y"]}}}, "/a/b/c/"),
    ({"=(a)": {"b": {"(c)": 1, "d": 2}}}, {"a": {"b": {"c": 3}}}, "skip"),
    ({"=(a)": {"b": {"(c)": 1, "d": 2}}}, {"a": {"b": {"c": 1}}}, "/a/b/d/"),
    # an anchored key that is nowhere makes a failure elsewhere an error
    ({"l": [{"(a)": 1}, {}], "m": 2}, {"l": [{"b": 1}], "m": 3}, "skip"),
    (
        {"=(l)": [{"=(k)": [{"(a)": 1}], "=(z)": 1}], "m": 2},
        {"l": [{"k": [{}], "z": 1}], "m": 3},
        "error",
    ),
    ({"^(a)": [{"b": 1}], "m": 2}, {"m": 3}, "error"),
    # global anchors
    ({"s": {"<(a)": 1}, "b": 2}, {"s": {"a": 9}, "b": 3}, "skip"),
    ({"s": {"<(a)": 1}, "b": 2}, {"s": {"a": 1}, "b": 3}, "/b/"),
    ({"s": {"<(a)": 1}, "b": 2}, {"s": {}, "b": 2}, "pass"),
    # negation anchors
    ({"X(a)": "null"}, {}, "pass"),
    ({"X(a)": "null"}, {"a": None}, "/a/"),
    ({"l": [{"X(a)": "null"}]}, {"l": [{}, {"a": 1}]}, "/l/1/a/"),
    ({"(a)": 1, "X(b)": "null"}, {"a": 2, "b": 1}, "skip"),
    # equality anchors
    ({"=(a)": {"b": 1}}, {}, "pass"),
    ({"=(a)": {"b": 1}}, {"a": {"b": 2}}, "/a/b/"),
    ({"=(a)": {"b": 1}}, {"a": None}, "/a/"),
    ({"=(l)": [{"(a)": 1, "b": 1}]}, {"l": [{"a": 2}]}, "skip"),
    ({"=(l)": [{"(a)": 1, "b": 1}], "=(c)": 1}, {"l": [{"a": 2}], "c": 1}, "pass"),
    ({"=(l)": [{"(a)": 1, "b": 1}], "=(c)": 1}, {"l": [{"a": 2}], "c": 2}, "/c/"),
    # existence anchors
    ({"^(l)": [{"a": 1}]}, {"l": [{"a": 2}, {"a": 1}]}, "pass"),
    ({"^(l)": [{"a": 1}]}, {"l": [{"a": 2}]}, "/l/"),
    ({"^(l)": [{"a": 1}]}, {"l": []}, "/l/"),
    ({"^(l)": [{"a": 1}, {"a": 2}]}, {"l": [{"a": 2}, {"a": 1}]}, "pass"),
    ({"^(l)": [{"a": 1}]}, {}, "pass"),
    ({"^(l)": [{"a": 1}]}, {"l": {}}, "/l/"),
    ({"^(l)": "x"}, {"l": ["x"]}, "/l/"),
    ({"^(l)": ["x"]}, {"l": ["x"]}, "/l/"),
    # an addition means nothing to a check
    ({"+(a)": 1}, {"a": 1}, "/+(a)/"),
    # maps with anchors inside are looked at first
    ({"a": 1, "z": {"=(y)": 1}}, {"a": 2, "z": {"y": 2}}, "/z/y/"),
    # wildcards in the keys of labels and annotations
    ({"metadata": {"labels": {"app.*": "?*"}}}, {"metadata": {"labels": {"app.io": "x"}}}, "pass"),
    (
        {"metadata": {"labels": {"app.*": "?*"}}},
        {"metadata": {"labels": {"b": "x"}}},
        "/metadata/labels/app.*/",
    ),
    (
        {"metadata": {"labels": {"a*": "y"}}},
        {"metadata": {"labels": {"ab": "x"}}},
        "/metadata/labels/ab/",
    ),
    ({"metadata": {"labels": {"a*": "y"}}}, {"metadata": {}}, "/metadata/labels/"),
    (
        {"metadata": {"=(labels)": {"X(a*)": "null"}}},
        {"metadata": {"labels": {"ab": "x"}}},
        "/metadata/labels/ab/",
    ),
    (
        {"metadata": {"annotations": {"(a*)": "x", "b": "y"}}},
        {"metadata": {"annotations": {"c": "d"}}},
        "skip",
    ),
    ({"x": {"labels": {"a*": "?*"}}}, {"x": {"labels": {"ab": "c"}}}, "/x/labels/a*/"),
    # ... where values that are no texts are lost
    ({"metadata": {"labels": {"a": True, "b": "x"}}}, {"metadata": {"labels": {"b": "x"}}}, "pass"),
]


@pytest.mark.parametrize(("pattern", "resource", "outcome"), OUTCOMES)
def test_outcome(pattern, resource, outcome):
    assert judge(pattern, resource) == outcome


@pytest.mark.parametrize(
    ("pattern", "resource", "reason"),
    [
        ({"a": "x"}, {"a": [1, None]}, "resource value '[1 <nil>]' does not match 'x' at path /a/"),
        ({"a": "*"}, {}, "//a not found"),
        ({"a": {"b": 1}}, {"a": "x"}, "pattern and resource have different structures. Path: /a/. Expected map[string]interface {}, found string"),
        ({"a": ["x"]}, {}, "validation rule failed at path /a/, resource does not satisfy the expected overlay pattern"),
        ({"X(a)": ""}, {"a": 1}, "negation anchor matched in resource: /a/ is not allowed"),
        ({"^(a)": [{"b": 1}]}, {"a": []}, "existence anchor validation failed at path /a/"),
        ({"(a)": "x"}, {}, "conditional anchor mismatch: conditional anchor key doesn't exist in the resource"),
        ({"l": [{"(a)": "x"}]}, {"l": [{"a": "y"}, {}]}, "conditional anchor mismatch: resource value 'y' does not match 'x' at path /l/0/a/; conditional anchor mismatch: conditional anchor key doesn't exist in the resource"),
        ({"s": {"<(a)": "x"}}, {"s": {"a": "y"}}, "global anchor mismatch: resource value 'y' does not match 'x' at path /s/a/"),
    ],
)  # fmt: skip
def test_reason(pattern, resource, reason):
    mismatch = compile_pattern(pattern)(resource)
    assert mismatch is not None
    assert mismatch.reason == reason


def test_a_resource_cannot_excuse_itself_by_its_text():
    mismatch = compile_pattern({"a": "x"})({"a": "conditional anchor mismatch"})
    assert mismatch is not None
    assert not mismatch.skip


def test_a_mismatch_tells_what_was_expected_and_found():
    mismatch = compile_pattern({"l": [{"a": ">3"}]})({"l": [{"a": 2}]})
    assert mismatch is not None
    assert (mismatch.expected, mismatch.found) == (">3", 2)


def test_a_compiled_pattern_keeps_nothing_from_one_resource_to_the_next():
    fit = compile_pattern({"metadata": {"labels": {"a*": "x"}}, "l": [{"(b)": 1, "c": 1}]})
    failing = {"metadata": {"labels": {"ab": "y"}}, "l": []}
    first, second = fit(failing), fit(failing)
    assert (first.path, first.reason, first.found) == (second.path, second.reason, second.found)
    assert fit({"metadata": {"labels": {"ac": "x"}}, "l": [{"b": 1, "c": 1}]}) is None


@pytest.mark.parametrize(
    ("pattern", "resolved"),
    [
        ({"a": "$(./../b)", "b": "x"}, "x"),
        ({"a": "$(/b)-y", "b": "x"}, "x-y"),
        ({"a": "y-$(/b)", "b": "x"}, "y-x"),
        ({"a": "$(<=./../b)", "b": "1Gi"}, "<=1Gi"),
        ({"a": "$(<./../b)", "b": 3}, "<3"),
        ({"a": "$(/=(c)/d)", "b": 3}, None),
        ({"a": "$(/c/d)", "=(c)": {"(d)": "x"}}, "x"),
        ({"a": "$(./../b)", "b": 3}, None),
        ({"a": "$(./../nowhere)"}, None),
        ({"a": r"\$(./../b)", "b": "x"}, "$(./../b)"),
        ({"a": "$(open", "b": "x"}, "$(open"),
        ({"a": "$(open" * 10_000}, "$(open" * 10_000),
    ],
)
def test_references(pattern, resolved):
    if resolved is None:
        with pytest.raises(CompileError):
            resolve_references(pattern)
    else:
        assert resolve_references(pattern)["a"] == resolved


def nest(depth, leaf="x"):
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


@pytest.mark.parametrize(
    "pattern", [nest(5000), {1: 2}, {"a": b"x"}, {"X(a)": nest(5000)}, [{None: 1}]]
)
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(CompileError):
        compile_pattern(pattern)
    with pytest.raises(CompileError):
        compile_pattern(pattern, references=False)


@pytest.mark.parametrize("value", [nest(5000), b"x", 10**400, float("nan"), {1: 2}, "\ud800", (1,)])
@pytest.mark.parametrize("pattern", ["?*", ">5", "1h-2h", 5, None, {"b": 1}, [{"b": 1}], ["x"]])
def test_odd_values_do_no_harm(pattern, value):
    for resource in ({"a": value}, {"a": [value]}, {"a": {"b": value}}, value):
        mismatch = compile_pattern({"a": pattern})(resource)
        assert mismatch is None or mismatch.reason


def test_a_pattern_of_the_greatest_depth_works():
    assert compile_pattern(nest(100))(nest(100)) is None
    with pytest.raises(LictorError):
        compile_pattern(nest(101))
