"""Strategic merge patches as the API server takes them, with their directives."""

import pytest

from lictor.addons.apiserver.patches import merge_strategic
from lictor.core.errors import EvaluationError
from lictor.core.raw import Json, JsonObject


def pod(**spec: Json) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def named(*names: str) -> list[JsonObject]:
    return [{"name": name} for name in names]


CASES: list[tuple[str, JsonObject, JsonObject, JsonObject]] = [
    # id, spec, patch of the spec, spec afterwards
    ("maps are merged", {"nodeSelector": {"a": "1", "b": "2"}}, {"nodeSelector": {"b": "3"}},
     {"nodeSelector": {"a": "1", "b": "3"}}),
    ("null removes", {"nodeName": "x", "hostname": "y"}, {"nodeName": None, "other": None}, {"hostname": "y"}),
    ("null in new maps is left out", {}, {"affinity": {"a": None, "b": {"c": 1, "d": None}}},
     {"affinity": {"b": {"c": 1}}}),
    ("lists are merged by key", {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
     {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]},
     {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}),
    ("deeper lists too", {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]},
     {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
     {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]}),
    ("by one key only", {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
     {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]},
     {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}),
    ("other lists are replaced", {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]},
     {"tolerations": [{"key": "b"}]}),
    ("delete by key", {"containers": named("a", "b")}, {"containers": [{"name": "a", "$patch": "delete"}]},
     {"containers": named("b")}),
    ("replace a list", {"containers": named("a", "b")}, {"containers": [{"$patch": "replace"}, {"name": "c"}]},
     {"containers": named("c")}),
    ("replace a map", {"nodeSelector": {"a": "1"}}, {"nodeSelector": {"$patch": "replace", "b": "2"}},
     {"nodeSelector": {"b": "2"}}),
    ("delete a map", {"nodeSelector": {"a": "1"}}, {"nodeSelector": {"$patch": "delete"}}, {"nodeSelector": {}}),
    ("order of the patch", {"containers": named("a", "b", "c")},
     {"$setElementOrder/containers": named("c", "a"), "containers": [{"name": "c", "image": "x"}]},
     {"containers": [{"name": "b"}, {"name": "c", "image": "x"}, {"name": "a"}]}),
    ("order without a patch", {"containers": named("a", "b", "c")}, {"$setElementOrder/containers": named("c", "b", "a")},
     {"containers": named("c", "b", "a")}),
    ("new ones by the order", {"containers": named("a", "b")},
     {"$setElementOrder/containers": named("a", "new", "b"), "containers": named("new")},
     {"containers": named("a", "new", "b")}),
    ("retain keys", {"volumes": [{"name": "v", "emptyDir": {}}]},
     {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]},
     {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}),
    ("directives in new places", {}, {"containers": [{"name": "a", "$patch": "delete"}, {"name": "b", "$retainKeys": ["name"]}]},
     {"containers": named("b")}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "patch", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_specs(spec: JsonObject, patch: JsonObject, expected: JsonObject) -> None:
    before = pod(**spec)
    copy = repr(before)
    assert merge_strategic(before, {"spec": patch})["spec"] == expected
    # What is kept may be shown to others meanwhile.
    assert repr(before) == copy


def test_lists_of_words() -> None:
    before = {"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": ["a", "b"]}}

    def after(patch: JsonObject) -> Json:
        return merge_strategic(before, {"metadata": patch})["metadata"]["finalizers"]

    assert after({"finalizers": ["c", "a"]}) == ["c", "a", "b"]
    assert after({"$deleteFromPrimitiveList/finalizers": ["a"]}) == ["b"]
    assert after({"$setElementOrder/finalizers": ["b", "a"]}) == ["b", "a"]


FAULTS: list[tuple[JsonObject, str]] = [
    ({"containers": [{"image": "x"}]}, "does not contain declared merge key: name"),
    ({"containers": ["x"]}, "expected a map"),
    ({"nodeSelector": {"$patch": "mend"}}, "unknown patch type: mend"),
    ({"containers": [{"name": "a", "$patch": "mend"}]}, "unknown patch type: mend"),
    ({"containers": [{"$patch": "merge"}]}, "cannot yet be specified"),
    ({"$setElementOrder/containers": 3}, "invalid patch format of setElementOrder list"),
    (
        {"$setElementOrder/containers": named("a", "b"), "containers": named("b", "a")},
        "order in patch list",
    ),
    ({"$deleteFromPrimitiveList/x": 3}, "invalid patch format of primitive list"),
    ({"$retainKeys": 3}, "invalid patch format of retainKeys"),
    ({"$retainKeys": ["a"], "b": 1}, "invalid patch format of retainKeys"),
]


@pytest.mark.parametrize(("patch", "words"), FAULTS)
def test_faults(patch: JsonObject, words: str) -> None:
    with pytest.raises(EvaluationError, match=words):
        merge_strategic(pod(containers=named("a"), nodeSelector={"a": "b"}), {"spec": patch})
