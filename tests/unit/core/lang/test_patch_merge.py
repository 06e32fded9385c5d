"""Strategic merge: maps, scalars, null, lists by key, and `$patch`."""

import copy

import pytest

from lictor.core.errors import EvaluationError
from lictor.core.lang.patch import merge_strategic


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def container(**fields):
    return pod(containers=[{"name": "a", **fields}])


A, B, C = {"name": "a"}, {"name": "b"}, {"name": "c"}
TCP, UDP = {"protocol": "TCP"}, {"protocol": "UDP"}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}, id="maps merge"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="scalars are replaced"),
        pytest.param({"a": 1}, {"a": None, "b": None}, {}, id="null removes"),
        pytest.param({"a": None, "b": 1}, {"b": 2}, {"a": None, "b": 2}, id="null that was there stays"),
        pytest.param({"a": None}, {"a": {"x": 1}}, {"a": {"x": 1}}, id="null gives way"),
        pytest.param({}, {"a": {"x": None, "b": {"y": None}}}, {"a": {"b": {}}}, id="no null in new maps"),
        pytest.param({}, {"a": [None, {"x": None}]}, {"a": [None, {"x": None}]}, id="null in new lists"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": [1]}, {"a": []}, {"a": []}, id="by empty lists too"),
        pytest.param({"a": "5"}, {"a": 10}, {"a": "10"}, id="a number in place of a text"),
        pytest.param({"a": "5"}, {"a": 1.0}, {"a": "1"}, id="a float in place of a text"),
        pytest.param({"a": "5"}, {"a": True}, {"a": "true"}, id="a boolean in place of a text"),
        pytest.param({"a": 5}, {"a": "10"}, {"a": "10"}, id="a text in place of a number"),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}, {"a": {"y": 2}}, id="replace a map"),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "delete", "y": 2}}, {}, id="delete a map"),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "merge", "y": 2}}, {"a": {"x": 1, "y": 2}}, id="merge a map"),
        pytest.param({}, {"a": {"$patch": "replace", "y": 2}, "b": {"$patch": "delete"}}, {"a": {"y": 2}}, id="directives in new maps"),
        pytest.param({}, {"$retainKeys": ["a"]}, {"$retainKeys": ["a"]}, id="other directives are none"),
        pytest.param({"kind": "C", "l": [A]}, {"l": [B]}, {"kind": "C", "l": [B]}, id="lists of unknown kinds"),
        pytest.param(pod(tolerations=[{"key": "a"}]), {"spec": {"tolerations": [{"key": "b"}]}}, pod(tolerations=[{"key": "b"}]), id="lists without merge key"),
        pytest.param(pod(containers=[A, B]), {"spec": {"containers": [{"name": "b", "x": 1}, C]}}, pod(containers=[{"name": "b", "x": 1}, C, A]), id="by name, the patch first"),
        pytest.param(pod(), {"spec": {"containers": [{"name": "a", "x": None}]}}, pod(containers=[A]), id="a new list"),
        pytest.param(pod(containers=[A, B]), {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, pod(containers=[B]), id="delete an element"),
        pytest.param(pod(containers=[A]), {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, pod(containers=[]), id="delete the last element"),
        pytest.param(pod(containers=[A]), {"spec": {"containers": [{"name": "z", "$patch": "delete"}]}}, pod(containers=[A]), id="delete what is not there"),
        pytest.param(pod(containers=[{"name": "a", "x": 1}]), {"spec": {"containers": [{"name": "a", "$patch": "replace", "y": 1}]}}, pod(containers=[{"name": "a", "y": 1}]), id="replace an element"),
        pytest.param(pod(containers=[A, B]), {"spec": {"containers": [{"$patch": "replace"}, C]}}, pod(containers=[C]), id="replace a list"),
        pytest.param(pod(containers=[A, B]), {"spec": {"containers": [{"$patch": "delete"}]}}, pod(), id="delete a list"),
        pytest.param(pod(containers=[A, B]), {"spec": {"containers": [{"$patch": "merge"}, C]}}, pod(containers=[C, A, B]), id="merge a list"),
        pytest.param(container(env=[A, {"name": "b", "value": "1"}]), {"spec": {"containers": [{"name": "a", "env": [{"name": "b", "value": "2"}]}]}}, container(env=[{"name": "b", "value": "2"}, A]), id="lists in elements"),
        pytest.param(container(env=[A, {"name": "a", "value": "2"}]), {"spec": {"containers": [{"name": "a", "env": [{"name": "a", "x": 1}]}]}}, container(env=[{"name": "a", "value": "2", "x": 1}]), id="of elements with one name the last counts"),
        pytest.param(pod(imagePullSecrets=[{}, A]), {"spec": {"imagePullSecrets": [B]}}, pod(imagePullSecrets=[B, A]), id="empty elements vanish"),
        pytest.param(pod(imagePullSecrets=[{"x": 1}, A]), {"spec": {"imagePullSecrets": [B]}}, pod(imagePullSecrets=[B, A, {"x": 1}]), id="elements without key stay"),
        pytest.param(pod(containers=[A]), {"spec": {"containers": [{"name": "a", "x": 1}, {"name": "a", "y": 2}]}}, pod(containers=[{"name": "a", "x": 1, "y": 2}]), id="two patches for one element"),
        pytest.param(container(ports=[{"containerPort": 80}, {"containerPort": 81}]), {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": "81", "name": "x"}]}]}}, container(ports=[{"containerPort": "81", "name": "x"}, {"containerPort": 80}]), id="ports without protocol"),
        pytest.param(container(ports=[{"containerPort": 80, **TCP}, {"containerPort": 80, **UDP}]), {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, **UDP, "name": "x"}, {"containerPort": 1, **TCP}]}]}}, container(ports=[{"containerPort": 1, **TCP}, {"containerPort": 80, **TCP}, {"containerPort": 80, **UDP, "name": "x"}]), id="ports with protocol keep their places"),
        pytest.param(container(ports=[{"containerPort": 80, **TCP}]), {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}]}}, container(ports=[{"containerPort": 80, **TCP, "name": "x"}]), id="a port that lacks its protocol in the patch"),
        pytest.param(container(ports=[{"containerPort": 80}]), {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, **TCP}]}]}}, container(ports=[{"containerPort": 80, **TCP}]), id="a port that lacks its protocol in the resource"),
        pytest.param(container(ports=[{"containerPort": 80, **TCP}, {"containerPort": 1, **TCP}]), {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, **TCP, "$patch": "delete"}]}]}}, container(ports=[{"containerPort": 1, **TCP}]), id="delete a port"),
        pytest.param({"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["b", "c"]}}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["b", "c", "a"]}}, id="lists of scalars"),
        pytest.param({"apiVersion": "x/v1", "kind": "C", "pod": pod(containers=[A])}, {"pod": {"spec": {"containers": [B]}}}, {"apiVersion": "x/v1", "kind": "C", "pod": pod(containers=[B, A])}, id="a known kind within an unknown one"),
        pytest.param({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"volumes": [A]}}}}, {"spec": {"template": {"spec": {"volumes": [B]}}}}, {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"volumes": [B, A]}}}}, id="templates"),
        pytest.param({"apiVersion": 1, "kind": ["x"], "a": 1}, {"a": 2}, {"apiVersion": 1, "kind": ["x"], "a": 2}, id="odd kinds"),
    ],
)  # fmt: skip
def test_merge(before, patch, after):
    given, given_patch = copy.deepcopy(before), copy.deepcopy(patch)
    assert merge_strategic(given, given_patch) == after
    assert (given, given_patch) == (before, patch)


