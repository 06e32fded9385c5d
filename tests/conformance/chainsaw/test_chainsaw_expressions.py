import pytest
from chainsaw.expressions import ExpressionError, bind_all, fill, find_mismatches

BINDINGS = {"name": "web", "count": 2, "error": None, "stdout": " ready\n"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("($name)", "web"),
        ("(join('-', [$name, 'a']))", "web-a"),
        ("($count)", 2),
        ("(jp;$count)", 2),
        (r"\($name)\ ".strip(), "($name)"),
        ("plain ($name)", "plain ($name)"),
        ("", ""),
        (7, 7),
        (None, None),
        ({"($name)": "($name)"}, {"($name)": "web"}),
        (["($name)", {"a": "($count)"}], ["web", {"a": 2}]),
        ("(trim_space($stdout))", "ready"),
        ("(as_string($count))", None),
    ],
)
def test_fill(template, expected):
    assert fill(template, BINDINGS) == expected


def test_expression_sees_the_value_that_stands_there():
    body = {"metadata": {"name": "a"}, "data": {"k": "(@)"}}
    assert fill(body["data"], {}, {"k": "v"}) == {"k": "v"}


@pytest.mark.parametrize("text", ["($missing)", "(no_such_function(@))", "(a[)"])
def test_expression_that_cannot_be(text):
    with pytest.raises(ExpressionError):
        fill(text, {})


def test_bindings_see_those_before_them():
    given = [{"name": "a", "value": "x"}, {"name": "b", "value": "(join('', [$a, 'y']))"}]
    assert bind_all({}, given) == {"a": "x", "b": "xy"}


@pytest.mark.parametrize("name", ["$a", "a-b", ""])
def test_binding_without_a_proper_name(name):
    with pytest.raises(ExpressionError):
        bind_all({}, [{"name": name, "value": 1}])


@pytest.mark.parametrize(
    ("tree", "value", "holds"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"(length(a))": 2}, {"a": [1, 2]}, True),
        ({"~.a": {"(@ > `0`)": True}}, {"a": [1, 2]}, True),
        ({"a->x": {"b": 1}, "c": "($x.b)"}, {"a": {"b": 1}, "c": 1}, True),
        ({"($error == null)": True}, None, True),
        ({"($error != null)": True}, None, False),
    ],
)
def test_checks(tree, value, holds):
    assert (find_mismatches(tree, value, BINDINGS) == []) is holds
