"""Paths of the columns of custom kinds."""

import pytest

from lictor.addons.apiserver.kinds.custom_kind import compile_path
from lictor.core.errors import SyntaxFaultError

VALUE = {
    "a": {"b-c": 1, "x.y/z": 2, "it's": 3},
    "list": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}, {"n": 3, "t": "x", "u": 3}],
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b-c", [1]),
        ("{.a.b-c}", [1]),
        ("$.a.b-c", [1]),
        ("a.b-c", [1]),
        (".a['x.y/z']", [2]),
        ('.a["x.y/z"]', [2]),
        (r".a.x\.y/z", [2]),
        (r".a['it\'s']", [3]),
        (".a.*", [1, 2, 3]),
        (".nope.b", []),
        (".list[0].n", [1]),
        (".list[-1].n", [3]),
        (".list[9].n", []),
        (".list[*].n", [1, 2, 3]),
        (".list[1:].n", [2, 3]),
        (".list[0:2].n", [1, 2]),
        ('.list[?(@.t=="x")].n', [1, 3]),
        (".list[?(@.t != 'x')].n", [2]),
        (".list[?(@.n > 1)].n", [2, 3]),
        (".list[?(@.u)].n", [3]),
        (".list[?(@.n == @.u)].n", [3]),
        ("..n", [1, 2, 3]),
    ],
)
def test_paths(path, found):
    assert compile_path(path)(VALUE) == found


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b", ".a[x]"])
def test_paths_that_cannot_be_read(path):
    with pytest.raises(SyntaxFaultError):
        compile_path(path)
