"""JSON Patch: each operation on small documents, and every way in which it can go wrong."""

import copy

import pytest

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.lang.patch import compile_json_patch, parse_json_patch

POD = {
    "metadata": {"labels": {"app": "web"}, "gone": None},
    "spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "replicas": 2},
}


def add(path, value):
    return {"op": "add", "path": path, "value": value}


def remove(path):
    return {"op": "remove", "path": path}


def replace(path, value):
    return {"op": "replace", "path": path, "value": value}


@pytest.mark.parametrize(
    ("operations", "before", "after"),
    [
        pytest.param([add("/a", 1)], {}, {"a": 1}, id="add a key"),
        pytest.param([add("/a", 1)], {"a": [0]}, {"a": 1}, id="add replaces a key"),
        pytest.param([add("/a", None)], {}, {"a": None}, id="add null"),
        pytest.param([add("/a~1b", 1)], {}, {"a/b": 1}, id="escaped slash"),
        pytest.param([add("/a~0b", 1)], {}, {"a~b": 1}, id="escaped tilde"),
        pytest.param([add("/a~01b", 1)], {}, {"a~1b": 1}, id="escaped tilde before one"),
        pytest.param([add("/", 1)], {}, {"": 1}, id="empty key"),
        pytest.param([add("", {"b": 1})], {"a": 1}, {"b": 1}, id="add the whole document"),
        pytest.param([add("anything/a", 1)], {}, {"a": 1}, id="first segment counts for nothing"),
        pytest.param([add("/l/-", 3)], {"l": [1, 2]}, {"l": [1, 2, 3]}, id="append"),
        pytest.param([add("/l/0", 3)], {"l": [1, 2]}, {"l": [3, 1, 2]}, id="insert first"),
        pytest.param([add("/l/2", 3)], {"l": [1, 2]}, {"l": [1, 2, 3]}, id="insert at the end"),
        pytest.param([add("/l/-1", 3)], {"l": [1, 2]}, {"l": [1, 2, 3]}, id="insert from the end"),
        pytest.param(
            [add("/l/-2", 3)], {"l": [1, 2]}, {"l": [1, 3, 2]}, id="insert before the last"
        ),
        pytest.param([add("/a/b/c", 1)], {}, {"a": {"b": {"c": 1}}}, id="makes maps"),
        pytest.param([add("/a/-", 1)], {}, {"a": [1]}, id="makes a list"),
        pytest.param([add("/a/0/b", 1)], {}, {"a": [{"b": 1}]}, id="makes a list of maps"),
        pytest.param([add("/a/2", 1)], {}, {"a": [None, None, 1]}, id="fills a new list"),
        pytest.param([add("/a/2/b", 1)], {"a": [0]}, {"a": [0, None, {"b": 1}]}, id="fills a list"),
        pytest.param([add("/a/-1", 1)], {}, {"a": [1]}, id="makes a list for the last place"),
        pytest.param([add("/a/b", 1)], {"a": None}, {"a": {"b": 1}}, id="null makes way"),
        pytest.param([add("/a~1b/c", 1)], {}, {"a/b": {"c": 1}}, id="makes an escaped key"),
        pytest.param([remove("/a")], {"a": 1, "b": 2}, {"b": 2}, id="remove a key"),
        pytest.param([remove("/l/0")], {"l": [1, 2]}, {"l": [2]}, id="remove an element"),
        pytest.param([remove("/l/-1")], {"l": [1, 2]}, {"l": [1]}, id="remove the last"),
        pytest.param([remove("/a")], {}, {}, id="remove what is not there"),
        pytest.param([remove("/a/b/c")], {"a": 1}, {"a": 1}, id="remove below what is not there"),
        pytest.param([remove("/l/7")], {"l": []}, {"l": []}, id="remove beyond the end"),
        pytest.param([remove("")], {"a": 1}, {"a": 1}, id="the document stays"),
        pytest.param([replace("/a", [2])], {"a": 1}, {"a": [2]}, id="replace a key"),
        pytest.param([replace("/a", 2)], {"a": None}, {"a": 2}, id="replace null"),
        pytest.param([replace("/l/1", 9)], {"l": [1, 2]}, {"l": [1, 9]}, id="replace an element"),
        pytest.param(
            [replace("/l/-2", 9)], {"l": [1, 2]}, {"l": [9, 2]}, id="replace from the end"
        ),
        pytest.param([replace("", [1])], {"a": 1}, [1], id="replace the document"),
        pytest.param(
            [{"op": "move", "from": "/a/b", "path": "/c"}],
            {"a": {"b": 1}},
            {"a": {}, "c": 1},
            id="move",
        ),
        pytest.param(
            [{"op": "move", "from": "/l/0", "path": "/l/1"}],
            {"l": [1, 2, 3]},
            {"l": [2, 1, 3]},
            id="move within a list",
        ),
        pytest.param(
            [{"op": "copy", "from": "/a", "path": "/l/-"}],
            {"a": {"b": 1}, "l": []},
            {"a": {"b": 1}, "l": [{"b": 1}]},
            id="copy",
        ),
        pytest.param([{"op": "test", "path": "/a", "value": 1}], {"a": 1}, {"a": 1}, id="test"),
        pytest.param([{"op": "test", "path": "/a"}], {}, {}, id="test for nothing"),
        pytest.param([{"op": "test", "path": "/a"}], {"a": None}, {"a": None}, id="test for null"),
        pytest.param(
            [add("/a", {}), add("/a/b", 1), replace("/a/b", 2)], {}, {"a": {"b": 2}}, id="in order"
        ),
        pytest.param([], {"a": 1}, {"a": 1}, id="no operations"),
    ],
)
def test_apply(operations, before, after):
    given = copy.deepcopy(before)
    assert compile_json_patch(operations)(given) == after
    assert given == before


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([replace("/spec/x", 1)], "operation 1: replace operation does not apply: .*/spec/x"),
        ([add("/a", 1), replace("/x/y", 1)], "operation 2: replace .*/x/y"),
        ([replace("/spec/containers/-", 1)], "missing key: /spec/containers/-"),
        ([replace("", 1)], "must be object or array"),
        ([add("", "text")], "must be object or array"),
        ([add("spec", 1)], 'missing path: "spec"'),
        ([add("/spec/containers/x", 1)], 'missing path: "/spec/containers/x"'),
        ([add("/spec/containers/-/x", 1)], 'missing path: "/spec/containers/-/x"'),
        ([add("/spec/containers/7", 1)], "invalid index: 7"),
        ([add("/spec/containers/-9", 1)], "invalid index: -9"),
        ([add("/spec/replicas/x", 1)], 'missing path: "/spec/replicas/x"'),
        ([add("/new/-3", 1)], "negative index other than -1: -3"),
        ([add("/new/999999999999", 1)], "invalid index: 999999999999"),
        ([remove("/spec/containers/x")], "/spec/containers/x"),
        ([{"op": "move", "from": "/x", "path": "/y"}], "move .* missing from path: /x"),
        ([{"op": "copy", "from": "/x", "path": "/y"}], "copy .* missing from path: /x"),
        ([{"op": "copy", "from": "/spec", "path": "/x/y"}], 'copy .* missing path: "/x/y"'),
        ([{"op": "test", "path": "/spec/replicas", "value": "2"}], "testing value /spec/replicas"),
        ([{"op": "test", "path": "/spec/replicas", "value": 2.0}], "testing value /spec/replicas"),
        ([{"op": "test", "path": "/x/y", "value": 1}], "missing path: /x/y"),
        ([{"op": "test", "path": "/spec/containers/9", "value": None}], "testing value"),
    ],
)
def test_refuse(operations, words):
    with pytest.raises(EvaluationError, match=words):
        compile_json_patch(operations)(POD)


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ({"op": "add"}, "list of operations"),
        (None, "list of operations"),
        (["add"], "operation 1: an operation must be an object"),
        ([add("/a", 1), {"path": "/a"}], "operation 2: unsupported operation null"),
        ([{"op": ["add"], "path": "/a"}], "unsupported operation a list"),
        ([{"op": "Add", "path": "/a", "value": 1}], "unsupported operation 'Add'"),
        ([{"op": "add", "path": "/a"}], r"operation 1 \(add\): failed to decode 'value'"),
        ([{"op": "add", "value": 1}], "failed to decode 'path'"),
        ([{"op": "remove", "path": 5}], "failed to decode 'path'"),
        ([{"op": "move", "path": "/a"}], "failed to decode 'from'"),
        ([{"op": "copy", "path": "/a", "from": None}], "failed to decode 'from'"),
        ([{"op": "move", "path": "/a", "from": ""}], "unable to move entire document"),
        ([add("/9999" * 3000, 1)], "more than 200 steps"),
    ],
)
def test_refuse_to_compile(operations, words):
    with pytest.raises(CompileError, match=words):
        compile_json_patch(operations)


def test_unchanged_parts_are_shared():
    patched = compile_json_patch([add("/metadata/labels/x", "y")])(POD)
    assert patched["spec"] is POD["spec"]
    assert compile_json_patch([remove("/nowhere")])(POD) is POD


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("", []),
        ('[{"op": "remove", "path": "/a"}]', [remove("/a")]),
        ("- op: remove\n  path: /a\n", [remove("/a")]),
        ("- {op: add, path: /a, value: 08:30}", [add("/a", "08:30")]),
        ("- {op: add, path: /a, value: 2024-01-01}", [add("/a", "2024-01-01")]),
        ("- {op: add, path: /a, value: {8: on}}", [add("/a", {"8": True})]),
    ],
)
def test_parse(text, operations):
    assert parse_json_patch(text) == operations


@pytest.mark.parametrize("text", ["[{op: add}]", "[", "a: b", "text", "- {", "- a: &x [*x]"])
def test_refuse_to_parse(text):
    with pytest.raises(CompileError):
        parse_json_patch(text)
