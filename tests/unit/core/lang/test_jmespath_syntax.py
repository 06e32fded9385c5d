"""What parses, what does not, and where the fault is said to be."""

import pytest

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.jmespath import FUNCTIONS, compile_query, parse_query, render_query


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("a.", 2),
        (".a", 0),
        ("a b", 2),
        ("a ||", 4),
        ("a = b", 2),
        ("a # b", 2),
        ("1", 0),
        ("a[1", 3),
        ("a[b]", 2),
        ("a[1.5]", 3),
        ("a[-]", 2),
        ("a[99999999999999999999]", 2),
        ("[`1`,]", 5),
        ("{a: b,}", 6),
        ("{1: b}", 1),
        ("foo(", 4),
        ("a[*]!b", 4),
        ("'open", 5),
        ("'a\\'", 4),
        ('"open', 5),
        ("`1", 2),
        ("`nope`", 0),
        ("`NaN`", 0),
        ("`1e999`", 0),
        ('"\\x"', 0),
        ('"keys"(@)', 0),
        ("@(a)", 0),
        ("a | nonsense(b)", 4),
        ("a | length()", 4),
        ("length(a, b)", 0),
        ("merge()", 0),
        ("(" * 5000, 100),
        ("[" * 5000, 100),
        ("!" * 5000, 100),
    ],
)
def test_faults(text, position):
    with pytest.raises(SyntaxFaultError) as caught:
        compile_query(text)
    assert caught.value.position == position
    assert caught.value.text == text


@pytest.mark.parametrize("piece", ["a||", "a&&", "a|", "a==", "a."])
def test_long_chains_are_refused_not_fatal(piece):
    with pytest.raises(SyntaxFaultError, match="nested"):
        compile_query(piece * 5000 + "a")
    with pytest.raises(SyntaxFaultError, match="too long"):
        compile_query(piece * 50_000 + "a")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'it\'s'", "it's"),
        (r"'a\b'", r"a\b"),
        ("'a\nb'", "a\nb"),
        ("''", ""),
        ('`"a"`', "a"),
        (r'`"\`"`', "`"),
        ("` 1 `", 1),
        ("`1.0`", 1),
        ("`1.5`", 1.5),
        ("`10000000000`", 10_000_000_000),
        ("`12345678901234567890`", 12345678901234567000),
        ("`[1, {}]`", [1, {}]),
        (r'`"\ud800"`', "\ufffd"),
        # Commas between arguments and pairs may be missing, and names may stand in quotes.
        ("join('-' `[\"a\"]`)", "a"),
        ("length('ab',)", 2),
        ("{a: 'b' c: 'd'}", {"a": "b", "c": "d"}),
        ("'length'('ab')", 2),
        ("`[1,2]`[:::]", [1, 2]),
    ],
)
def test_literals_and_licence(text, value):
    assert compile_query(text)({}) == value


def test_roots():
    query = compile_query("a.b || c[?d == e].f && {x: g, y: @.h} | length(i)")
    assert query.roots == {"a", "c", "g", "h"}
    assert not query.takes_all
    assert query.text.startswith("a.b")
    assert compile_query("keys(@)").takes_all


def test_tree():
    assert parse_query("a.b[0]") == {
        "type": "ASTSubexpression",
        "children": [
            {"type": "ASTField", "value": "a"},
            {
                "type": "ASTIndexExpression",
                "children": [
                    {"type": "ASTField", "value": "b"},
                    {"type": "ASTIndex", "value": 0},
                ],
            },
        ],
    }


def test_drawn_tree():
    drawn = render_query('a == `{"x": [1000000, null, true, "y"]}`')
    assert drawn.splitlines() == [
        "ASTComparator {",
        "  value: tEQ",
        "  children: {",
        "    ASTField {",
        '      value: "a"',
        "    }",
        "    ASTLiteral {",
        '      value: map[string]interface {}{"x":[]interface {}{1e+06, interface {}(nil), true, "y"}}',
        "    }",
        "}",
    ]
    assert "value: 1::2" in render_query("a[1::2]")


def test_every_function_is_described():
    assert len(FUNCTIONS) == 76
    for name, spec in FUNCTIONS.items():
        assert spec.name == name
        assert spec.signature.startswith(f"{name}(")
        assert spec.returns
        assert spec.note
    assert FUNCTIONS["lookup"].signature == "lookup(object|array, string|number) any"
