"""Expressions and patches that would fill the memory are refused, never taken for nothing."""

import pytest

from lictor.core.errors import TooLargeError
from lictor.core.lang.jmespath import compile_query
from lictor.core.lang.patch.json_patch import apply_json_patch
from lictor.core.lang.patch.kyverno_patch import compile_json_patch
from lictor.core.lang.patch.pointer import MAX_COPY, check_copy

INTO_ITSELF = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]


def test_lists_that_flatten_each_other_have_an_end() -> None:
    items = ["x"] * 200_000
    query = compile_query("[@, @, @, @, @, @][] || 'nothing'")
    with pytest.raises(TooLargeError):
        query(items)
    assert len(compile_query("[@, @, @, @][]")(items)) == 800_000


def test_copies_into_themselves_have_an_end() -> None:
    document = {"a": {"text": "x" * 100}}
    with pytest.raises(TooLargeError):
        compile_json_patch(INTO_ITSELF)(document)
    with pytest.raises(TooLargeError):
        apply_json_patch(document, INTO_ITSELF)


def test_many_copies_of_one_thing_have_an_end() -> None:
    document = {"a": {"text": "x" * 1_000_000}, "b": {}}
    copies = [{"op": "copy", "from": "/a", "path": f"/b/{number}"} for number in range(40)]
    with pytest.raises(TooLargeError):
        compile_json_patch(copies)(document)
    with pytest.raises(TooLargeError):
        apply_json_patch(document, copies)
    assert len(apply_json_patch(document, copies[:4])["b"]) == 4


@pytest.mark.parametrize("value", ["x" * MAX_COPY, ["x"] * MAX_COPY, {"x" * MAX_COPY: 1}])
def test_large_values_are_not_copied(value: object) -> None:
    with pytest.raises(TooLargeError):
        check_copy(value)


def test_usual_values_are_copied() -> None:
    value = {"a": ["b", {"c": None}], "text": "x" * 100_000}
    assert check_copy(value) is value