@pytest.mark.parametrize(
    ("before", "patch", "words"),
    [
        ({"a": [1]}, {"a": {"b": 1}}, "expected SequenceNode but got MappingNode"),
        ({"a": {}}, {"a": [1]}, "expected MappingNode but got SequenceNode"),
        ({"a": "x"}, {"a": {"b": 1}}, "expected ScalarNode but got MappingNode"),
        ({"a": {}}, {"a": 5}, "expected MappingNode but got ScalarNode"),
        ({"a": {}}, {"a": {"$patch": "rename"}}, "unknown patch strategy 'rename'"),
        ({"a": {}}, {"a": {"$patch": ["delete"]}}, "unknown patch strategy"),
        ({"a": {}}, {"$patch": "delete"}, "cannot create or delete"),
        ({"a": {}}, [1], "expected MappingNode but got SequenceNode"),
        ([], {}, "expected MappingNode but got SequenceNode"),
        ({"a": "x"}, {"a": float("nan")}, "nan"),
        ({"a": "x"}, {"a": 10**5000}, "out of range"),
        (pod(containers=[A]), {"spec": {"containers": [{"x": 1}]}}, "merge key name"),
        (pod(containers=[A]), {"spec": {"containers": [None]}}, "merge key name"),
        (pod(containers=["x"]), {"spec": {"containers": [A]}}, "expected MappingNode"),
        (pod(containers=[A]), {"spec": {"containers": ["x"]}}, "expected MappingNode"),
        (
            container(ports=[TCP]),
            {"spec": {"containers": [{"name": "a", "ports": [UDP]}]}},
            "merge key",
        ),
    ],
)
def test_refuse(before, patch, words):
    with pytest.raises(EvaluationError, match=words):
        merge_strategic(before, patch)


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"spec": {"containers": [A]}},
        {"spec": {"x": [1, {"y": 2}], "z": "5"}},
        {"spec": {"z": 5}},
        {"metadata": None, "spec": {"nothing": None}},
    ],
)
def test_the_same_resource_where_nothing_changes(patch):
    resource = pod(containers=[A, B], x=[1, {"y": 2}], z="5")
    assert merge_strategic(resource, patch) is resource


def test_unchanged_parts_are_shared():
    resource = pod(containers=[A, B], x={"y": 1})
    merged = merge_strategic(resource, {"spec": {"containers": [{"name": "a", "z": 1}]}})
    assert merged["spec"]["x"] is resource["spec"]["x"]
    assert merged["spec"]["containers"][1] is B
