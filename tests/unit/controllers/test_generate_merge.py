"""What is put over an object that is there: what is wanted, and what others have added."""

import pytest

from lictor.controllers.generate.objects import merge_known


def fields(manager, **maps):
    owned = {f"f:{name}": {f"f:{key}": {} for key in keys} for name, keys in maps.items()}
    return {"manager": manager, "fieldsV1": {"f:metadata": owned}}


def known(*managers, **metadata):
    return {
        "kind": "ConfigMap",
        "metadata": {
            "name": "m",
            "uid": "u",
            "resourceVersion": "7",
            "managedFields": list(managers),
            **metadata,
        },
        "data": {"a": "old"},
    }


WANTED = {
    "kind": "ConfigMap",
    "metadata": {"name": "m", "labels": {"w": "1"}, "annotations": {"n": "1"}},
    "data": {"a": "new"},
}


@pytest.mark.parametrize(
    ("there", "labels", "annotations"),
    [
        pytest.param(known(), {"w": "1"}, {"n": "1"}, id="nothing-more"),
        pytest.param(
            known(labels={"w": "0", "theirs": "x"}),
            {"theirs": "x", "w": "1"},
            {"n": "1"},
            id="others-add",
        ),
        pytest.param(
            known(fields("lictor", labels=["old"]), labels={"old": "x", "theirs": "y"}),
            {"theirs": "y", "w": "1"},
            {"n": "1"},
            id="ours-that-is-no-more-wanted",
        ),
        pytest.param(
            known(
                fields("kube-controller-manager", annotations=["revision"]),
                annotations={"revision": "3"},
            ),
            {"w": "1"},
            {"revision": "3", "n": "1"},
            id="controllers-write-annotations",
        ),
    ],
)
def test_labels_and_annotations(there, labels, annotations):
    merged = merge_known(WANTED, there, "lictor")
    assert merged["metadata"]["labels"] == labels
    assert merged["metadata"]["annotations"] == annotations
    assert merged["data"] == {"a": "new"}
    assert merged["metadata"]["resourceVersion"] == "7"


def test_what_is_right_is_equal():
    right = merge_known(WANTED, known(), "lictor")
    assert merge_known(WANTED, right, "lictor") == right


def test_what_others_need_stays():
    there = {**known(finalizers=["f"], ownerReferences=[{"uid": "o"}]), "status": {"phase": "x"}}
    merged = merge_known(WANTED, there, "lictor")
    assert merged["metadata"]["finalizers"] == ["f"]
    assert merged["metadata"]["ownerReferences"] == [{"uid": "o"}]
    assert merged["status"] == {"phase": "x"}


def test_fields_that_are_no_longer_wanted_go():
    there = {**known(), "binaryData": {"b": "eA=="}}
    assert "binaryData" not in merge_known(WANTED, there, "lictor")
