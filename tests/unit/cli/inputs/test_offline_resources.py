"""Resources from texts, and whether two of them are the same."""

import pytest

from lictor.cli.inputs.resources import find_documents, load_resources
from lictor.cli.test_results import describe_difference, same_resource
from lictor.core.errors import LoadError

POD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"", 0),
        (b"# only words\n", 0),
        (b"---\n---\n# nothing\n---\n", 0),
        (POD, 1),
        (b"---\n" + POD + b"---\n" + POD, 2),
        (POD + b"--- # again\n" + POD, 2),
        (POD + b"---\r\n" + POD, 2),
        (b'{"apiVersion": "v1", "kind": "Pod"}', 1),
    ],
)
def test_documents_are_found(text: bytes, count: int) -> None:
    assert len(find_documents(text)) == len(list(load_resources(text, "f"))) == count


def test_defaults_are_filled() -> None:
    text = b"apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\nspec: {x: [{nodeSelector: , z: }]}\n"
    (found,) = load_resources(text, "f")
    assert found["metadata"] == {"labels": {}, "namespace": "default"}
    assert found["spec"] == {"x": [{"nodeSelector": {}, "z": None}]}


def test_lists_are_taken_apart() -> None:
    text = b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- {apiVersion: v1, kind: Node}"
    assert [found["kind"] for found in load_resources(text, "f")] == ["Pod", "Node"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"just words", "f:1"),
        (POD + b"---\nkind: Pod\n", "f:5: .*apiVersion"),
        (POD + b"---\napiVersion: v1\n", "f:5: .*kind"),
        (POD + b"---\napiVersion: v1\nkind: [\n", "f:[567]:"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: 3\n", "metadata"),
        (b"[" * 5000, "f:"),
        (b"\xff\xfe\x00", "f:"),
    ],
)
def test_errors_name_the_line(text: bytes, where: str) -> None:
    with pytest.raises(LoadError, match=where):
        list(load_resources(text, "f"))


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1, "b": None, "c": {}, "d": []}, {"a": 1}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": ""}, {}, False),
        ({"metadata": {"labels": {"generate.kyverno.io/x": "y"}}}, {}, True),
        ({"metadata": {"labels": {"app.kubernetes.io/managed-by": "kyverno"}}}, {}, True),
        ({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}, {}, False),
    ],
)
def test_when_resources_are_the_same(actual: dict, expected: dict, *, same: bool) -> None:
    assert same_resource(actual, expected) is same


def test_differences_are_shown() -> None:
    text = describe_difference({"a": "found"}, {"a": "wanted"})
    assert "-a: wanted" in text
    assert "+a: found" in text
