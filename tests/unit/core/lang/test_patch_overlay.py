"""Patches with anchors: when they apply, to which elements, and what is left of them."""

import copy

import pytest

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.lang.patch import ConditionNotMet, compile_overlay


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def containers(*elements):
    return pod(containers=list(elements))


LATEST = {"name": "a", "image": "web:latest"}
FIXED = {"name": "b", "image": "web:v1"}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param(pod(), {"spec": {"x": 1}}, pod(x=1), id="no anchors"),
        pytest.param(pod(x=1), {"spec": {"+(x)": 2, "+(y)": 2}}, pod(x=1, y=2), id="add"),
        pytest.param(pod(), {"spec": {"+(m)": {"a": 1, "+(b)": 2}}}, pod(m={"a": 1, "b": 2}), id="add a map"),
        pytest.param(pod(m={}), {"spec": {"+(m)": {"a": 1}}}, pod(m={}), id="a map that is there"),
        pytest.param(pod(m=None), {"spec": {"+(m)": 1}}, pod(m=None), id="null is there"),
        pytest.param(pod(m={"a": 1}), {"spec": {"m": {"+(a)": 2, "+(b)": 2}}}, pod(m={"a": 1, "b": 2}), id="add below"),
        pytest.param(pod(m=5), {"spec": {"+(m)": {"a": 1}}}, pod(m=5), id="add to a scalar"),
        pytest.param(pod(x="abc"), {"spec": {"(x)": "a*", "y": 1}}, pod(x="abc", y=1), id="condition with wildcard"),
        pytest.param(pod(x=5), {"spec": {"(x)": ">3", "y": 1}}, pod(x=5, y=1), id="condition with operator"),
        pytest.param(pod(x=True), {"spec": {"(x)": "true", "y": 1}}, pod(x=True, y=1), id="boolean as text"),
        pytest.param(pod(x="true"), {"spec": {"(x)": True, "y": 1}}, pod(x="true", y=1), id="text as boolean"),
        pytest.param(pod(x=None), {"spec": {"(x)": None, "y": 1}}, pod(x=None, y=1), id="null as null"),
        pytest.param(pod(m={"x": "abc"}), {"spec": {"(m)": {"x": "a*"}, "y": 1}}, pod(m={"x": "abc"}, y=1), id="condition on a map"),
        pytest.param(pod(m={}), {"spec": {"(m)": {}, "y": 1}}, pod(m={}, y=1), id="condition on an empty map"),
        pytest.param(pod(l=[{"a": 1, "b": 2}]), {"spec": {"(l)": [{"a": 1}], "y": 1}}, pod(l=[{"a": 1, "b": 2}], y=1), id="condition on a list"),
        pytest.param(pod(m={"a": 1}), {"spec": {"(m)": {"+(a)": 2, "+(b)": 2}}}, pod(m={"a": 1, "b": 2}), id="complete what is there"),
        pytest.param(pod(), {"(kind)": "Pod", "metadata": {"x": "y"}}, {**pod(), "metadata": {"name": "p", "x": "y"}}, id="condition at the root"),
        pytest.param(pod(x="abc"), {"(spec)": {"x": "a*"}, "z": 1}, {**pod(x="abc"), "z": 1}, id="condition on a map at the root"),
        pytest.param(pod(x=1), {"spec": {" (x) ": 1, "y": 1}}, pod(x=1, y=1), id="spaces around an anchor"),
        pytest.param(pod(x=1), {"spec": {"(x)": 1, "x": 2}}, pod(x=2), id="condition on what is changed"),
        pytest.param(containers(LATEST, FIXED), {"spec": {"containers": [{"(image)": "*:latest", "x": 1}]}}, containers({**LATEST, "x": 1}, FIXED), id="the element that fits"),
        pytest.param(containers(FIXED, LATEST), {"spec": {"containers": [{"(image)": "*:latest", "x": 1}]}}, containers({**LATEST, "x": 1}, FIXED), id="comes first then"),
        pytest.param(containers(FIXED, LATEST), {"spec": {"containers": [{"(name)": "*", "x": 1}]}}, containers({**FIXED, "x": 1}, {**LATEST, "x": 1}), id="every element"),
        pytest.param(containers(FIXED), {"spec": {"containers": [{"(name)": "z", "x": 1}]}}, containers(FIXED), id="no element"),
        pytest.param(pod(), {"spec": {"containers": [{"(name)": "*", "x": 1}]}}, pod(), id="no list"),
        pytest.param(pod(containers=None), {"spec": {"containers": [{"(name)": "*", "x": 1}]}}, pod(containers=None), id="null for a list"),
        pytest.param(containers({"image": "x"}), {"spec": {"containers": [{"(image)": "*", "x": 1}]}}, containers({"image": "x"}), id="element without name"),
        pytest.param(containers("x"), {"spec": {"containers": [{"(image)": "*", "x": 1}]}}, containers("x"), id="element that is no map"),
        pytest.param(containers(FIXED), {"spec": {"containers": [{"(name)": "*"}]}}, containers(FIXED), id="mere conditions"),
        pytest.param(containers(FIXED), {"spec": {"containers": [{"(name)": "*", "name": "z", "x": 1}]}}, containers({**FIXED, "x": 1}), id="the name stays"),
        pytest.param(containers(FIXED), {"spec": {"containers": [{"name": "z"}, {"(name)": "*", "x": 1}]}}, containers({"name": "z"}, {**FIXED, "x": 1}), id="with and without anchors"),
        pytest.param(containers({**LATEST, "x": 1}, FIXED), {"spec": {"containers": [{"(name)": "*", "+(x)": 2}]}}, containers({**FIXED, "x": 2}, {**LATEST, "x": 1}), id="each element by itself: the first has it"),
        pytest.param(containers(LATEST, {**FIXED, "x": 1}), {"spec": {"containers": [{"(name)": "*", "+(x)": 2}]}}, containers({**LATEST, "x": 2}, {**FIXED, "x": 1}), id="each element by itself: the second has it"),
        pytest.param(containers(LATEST, FIXED), {"spec": {"containers": [{"(image)": "*:latest", "x": 1}, {"(image)": "*:v1", "x": 2}]}}, containers({**LATEST, "x": 1}, {**FIXED, "x": 2}), id="two elements with conditions"),
        pytest.param(containers(LATEST), {"spec": {"containers": [{"(image)": "*:latest", "x": 1}, {"(name)": "a", "y": 2}]}}, containers({**LATEST, "x": 1, "y": 2}), id="two that fit one element"),
        pytest.param(containers({**FIXED, "env": [{"name": "A"}, {"name": "B"}]}), {"spec": {"containers": [{"(name)": "*", "env": [{"(name)": "B", "value": "1"}]}]}}, containers({**FIXED, "env": [{"name": "B", "value": "1"}, {"name": "A"}]}), id="lists in lists"),
        pytest.param(containers({**FIXED, "m": {"a": 1}}, LATEST), {"spec": {"containers": [{"(name)": "*", "m": {"(a)": 1, "b": 2}}]}}, containers({**FIXED, "m": {"a": 1, "b": 2}}, LATEST), id="a condition below decides about the element"),
        pytest.param(containers(LATEST, FIXED), {"spec": {"containers": [{"<(image)": "*:v1"}], "x": 1}}, {**containers(LATEST, FIXED), "spec": {"containers": [LATEST, FIXED], "x": 1}}, id="one element opens the gate"),
        pytest.param(pod(containers=[]), {"spec": {"containers": [{"<(image)": "*"}], "x": 1}}, pod(containers=[], x=1), id="no element closes the gate"),
        pytest.param(pod(x=1), {"spec": {"<(x)": 1}, "metadata": {"y": 1}}, {**pod(x=1), "metadata": {"name": "p", "y": 1}}, id="gate in a map"),
        pytest.param({"kind": "C", "l": [{"name": "a", "x": 1, "y": 1}, {"name": "b"}]}, {"l": [{"(x)": 1, "z": 1}]}, {"kind": "C", "l": [{"name": "a", "z": 1}]}, id="lists of unknown kinds are replaced"),
        pytest.param(pod(), {"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "m": {}}}, pod(volumes=[{"name": "v"}]), id="empty maps vanish"),
        pytest.param(pod(l=[1]), {"spec": {"l": []}}, pod(l=[]), id="empty lists do not"),
        pytest.param(pod(), {"spec": {"l": [{}]}}, pod(), id="lists that become empty do"),
        pytest.param(pod(args=[]), {"spec": {"args": ["(a)", "b"]}}, pod(args=["(a)", "b"]), id="values are no anchors"),
        pytest.param(pod(), {"spec": {"=(x)": 1}}, pod(**{"=(x)": 1}), id="other anchors are keys"),
        pytest.param(pod(x=1), {"spec": {"x": None}}, pod(), id="null removes"),
        pytest.param(pod(m={"a": 1}), {"spec": {"m": {"$patch": "delete"}}}, pod(), id="directives"),
    ],
)  # fmt: skip
def test_overlay(before, patch, after):
    given, given_patch = copy.deepcopy(before), copy.deepcopy(patch)
    assert compile_overlay(given_patch)(given) == after
    assert (given, given_patch) == (before, patch)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"(kind)": "Service", "x": 1}, "^condition failed: resource value 'Pod' does not match"),
        ({"spec": {"(z)": "*", "x": 1}}, '^condition failed: could not found "z" key'),
        ({"spec": {"(z)": None, "x": 1}}, '^condition failed: could not found "z" key'),
        ({"spec": {"(m)": {"a": 2}, "x": 1}}, "^condition failed: .*does not match"),
        ({"spec": {"(z)": {"+(a)": 1}}}, '^condition failed: could not found "z" key'),
        ({"spec": {"<(z)": "*", "x": 1}}, '^global condition failed: could not found "z" key'),
        ({"spec": {"<(replicas)": ">5", "(z)": 1}}, "^global condition failed: .*'2'"),
        ({"spec": {"+(z)": {"(a)": 1, "b": 2}}}, '^condition failed: could not found "a" key'),
        ({"spec": {"containers": [{"<(image)": "y"}], "x": 1}}, "^global condition failed"),
        ({"spec": {"containers": [{"m": {"<(q)": "y"}}], "x": 1}}, "^global condition failed"),
        ({"spec": {"others": [{"<(image)": "y"}], "x": 1}}, "^global condition failed"),
        ({"spec": {"m": {"b": {"(c)": 1}}}}, '^condition failed: could not found "c" key'),
    ],
)
def test_conditions_that_are_not_met(patch, words):
    resource = pod(containers=[LATEST, FIXED], m={"a": 1}, replicas=2)
    with pytest.raises(ConditionNotMet, match=words):
        compile_overlay(patch)(resource)


@pytest.mark.parametrize("patch", [None, [], "text", 5, True])
def test_refuse_to_compile(patch):
    with pytest.raises(CompileError, match="expected MappingNode but got"):
        compile_overlay(patch)


def test_refuse_deep_patches():
    patch: dict = {}
    for _ in range(100_000):
        patch = {"a": patch}
    with pytest.raises(CompileError, match="nested too deeply"):
        compile_overlay(patch)


@pytest.mark.parametrize("found", [{"x": 1}, "text", 5])
def test_refuse_what_is_no_list(found):
    with pytest.raises(EvaluationError, match="expected SequenceNode"):
        compile_overlay({"spec": {"containers": [{"(name)": "*", "x": 1}]}})(pod(containers=found))


@pytest.mark.parametrize("patch", [{}, {"spec": {}}, {"spec": {"+(x)": 1}}, {"(kind)": "Pod"}])
def test_the_same_resource_where_nothing_changes(patch):
    resource = pod(x=5)
    assert compile_overlay(patch)(resource) is resource
