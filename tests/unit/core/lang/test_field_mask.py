"""Masks of fields and label selectors as queries write them."""

import pytest

from lictor.core.errors import FunctionError
from lictor.core.lang.field_mask import compile_field_mask

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
