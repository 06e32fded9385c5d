"""Masks of fields and label selectors as queries write them."""

import pytest

from lictor.errors import CompileError, FunctionError
from lictor.lang.field_mask import compile_field_mask
from lictor.lang.label_selector import parse_label_selector

POD = {
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"x": "1"}},
    "spec": {"containers": [{"name": "c", "ports": [{"number": 1, "name": "p"}]}, "odd"]},
    "status": None,
}


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        ([], {}),
        (["kind"], {"kind": "Pod"}),
        (["metadata.labels"], {"metadata": {"labels": {"x": "1"}}}),
        (["metadata.name", "metadata"], {"metadata": POD["metadata"]}),
        (["metadata", "metadata.name"], {"metadata": POD["metadata"]}),
        (
            ["spec.containers.ports.number"],
            {"spec": {"containers": [{"ports": [{"number": 1}]}]}},
        ),
        (["none", "kind.below", "metadata.none.below"], {"metadata": {}}),
        (["status"], {"status": None}),
    ],
)
def test_masks(paths, kept):
    assert compile_field_mask(paths)(POD) == kept


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "a." * 40 + "b", "a" * 600])
def test_what_is_no_mask(path):
    with pytest.raises(FunctionError):
        compile_field_mask([path])


@pytest.mark.parametrize(
    ("selector", "labels", "fits"),
    [
        ("", {}, True),
        ("  ", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b,c", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c),d notin (e)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("!a", {"a": ""}, False),
        ("! a , b", {"b": ""}, True),
        ("example.com/a=", {"example.com/a": ""}, True),
    ],
)
def test_label_selectors_of_queries(selector, labels, fits):
    assert parse_label_selector(selector)(labels) is fits


@pytest.mark.parametrize(
    "selector", ["a=b=c", "a in b", "in (a)", "=b", "a b", "-a=b", "a=_", "()"]
)
def test_label_selectors_that_are_none(selector):
    with pytest.raises(CompileError):
        parse_label_selector(selector)
