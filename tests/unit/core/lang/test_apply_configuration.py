"""Structured merge: what an apply configuration makes of an object, and what it may not touch."""

import pytest

from lictor.core.errors import EvaluationError, TooLargeError
from lictor.core.facts.schemas import find_form
from lictor.core.lang.patch.apply_configuration import apply_configuration

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"tier": "front"}, "creationTimestamp": None},
    "spec": {
        "containers": [
            {"name": "app", "image": "app:1", "ports": [{"containerPort": 80}]},
            {"name": "log", "image": "log:1"},
        ]
    },
}
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": {"b": 1}, "list": [1]}}


def names(merged):
    return [container["name"] for container in merged["spec"]["containers"]]


def of(*containers):
    return {"spec": {"containers": list(containers)}}


def test_maps_are_merged_and_unchanged_parts_are_shared():
    merged = apply_configuration(POD, {"metadata": {"labels": {"team": "red"}}})
    assert merged["metadata"]["labels"] == {"tier": "front", "team": "red"}
    assert merged["metadata"]["creationTimestamp"] is None
    assert merged["spec"] is POD["spec"]
    assert POD["metadata"]["labels"] == {"tier": "front"}


@pytest.mark.parametrize("configuration", [{}, {"metadata": {"labels": {"tier": "front"}}}])
def test_what_changes_nothing_gives_back_the_object(configuration):
    assert apply_configuration(POD, configuration) is POD


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["log"], ["app", "log"]),
        (["new"], ["app", "log", "new"]),
        (["new", "app"], ["new", "app", "log"]),
        (["new", "log"], ["app", "new", "log"]),
        (["log", "app"], ["log", "app"]),
        (["log", "new", "app"], ["log", "new", "app"]),
        (["app", "new", "log"], ["app", "new", "log"]),
    ],
)
def test_lists_with_keys_take_the_order_of_the_configuration(given, expected):
    merged = apply_configuration(POD, of(*({"name": name, "image": "x"} for name in given)))
    assert names(merged) == expected


def test_elements_are_merged_by_key():
    merged = apply_configuration(POD, of({"name": "app", "image": "app:2"}))
    assert merged["spec"]["containers"][0] == {
        "name": "app",
        "image": "app:2",
        "ports": [{"containerPort": 80}],
    }


def test_a_key_that_is_left_out_counts_as_its_default():
    port = {"containerPort": 80, "protocol": "TCP", "hostPort": 8080}
    merged = apply_configuration(POD, of({"name": "app", "ports": [port]}))
    assert merged["spec"]["containers"][0]["ports"] == [port]
    other = {"containerPort": 80, "protocol": "UDP"}
    merged = apply_configuration(POD, of({"name": "app", "ports": [other]}))
    assert merged["spec"]["containers"][0]["ports"] == [{"containerPort": 80}, other]


def test_sets_hold_each_value_once():
    given = {**POD, "metadata": {"name": "web", "finalizers": ["a", "b"]}}
    merged = apply_configuration(given, {"metadata": {"finalizers": ["b", "c"]}})
    assert merged["metadata"]["finalizers"] == ["a", "b", "c"]


def test_duplicates_in_the_object_are_kept_but_not_merged_with():
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B"}]
    pod = {**POD, "spec": {"containers": [{"name": "app", "env": env}]}}
    kept = apply_configuration(pod, {"metadata": {"labels": {"x": "y"}}})
    assert kept["spec"]["containers"][0]["env"] == env
    merged = apply_configuration(pod, of({"name": "app", "env": [{"name": "A", "value": "3"}]}))
    assert merged["spec"]["containers"][0]["env"] == [{"name": "A", "value": "3"}, {"name": "B"}]


def test_a_kind_that_is_not_known_merges_maps_and_replaces_lists():
    merged = apply_configuration(WIDGET, {"spec": {"a": {"c": 2}, "list": [2]}})
    assert merged["spec"] == {"a": {"b": 1, "c": 2}, "list": [2]}
    assert apply_configuration(WIDGET, {"spec": {"a": 1}})["spec"]["a"] == 1


def test_empty_maps_and_lists_are_set_but_take_nothing_away():
    merged = apply_configuration(POD, {"metadata": {"labels": {}, "annotations": {}}})
    assert merged["metadata"]["labels"] == {"tier": "front"}
    assert merged["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        (
            {"spec": {"nodeSelector": {"disk": "ssd"}}},
            "may not mutate atomic arrays, maps or structs: .spec.nodeSelector",
        ),
        (of({"name": "app", "args": ["-v"]}), "structs: .spec.containers[0].args"),
        ({"spec": {"tolerations": []}}, "structs: .spec.tolerations"),
        ({"spec": {"colour": "red"}}, "typed object: .spec.colour: field not declared in schema"),
        ({"spec": {"priority": "high"}}, ".spec.priority: expected numeric (int or float), got"),
        ({"spec": {"hostname": 1}}, ".spec.hostname: expected string, got number"),
        ({"spec": {"hostNetwork": "true"}}, ".spec.hostNetwork: expected boolean, got string"),
        ({"spec": {"hostname": None}}, ".spec.hostname: expected string, got null"),
        ({"spec": []}, ".spec: expected map, got list"),
        ({"spec": {"containers": {}}}, ".spec.containers: expected list, got map"),
        (of({"name": "a"}, {"name": "a"}), 'duplicate entries for key [name="a"]'),
        (of("app"), ".spec.containers: element 0: associative list with keys may not have non-map"),
        ({"spec": {"priority": "x", "hostname": 1}}, "errors:\n  .spec.priority: expected numeric"),
    ],
)
def test_what_does_not_fit_is_refused(configuration, message):
    with pytest.raises(EvaluationError) as caught:
        apply_configuration(POD, configuration)
    assert message in str(caught.value)


def test_an_object_that_does_not_fit_its_kind_is_refused():
    pod = {**POD, "spec": {**POD["spec"], "colour": "red"}}
    with pytest.raises(EvaluationError, match=r"original object to typed object: \.spec\.colour"):
        apply_configuration(pod, {"metadata": {"labels": {"x": "y"}}})


@pytest.mark.parametrize("kind", [None, 1, "", "Pod"])
@pytest.mark.parametrize("version", [None, [], "v1"])
def test_odd_objects_are_merged_or_refused(kind, version):
    odd = {"apiVersion": version, "kind": kind, "metadata": 1, "spec": float("nan")}
    try:
        assert apply_configuration(odd, {"spec": {"x": 1}})["spec"] == {"x": 1}
    except EvaluationError:
        assert (version, kind) == ("v1", "Pod")


def test_deep_objects_are_refused():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(TooLargeError, match="too deeply"):
        apply_configuration({"apiVersion": "x/v1", "kind": "Y", "a": deep}, {"a": deep})


def test_types_that_lead_back_to_themselves_are_linked():
    form = find_form("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert form is not None
    assert find_form("example.com/v1", "Widget") is None
