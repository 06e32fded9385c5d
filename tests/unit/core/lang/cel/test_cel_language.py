"""The language: literals, operators, selections, macros, errors and types."""

import math

import pytest
from cel_rows import FAILS, KUBERNETES, KYVERNO, REFUSED, evaluate

from lictor.core.lang.cel.faults import CelCompileError
from lictor.core.lang.cel.kubernetes import build_kubernetes as kubernetes_environment
from lictor.core.lang.cel.types import parse_signature, parse_type
from lictor.core.lang.cel.values import Optional, UInt, type_name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 2 % 3", 5),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("0x1F", 31),
        ("1u", 1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'a\\n\\u00e9\\x41\\101'", "a\n\u00e9AA"),
        ("r'\\n'", "\\n"),
        ("'''a'b'''", "a'b"),
        ("b'\\xff'", b"\xff"),
        ("'a' // comment\n + 'b'", "ab"),
        ("[1, 2,]", [1, 2]),
        ("{'a': 1,}", {"a": 1}),
        ("!!true", True),
        ("--1", 1),
        ("9223372036854775807 + 1", FAILS),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", REFUSED),
        ("1u - 2u", FAILS),
        ("1 / 0", FAILS),
        ("1.0 / 0.0", math.inf),
        ("1 +", REFUSED),
        ("'a", REFUSED),
        ("a.`b`", REFUSED),
        ("[1 2]", REFUSED),
        ("if", REFUSED),
        ("(" * 240 + "1" + ")" * 240, 1),
        ("(" * 300 + "1" + ")" * 300, REFUSED),
        ("object" + ".a" * 300, REFUSED),
        ("1" + " + 1" * 200, 201),
        ("1" + " + 1" * 300, REFUSED),
        ("||".join(["false"] * 2000), False),
    ],
)
def test_literals_and_arithmetic(text, value):
    found = evaluate(text)
    assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dyn(1) == 1.0 && dyn(1u) == 1 && 1.5 > 1", True),
        ("dyn(1) == true", False),
        ("dyn(0) == false", False),
        ("[1, 2] == [1, 2.0]", REFUSED),
        ("dyn([1, 2]) == [1.0, 2.0]", True),
        ("dyn([true]) == dyn([1])", False),
        ("double('NaN') == double('NaN')", False),
        ("[double('NaN')] == [double('NaN')]", False),
        ("{1: 'a'}[dyn(1.0)]", "a"),
        ("{1: 'a'}[dyn(true)]", FAILS),
        ("dyn({true: 'a', 1: 'b'})", REFUSED),
        ("{1u: 'a'}[dyn(1)]", "a"),
        ("1 in [1, 2] && 'a' in {'a': 1} && !(2 in {1: 1})", True),
        ("object.ports[1]", 443),
        ("object.ports[2]", FAILS),
        ("object.ports[-1]", FAILS),
        ("object.?ports[1e300]", FAILS),
        ("object.?ports[1.5]", FAILS),
        ("object.labels['app'] + object.labels.`a/b`", "shopx"),
        ("object.labels.missing", FAILS),
        ("object.name.x", FAILS),
        ("has(object.labels.app) && !has(object.labels.x) && !has(object.name.x)", True),
        ("has(object)", REFUSED),
        ("null < null", FAILS),
        ("'a' < 'b' && b'a' < b'b' && false < true", True),
        ("double('NaN') < 1.0", FAILS),
        ("missing", REFUSED),
        ("params", FAILS),
        ("true ? 1 : 'a'", REFUSED),
        ("dyn(1) ? 1 : 2", FAILS),
    ],
)
def test_comparison_and_selection(text, value):
    found = evaluate(text)
    assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true || object.x == 1", True),
        ("object.x == 1 || true", True),
        ("object.x == 1 && false", False),
        ("object.x == 1 && true", FAILS),
        ("object.x == 1 || false || true", True),
        ("true || 1", REFUSED),
        ("dyn('a') || true", True),
        ("dyn('a') && true", FAILS),
        ("[1, 1, 0].all(i, 1 / i > 0)", FAILS),
        ("[0, -1].all(i, 1 / i > 0)", False),
        ("[0, 1].exists(i, 1 / i > 0)", True),
        ("[0, 2].exists(i, 1 / i > 0)", FAILS),
        ("true ? 1 : 1 / 0", 1),
        ("cel.bind(x, 1 / 0, true)", True),
    ],
)
def test_errors_are_absorbed(text, value):
    found = evaluate(text, KYVERNO)
    assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2, 3].map(x, x > 1, x * 2)", [4, 6]),
        ("[1, 2, 3].filter(x, x != 2)", [1, 3]),
        ("{'a': 1, 'b': 2}.map(k, k)", ["a", "b"]),
        ("[1, 1].exists_one(x, x == 1)", False),
        ("[3, 4].all(i, v, i + 3 == v)", True),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True),
        ("[5].transformMap(i, v, v + i)", {0: 5}),
        ("['a', 'b'].transformMapEntry(i, v, {v: i})", {"a": 0, "b": 1}),
        ("['a', 'a'].transformMapEntry(i, v, {v: i})", FAILS),
        ("[3, 1, 2].sortBy(x, -x)", [3, 2, 1]),
        ("[[1], [2]].map(x, x.map(y, y + 1))", [[2], [3]]),
        ("[1].map(x, [2].map(x, x))", [[2]]),
        ("1.map(x, x)", REFUSED),
        ("[1].map(1, 2)", REFUSED),
        ("[1].all(x, x)", REFUSED),
        ("object.replicas.map(x, x)", FAILS),
    ],
)
def test_macros(text, value):
    found = evaluate(text)
    assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("object.?x.?y.orValue(1)", 1),
        ("object.labels.?app.orValue('')", "shop"),
        ("object.?labels.app.value()", "shop"),
        ("object.nothing.?x.hasValue()", False),
        ("object.x.?y.orValue(1)", FAILS),
        ("object.ports[?5].hasValue()", False),
        ("optional.none()[?1 / 0].hasValue()", False),
        ("[?object.?x, ?object.?replicas]", [3]),
        ("{?'a': object.?x, 'b': dyn(1)}", {"b": 1}),
        ("object.?replicas.optMap(x, x + 1).value()", 4),
        ("object.?replicas.optFlatMap(x, optional.of(x)).value()", 3),
        ("optional.of(1).or(optional.of(1 / 0)).value()", 1),
        ("dyn(1).orValue(2)", FAILS),
        ("optional.none().value()", FAILS),
        ("optional.ofNonZeroValue(0).hasValue()", False),
        # The variable has the type of the first overload of string(): Kubernetes does the same.
        ("object.ports[?0].optMap(v, string(v)).hasValue()", FAILS),
        ("object.name.?size.hasValue()", False),
    ],
)
def test_optionals(text, value):
    found = evaluate(text)
    assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "issues"),
    [
        ("1 + 'a'", [(3, "found no matching overload for '_+_' applied to '(int, string)'")]),
        (
            "x + y",
            [
                (1, "undeclared reference to 'x' (in container '')"),
                (5, "undeclared reference to 'y' (in container '')"),
            ],
        ),
        ("'a'.y", [(4, "type 'string' does not support field selection")]),
        ("[1, 'a']", [(5, "expected type 'int' but found 'string'")]),
        ("timestamp('x')", [(11, "invalid timestamp argument")]),
        ("'a'.matches('(')", [(13, "invalid matches argument")]),
        (
            "'%d'.format(['a'])",
            [(14, "error during formatting: clause %d cannot be used on string")],
        ),
        (
            "1 &&\n 2",
            [
                (1, "expected type 'bool' but found 'int'"),
                (2, "expected type 'bool' but found 'int'"),
            ],
        ),
    ],
)
def test_issues_have_columns(text, issues):
    with pytest.raises(CelCompileError) as error:
        KUBERNETES.compile(text)
    found = [(issue.locate(text)[1], issue.message) for issue in error.value.issues]
    assert found == issues


