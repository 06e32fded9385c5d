"""JSON Patch as the API server applies it."""

import pytest

from lictor.core.errors import EvaluationError
from lictor.core.lang.patch.json_patch import apply_json_patch

DOCUMENT = {"a": {"b": 1, "c/d": 2}, "list": ["x", "y"], "null": None}


def op(name, path, **more):
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([], DOCUMENT),
        ([op("add", "/a/e", value=3)], {**DOCUMENT, "a": {"b": 1, "c/d": 2, "e": 3}}),
        ([op("add", "/a/c~1d", value=3)], {**DOCUMENT, "a": {"b": 1, "c/d": 3}}),
        ([op("add", "/e")], {**DOCUMENT, "e": None}),
        ([op("add", "/list/-", value="z")], {**DOCUMENT, "list": ["x", "y", "z"]}),
        ([op("add", "/list/0", value="z")], {**DOCUMENT, "list": ["z", "x", "y"]}),
        ([op("add", "/list/2", value="z")], {**DOCUMENT, "list": ["x", "y", "z"]}),
        ([op("add", "/list/-1", value="z")], {**DOCUMENT, "list": ["x", "y", "z"]}),
        ([op("add", "", value={"k": 1})], {"k": 1}),
        ([op("replace", "/a/b", value=2)], {**DOCUMENT, "a": {"b": 2, "c/d": 2}}),
        ([op("replace", "/new", value=2)], {**DOCUMENT, "new": 2}),
        ([op("replace", "/list/-1", value="z")], {**DOCUMENT, "list": ["x", "z"]}),
        ([op("remove", "/a")], {"list": ["x", "y"], "null": None}),
        ([op("remove", "/list/0")], {**DOCUMENT, "list": ["y"]}),
        ([op("remove", "/null")], {"a": DOCUMENT["a"], "list": ["x", "y"]}),
        ([op("move", "/e", **{"from": "/a/b"})], {**DOCUMENT, "a": {"c/d": 2}, "e": 1}),
        ([op("copy", "/e", **{"from": "/a/b"})], {**DOCUMENT, "e": 1}),
        ([op("copy", "/e", **{"from": "/nowhere"})], {**DOCUMENT, "e": None}),
        ([op("test", "/a/b", value=1), op("remove", "/null")],
         {"a": DOCUMENT["a"], "list": ["x", "y"]}),
        ([op("remove", "/null"), op("test", "/a/b", value=2)], DOCUMENT),
        ([op("test", "/nowhere"), op("add", "/e", value=1)], {**DOCUMENT, "e": 1}),
        ([op("test", "/nowhere", value=1), op("add", "/e", value=1)], DOCUMENT),
    ],
)  # fmt: skip
def test_operations(operations, expected):
    before = {**DOCUMENT, "a": dict(DOCUMENT["a"]), "list": list(DOCUMENT["list"])}
    assert apply_json_patch(before, operations) == expected
    assert before == DOCUMENT


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (op("add", "/x/y", value=1), 'add operation does not apply: doc is missing path: "/x/y"'),
        (op("add", "/null/y", value=1), "doc is missing path"),
        (op("add", "/a/b/c", value=1), "doc is missing path"),
        (op("add", "/list/3", value=1), "Unable to access invalid index: 3"),
        (op("add", "/list/x", value=1), "Unable to access invalid index: x"),
        (op("replace", "/x/y", value=1), "replace operation does not apply"),
        (op("replace", "/list/2", value=1), "invalid index"),
        (op("remove", "/x"), "Unable to remove nonexistent key: x"),
        (op("remove", "/list/2"), "invalid index"),
        (op("remove", ""), "doc is missing path"),
        (op("move", "/e", **{"from": "/x"}), "Unable to remove nonexistent key: x"),
        (op("copy", "/e", **{"from": "/x/y"}), "copy operation does not apply"),
        (op("test", "/x/y", value=1), "test operation does not apply"),
        (op("bogus", "/a"), "Unexpected kind: bogus"),
        ({}, "Unexpected kind: "),
        ({"op": 1, "path": "/a"}, "'op' of an operation must be text"),
        ({"op": "add", "path": ["a"]}, "'path' of an operation must be text"),
        ("add", "an operation must be an object"),
    ],
)
def test_faults(operation, message):
    with pytest.raises(EvaluationError) as caught:
        apply_json_patch(DOCUMENT, [operation])
    assert message in str(caught.value)
