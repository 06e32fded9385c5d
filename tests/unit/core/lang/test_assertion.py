"""Assertion trees and the expressions in them."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from lictor.core.errors import CompileError, EvaluationError, LictorError, SyntaxFaultError
from lictor.core.lang.assertion import compile_assertion, compile_expression
from lictor.core.lang.assertion.tree import Clause, parse_clause

SHOP = {
    "name": "corner shop",
    "open": True,
    "staff": 3,
    "rating": 4.5,
    "owner": None,
    "debts": [],
    "address": {"street": "Elm", "number": 7, "geo": {"lat": 1}},
    "goods": [
        {"name": "tea", "price": 4, "tags": ["hot"]},
        {"name": "bread", "price": 2},
        {"name": "milk"},
    ],
    "open-hours": "9-5",
    "shelves": [[1, 2], [3], 4],
}


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("name", Clause("name")),
        ("a.b", Clause("a.b")),
        ("(a.b)", Clause("a.b", is_query=True)),
        ("(jp:a)", Clause("a", is_query=True)),
        ("~.goods", Clause("goods", for_each=True)),
        ("~i.goods", Clause("goods", for_each=True, index_name="i")),
        (
            "~i.(goods)->g",
            Clause("goods", is_query=True, for_each=True, index_name="i", binding="g"),
        ),
        ("(a)->b", Clause("a", is_query=True, binding="b")),
        ("a->b", Clause("a", binding="b")),
        ("(a)->b->c", Clause("(a)->b", binding="c")),
        ("\\(a)\\", Clause("(a)")),
        ("~.\\(a)\\->b", Clause("(a)", for_each=True, binding="b")),
        ("(a) ->b", Clause("(a) ", binding="b")),
        ("(a", Clause("(a")),
        ("()", Clause("()")),
        ("(a\nb)", Clause("(a\nb)")),
        ("a -> b", Clause("a ", binding="b")),
        ("a \n ->b", Clause("a ", binding="b")),
        ("a\nb->c", Clause("b", binding="c")),
        ("a->b->c", Clause("a->b", binding="c")),
        ("a->b c", Clause("a->b c")),
        (" " * 50_000, Clause(" " * 50_000)),
        ("~a", Clause("~a")),
        ("~.", Clause("~.")),
        ("", Clause("")),
    ],
)
def test_clauses(text, clause):
    assert parse_clause(text) == clause


PASSING = [
    {},
    {"name": "corner shop", "staff": 3, "rating": 4.5, "open": True, "owner": None},
    {"staff": 3.0},
    {"address": {}},
    {"address": {"geo": {"lat": 1}}},
    {"goods": [{"name": "tea"}, {}, {"name": "milk"}]},
    {"debts": []},
    {"shelves": [[1, 2], [3], 4]},
    {"(length(goods))": 3},
    {"(staff > `2`)": True},
    {"(staff)": "(`1` + `2`)"},
    {"(goods[?price].name)": ["tea", "bread"]},
    {"(missing)": None},
    {"~.goods": {"(length(name) > `2`)": True}},
    {"~.goods": {"name": "(@)"}},
    {"~i.goods": {"($i < $limit)": True}},
    {"~key.address": {"(contains(['street', 'number', 'geo'], $key))": True}},
    {"(goods[0])->first": {"(name == $first.name)": True}},
    {"(staff)->count": 3, "(length(goods) == $count)": True},
    {"goods->all": {"(length($all))": 3}},
    {"\\open-hours\\": "9-5"},
    {"($limit)": 5},
    {"address": "(`{\"street\": \"Elm\"}`)"},
    {"staff": "(@)"},
]  # fmt: skip


@pytest.mark.parametrize("tree", PASSING)
def test_passing(tree):
    assert compile_assertion(tree)(SHOP, {"limit": 5}) == ()


FAILING = [
    ({"staff": 4}, ["staff: Invalid value: 3: Expected value: 4"]),
    ({"name": "x\n"}, ['name: Invalid value: "corner shop": Expected value: "x\\n"']),
    ({"open": False}, ["open: Invalid value: true: Expected value: false"]),
    ({"staff": None}, ["staff: Invalid value: 3: Expected value: <nil>"]),
    ({"owner": "me"}, ['owner: Invalid value: null: Expected value: "me"']),
    ({"owner": {}}, ["owner: Invalid value: null: invalid value, must not be null"]),
    ({"owner": {"a": 1}}, ["owner.a: Required value: field not found in the input object"]),
    ({"owner": [1]}, ["owner: Invalid value: null: value is null"]),
    ({"debts": [1]}, ["debts: Invalid value: []: lengths of slices don't match"]),
    ({"shelves": [[1, 9], [3], 5]}, [
        "shelves[0][1]: Invalid value: 2: Expected value: 9",
        "shelves[2]: Invalid value: 4: Expected value: 5",
    ]),
    ({"~.goods": {"price": 4}}, [
        "~.goods[1].price: Invalid value: 2: Expected value: 4",
        "~.goods[2].price: Required value: field not found in the input object",
    ]),
    ({"address": {"~.geo": 2}}, ["address.~.geo[lat]: Invalid value: 1: Expected value: 2"]),
    ({"(goods[*].name)": "(`[\"tea\", \"bread\", null]`)"}, [
        '(goods[*].name): Invalid value: ["tea","bread","milk"]:'
        ' Expected value: []interface {}{"tea", "bread", interface {}(nil)}'
    ]),
    ({"address": "(`{\"street\": \"Oak\"}`)"}, [
        'address: Invalid value: {"geo":{"lat":1},"number":7,"street":"Elm"}:'
        ' Expected value: map[string]interface {}{"street":"Oak"}'
    ]),
    ({"(staff / `0`)": 1}, ["(staff / `0`): Invalid value: +Inf: Expected value: 1"]),
    ({"name": "\\corner shop\\"}, [
        'name: Invalid value: "corner shop": Expected value: "\\\\corner shop\\\\"'
    ]),
    ({"(missing)": {}}, ["(missing): Invalid value: null: invalid value, must not be null"]),
    ({"": 1}, ["[]: Required value: field not found in the input object"]),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "messages"), FAILING)
def test_failing(tree, messages):
    mismatches = compile_assertion(tree)(SHOP, {})
    assert [str(mismatch) for mismatch in mismatches] == messages


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"staff": "3"}, "staff: Internal error: types are not comparable, string - float64"),
        ({"open": "true"}, "open: Internal error: types are not comparable, string - bool"),
        ({"name": ["x"]}, 'name: Invalid value: "corner shop": expected a slice'),
        ({"name": {"x": 1}}, "name.x: Internal error: projection not recognized"),
        ({"~.name": 1}, 'expected a slice or a map'),
        ({"~.owner": 1}, "~.owner: Invalid value: null: expected a slice or a map"),
        ({"name": "(`[1]`)"}, "must be a slice, found string"),
        ({"name": "(`{}`)"}, "must be a map, found string"),
        ({"($nobody)": 1}, r"\(\$nobody\): Internal error: variable not defined: \$nobody"),
        ({"(abs(name))": 1}, "argument 1"),
        ({"(sort_by(goods, &price))": 1}, "sort_by"),
        ({"(at(goods, `9`))": 1}, "9"),
    ],
)  # fmt: skip
def test_undecidable(tree, message):
    with pytest.raises(EvaluationError, match=message):
        compile_assertion(tree)(SHOP, {})


@pytest.mark.parametrize(
    "tree",
    [
        {"a": "~i.(@)"},
        {"a": "(@)->x"},
        {"(nosuch(@))": 1},
        {"(abs())": 1},
        {"(split('a', 'b', `1`))": 1},
        {"(a..b)": 1},
        {"a": ["(b[)"]},
    ],
)
def test_wrong_trees(tree):
    with pytest.raises(CompileError):
        compile_assertion(tree)


EXPRESSIONS = [
    ("name", "corner shop"),
    ("address.geo.lat", 1),
    ("address.geo.lat.x", None),
    ('"open-hours"', "9-5"),
    ("missing.a.b", None),
    ("goods[0].name", "tea"),
    ("goods[-1].name", "milk"),
    ("goods[9]", None),
    ("name[0]", None),
    ("name[:6]", "corner"),
    ("name[::-1]", "pohs renroc"),
    ("goods[1:].name", ["bread", "milk"]),
    ("goods[*].price", [4, 2]),
    ("goods[].tags[]", ["hot"]),
    ("shelves[]", [1, 2, 3, 4]),
    ("shelves[*][0]", [1, 3]),
    ("address.*", ["Elm", 7, {"lat": 1}]),
    ("*.lat", []),
    ("address.*.lat", [1]),
    ("goods[?price > `3`].name | [0]", "tea"),
    ("goods[?!price].name", ["milk"]),
    ("goods[0].{n: name, p: price}", {"n": "tea", "p": 4}),
    ("goods[0].[name, price]", ["tea", 4]),
    ("missing.[a]", None),
    ("[missing]", [None]),
    ("missing | 'x'", "x"),
    ("staff == `3.0`", True),
    ("open == `1`", False),
    ("name < `1`", None),
    ("name != 'x' && staff >= `3`", True),
    ("debts || name", "corner shop"),
    ("`0` || name", 0),
    ("!debts", True),
    ("!`0`", False),
    ("staff + `1` * `2`", 5),
    ("(staff + `1`) * `2`", 8),
    ("staff - `1` - `1`", 1),
    ("-staff", -3),
    ("-staff % `2`", -1),
    ("staff // `2`", 1),
    ("-staff // `2`", -1),
    ("(-staff) // `2`", -2),
    ("staff ÷ `2`", 1.5),
    ("staff × `2` − `1`", 5),
    ("name + `1`", None),
    ("$", None),
    ("$who", "me"),
    ("$who[0:1]", "m"),
    ("let $x = staff in $x + `1`", 4),
    ("let $x = staff, $y = `2` in goods[?price < $x && price >= $y].name", ["bread"]),
    ("let $who = 'you' in $who", "you"),
    ("let", None),
    ("'it\\'s'", "it's"),
    ("'a\\\\b\\n'", "a\\b\\n"),
    ('`{"a": [1, null]}`', {"a": [1, None]}),
    ("`\"\\`\"`", "`"),
    ("length(goods)", 3),
    ("keys(address)", ["street", "number", "geo"]),
    ("map(&name, goods)", ["tea", "bread", "milk"]),
    ("max_by(goods[:2], &price).name", "tea"),
    ("sort_by(goods, &name)[].name", ["bread", "milk", "tea"]),
    ("group_by(goods, &name).tea[0].price", 4),
    ("avg(`[]`)", None),
    ("find_first('hello', 'l')", 2),
    ("find_first('hello', 'l', `3`)", 3),
    ("find_last('hello', 'l', `0`, `3`)", 2),
    ("find_first('hello', 'z')", None),
    ("from_items(`[[\"a\", 1]]`)", {"a": 1}),
    ("items(address.geo, 'k', 'v')", [{"k": "lat", "v": 1}]),
    ("zip(`[1, 2]`, `[3]`)", [[1, 3]]),
    ("pad_left('7', `3`, '0')", "007"),
    ("pad_right('7', `3`)", "7  "),
    ("trim_left('xxa', 'x')", "a"),
    ("trim_right('a  ')", "a"),
    ("upper(lower('Ab'))", "AB"),
    ("concat('a', 'b')", "ab"),
    ("at(goods, `1`).name", "bread"),
    ("json_parse('[1]')", [1]),
    ("wildcard('c*p', name)", True),
    ("sum(goods[].price)", 6),
    ("add('1Gi', '1Gi')", "2Gi"),
    ("regex_match('^c', name)", True),
    ("join('-' goods[:2].name)", "tea-bread"),
    ("time_now_utc()", "2024-02-03T04:05:06Z"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), EXPRESSIONS)
def test_expressions(text, value):
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    found = compile_expression(text, now=lambda: moment)(SHOP, {"who": "me"})
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


@pytest.mark.parametrize(
    "text",
    [
        "", "a.", "a..b", "a[", "a[0", "a[0,1]", "a[::0:1]", "3", "a 3", "a -1", "a = b", "'open",
        "`open", "`bad`", '"a"(b)', "(a", "a)", "{a}", "{a: b,}", "[a,]", "f(", "let $x = a", "let $x in b",
        "a b", "#", "a[99999999999999999999]", "(" * 5000, "a" * 100_000,
    ],
)  # fmt: skip
def test_syntax_faults(text):
    with pytest.raises(SyntaxFaultError):
        compile_expression(text)


def nest(depth, value=1):
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("tree", "value"),
    [
        (nest(5000), nest(5000)),
        ({"(a == b)": True}, {"a": nest(5000), "b": nest(5000)}),
        ({"a": "(b)"}, {"a": nest(5000), "b": 1}),
        ({"(to_string(a))": 1}, {"a": nest(5000)}),
        ({"a": []}, {"a": nest(5000)}),
        ({"a": None}, {"a": float("nan")}),
        ({"a": 1}, {"a": b"x"}),
        ({"(a * a)": 1}, {"a": 10**400}),
        ({"(a / b)": 1}, {"a": 10**400, "b": 3}),
        ({"a": 1}, object()),
    ],
)
def test_odd_values_never_crash(tree, value):
    with suppress(LictorError):
        mismatches = compile_assertion(tree)(value, {})
        assert all(str(mismatch) for mismatch in mismatches)