def test_an_issue_shows_its_line():
    with pytest.raises(CelCompileError) as error:
        KUBERNETES.compile("true &&\n  x")
    assert (
        str(error.value)
        == "ERROR: <input>:2:3: undeclared reference to 'x' (in container '')\n |   x\n | ..^"
    )


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("object.a", "dyn"),
        ("[1].map(x, string(x))", "list(string)"),
        ("{'a': 1}.?a", "optional_type(int)"),
        ("{'a': [1u]}", "map(string, list(uint))"),
        ("type(1)", "type(int)"),
        ("timestamp('2020-01-01T00:00:00Z') - timestamp(0)", "duration"),
        ("[]", "list(dyn)"),
    ],
)
def test_result_types(text, result):
    assert str(KUBERNETES.compile(text).result) == result


def test_signatures_are_read():
    is_member, name, params, result = parse_signature(
        "map(K, list(V))::get(string, net.IP) -> optional(V)"
    )
    assert (is_member, name, str(result)) == (True, "get", "optional_type(V)")
    assert [str(param) for param in params] == ["map(K, list(V))", "string", "net.IP"]
    assert parse_type("list(int)") is parse_type("list( int )")


def test_names_of_macros_hide_dotted_variables():
    environment = KUBERNETES.extend({"y.z": parse_type("string"), "y": parse_type("dyn")})
    values = {"y.z": "dotted", "y": "outer"}
    assert environment.compile("y.z").evaluate(values) == "dotted"
    assert environment.compile("[{'z': 1}].map(y, y.z)").evaluate(values) == [1]
    assert environment.compile("[1].map(y, .y)").evaluate(values) == ["outer"]
    old = kubernetes_environment((1, 35), binary=(1, 35)).extend(environment.variables)
    assert old.compile("[1].map(y, .y)").evaluate(values) == [1]


def test_explain_has_the_value_of_every_part():
    seen = KUBERNETES.compile("object.a > 1 || object.b").explain({"object": {"a": 1}})
    shown = {(type(node).__name__, node.position): value for node, value in seen}
    assert shown["Select", 6] == 1
    assert shown["Call", 9] is False
    assert "no such key: b" in str(shown["Select", 22])


def test_type_names():
    assert [type_name(v) for v in (1, UInt(1), True, 1.0, None, "", b"", [], {}, Optional())] == [
        "int", "uint", "bool", "double", "null_type", "string", "bytes", "list", "map", "optional_type",
    ]  # fmt: skip
