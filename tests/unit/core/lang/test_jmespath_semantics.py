"""What queries answer: missing keys, null, truth, comparisons, projections."""

from collections.abc import Iterator

import pytest

from lictor.core.errors import EvaluationError, FunctionError, LookupFailedError, UnknownKeyError
from lictor.core.lang.jmespath import compile_query

DATA = {
    "kind": "Pod",
    "none": None,
    "zero": 0,
    "flag": True,
    "empty": "",
    "labels": {"app": "web", "tier": "front"},
    "boxes": [
        {"name": "one", "size": 1, "tags": ["x", "y"]},
        {"name": "two", "size": 2},
        {"name": None, "size": 3, "tags": ["z"]},
    ],
    "words": ["b", "a"],
    "mixed": [1, [2, [3]], None],
}


@pytest.mark.parametrize(
    "text",
    ["nothing", "nothing.a", "labels.nothing", "labels.nothing.deeper", "boxes[1].tags", "kind && nothing",
     "nothing[0]", "labels.nothing.length(@)", "@.nothing"],
)  # fmt: skip
def test_a_missing_key_is_an_error_where_only_a_path_asks(text):
    with pytest.raises(UnknownKeyError, match="Unknown key"):
        compile_query(text)(DATA)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("none.a.b", None),
        ("kind.a", None),
        ("words.a", None),
        ("words[9]", None),
        ("kind[0]", None),
        ("nothing || 'x'", "x"),
        ("nothing || none", None),
        ("nothing || nothing2", None),
        ("nothing && kind", None),
        ("!nothing", True),
        ("nothing | @", None),
        ("kind | nothing", None),
        ("nothing == none", True),
        ("[nothing, kind]", [None, "Pod"]),
        ("{a: nothing}", {"a": None}),
        ("nothing[*]", None),
        ("nothing[]", None),
        ("nothing[?a]", None),
        ("nothing.*", None),
        ("not_null(nothing, kind)", "Pod"),
        ("nothing.to_string(@) || 'x'", "x"),
        ("none.to_string(@)", "null"),
        ("boxes[*].nothing", []),
        ("boxes[?nothing].name", []),
        ("map(&nothing, words)", [None, None]),
    ],
)
def test_elsewhere_it_is_null(text, value):
    assert compile_query(text)(DATA) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("zero || 'x'", 0),
        ("empty || 'x'", "x"),
        ("`[]` || 'x'", "x"),
        ("`{}` || 'x'", "x"),
        ("`false` || 'x'", "x"),
        ("flag && 'x'", "x"),
        ("empty && 'x'", ""),
        ("!zero", False),
        ("!empty", True),
        ("!kind.length", None),
        ("flag == `1`", False),
        ("zero == `false`", False),
        ("`[true]` == `[1]`", False),
        ('`{"a":1}` == `{"a":1.0}`', True),
        ('`{"a":1}` == `{"b":1}`', False),
        ('words == `["b","a"]`', True),
        ("none != none", False),
        ("zero < `1`", True),
        ("zero >= `1`", False),
        ("flag < `1`", None),
        ("kind > 'A'", None),
        ("compare('a', 'b') == `-1`", False),
        ("compare('a', 'b')", -1),
    ],
)
def test_truth_and_comparison(text, value):
    assert compile_query(text)(DATA) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("boxes[*].name", ["one", "two"]),
        ("boxes[*].tags[]", ["x", "y", "z"]),
        ("boxes[*].tags[0]", ["x", "z"]),
        ("boxes[*].tags | [0]", ["x", "y"]),
        ("boxes[].tags", [["x", "y"], ["z"]]),
        ("boxes[?size > `1`].size", [2, 3]),
        ("boxes[?name == 'two'] | [0].size", 2),
        ("boxes[?tags][].name", ["one"]),
        ("boxes[1:].size", [2, 3]),
        ("boxes[::-1].size", [3, 2, 1]),
        ("boxes[*].[size, nothing]", [[1, None], [2, None], [3, None]]),
        ("boxes[*].{n: name}", [{"n": "one"}, {"n": "two"}, {"n": None}]),
        ("mixed[]", [1, 2, [3]]),
        ("mixed[*]", [1, [2, [3]]]),
        ("labels.*", ["web", "front"]),
        ("labels.*.to_string(@)", ["null", "null", "web", "front"]),
        ("words.*", None),
        ("labels[*]", None),
        ("kind[]", None),
        ("words[-1]", "a"),
        ("words[-3]", None),
        ("words[5:]", []),
        ("kind[0:1]", None),
        ("none.[a]", None),
        ("none.{a: b}", None),
    ],
)
def test_projections(text, value):
    assert compile_query(text)(DATA) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("length(zero)[]", None), ("length(zero)[?@]", None), ("length(zero).*", None)],
)
def test_some_projections_forgive_any_fault(text, value):
    assert compile_query(text)(DATA) == value
    with pytest.raises(FunctionError):
        compile_query("length(zero)[*]")(DATA)


def test_a_slice_needs_a_step():
    with pytest.raises(EvaluationError, match="step"):
        compile_query("words[::0]")(DATA)


class LazyRoot(dict[str, object]):
    """An object that loads entries when first asked, and notes which."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __missing__(self, name: str) -> object:
        self.asked.append(name)
        if name == "broken":
            raise LookupFailedError("no answer")
        if name.startswith("no"):
            raise KeyError(name)
        return {"name": name}

    def load_all(self) -> dict[str, object]:
        return {"all": True}

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a root that loads lazily must not be listed")


@pytest.mark.parametrize(
    ("text", "value", "asked"),
    [
        ("thing.name", "thing", ["thing"]),
        ("nothing || thing.name", "thing", ["nothing", "thing"]),
        ("thing.name == 'thing' && other.name", "other", ["thing", "other"]),
        ("to_upper(thing.name)", "THING", ["thing"]),
        ("{a: thing.name}", {"a": "thing"}, ["thing"]),
        ("@.thing.name", "thing", ["thing"]),
        ("keys(@)", ["all"], []),
        ("*", [True], []),
        ("@ | all", True, []),
    ],
)
def test_a_lazy_root_loads_what_is_asked_for(text, value, asked):
    root = LazyRoot()
    assert compile_query(text)(root) == value
    assert root.asked == asked


@pytest.mark.parametrize(
    "text", ["broken", "broken || 'x'", "broken[]", "length(broken)", "broken.a.b"]
)
def test_faults_of_loading_are_not_hidden(text):
    with pytest.raises(LookupFailedError):
        compile_query(text)(LazyRoot())
