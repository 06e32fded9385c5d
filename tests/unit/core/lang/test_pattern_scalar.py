"""Which values fit which leaves of a pattern."""

import pytest

from lictor.core.lang.pattern import compile_pattern
from lictor.core.lang.pattern.go_values import (
    parse_float,
    print_float,
    print_scientific,
    print_value,
)

MISSING = object()

FITS = [
    # wildcards and words
    ("*", "", True),
    ("*", 0, True),
    ("*", None, False),
    ("*", MISSING, False),
    ("*", {}, True),
    ("?*", "", False),
    ("?*", 7, True),
    ("?*", False, True),
    ("?*", None, False),
    ("?*", {"a": 1}, False),
    ("web", "web", True),
    ("web", "Web", False),
    (" web ", "web", True),
    (" web ", " web ", True),
    ("true", True, True),
    ("true", "true", True),
    ("true", 1, False),
    ("false", False, True),
    ("tr*", True, True),
    # negation: null and maps are nothing to compare with
    ("!web", "db", True),
    ("!web", "web", False),
    ("!web", None, False),
    ("!web", {}, False),
    ("!web", 3, True),
    ("!*", "!*", True),
    ("!*", "x", False),
    ("!", "!", True),
    # alternatives and conjunctions
    ("web | db", "db", True),
    ("web | db", "cache", False),
    ("web|db", "web|db", True),
    ("web&db", "web&db", True),
    ("w* & !*x", "web", True),
    ("w* & !*x", "wex", False),
    ("false | web", False, True),
    ("<2 | >8", 5, False),
    ("<2 | >8", 9, True),
    # quantities
    (">=256Mi", "1Gi", True),
    (">=256Mi", "255Mi", False),
    ("1Gi", "1024Mi", True),
    ("!1Gi", "1024Mi", False),
    ("1000m", 1, True),
    ("1000m", 1.0, True),
    (">0", "zero", False),
    (">0", True, False),
    ("<5", None, True),
    ("<5", MISSING, True),
    (">5", ">5", True),
    (">a", "b", False),
    (">a", ">a", True),
    ("> 5", 6, True),
    # durations
    ("<=1h", "3600s", True),
    ("<1h", "1h", False),
    ("!1h", "60m", False),
    (">-1h", None, True),
    ("<2h", 0, False),
    # ranges
    ("2-4", 4, True),
    ("2-4", 5, False),
    ("2!-4", 5, True),
    ("2!-4", 3, False),
    ("-2-2", "-1", True),
    ("256Mi-1Gi", "512Mi", True),
    ("1h-2h", "90m", True),
    ("2-4", "2-4", True),
    ("2-4", None, False),
    ("1-2-3", "1-2-3", True),
    # numbers, booleans, null
    (3, 3, True),
    (3, "3", True),
    (3, "3.0", True),
    (3, 3.5, False),
    (1, True, False),
    (2.5, "25e-1", True),
    (2.5, None, False),
    (True, True, True),
    (True, "true", False),
    (True, 1, False),
    (None, None, True),
    (None, MISSING, True),
    (None, 0, True),
    (None, "", True),
    (None, False, True),
    (None, {}, False),
    (None, "x", False),
    # a leaf on a list asks each element; a whole number is a float to a wildcard
    ("w*", ["web", "www"], True),
    ("w*", ["web", "db"], False),
    ("w*", [], True),
    ("w*", [["web"]], False),
    ("?", 7, False),
    ("7*", 7, True),
]


@pytest.mark.parametrize(("pattern", "value", "fits"), FITS)
def test_leaf(pattern, value, fits):
    resource = {} if value is MISSING else {"v": value}
    assert (compile_pattern({"v": pattern})(resource) is None) is fits


@pytest.mark.parametrize(
    ("number", "plain", "scientific"),
    [
        (0.0, "0", "0E+00"),
        (-0.0, "-0", "-0E+00"),
        (1.5, "1.5", "1.5E+00"),
        (100000.0, "100000", "1E+05"),
        (1000000.0, "1e+06", "1E+06"),
        (0.0001, "0.0001", "1E-04"),
        (-0.00001234, "-1.234e-05", "-1.234E-05"),
        (1e300, "1e+300", "1E+300"),
        (float("inf"), "+Inf", "+Inf"),
        (float("nan"), "NaN", "NaN"),
    ],
)
def test_floats_are_printed_as_go_does(number, plain, scientific):
    assert print_float(number) == plain
    assert print_scientific(number) == scientific


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        (12345678, "12345678"),
        (1 << 70, "1.1805916207174113e+21"),
        ({"b": [1, "x"], "a": None}, "map[a:<nil> b:[1 x]]"),
        ([], "[]"),
    ],
)
def test_values_are_printed_as_go_does(value, text):
    assert print_value(value) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e3", 1000.0),
        ("1_000", 1000.0),
        ("1__0", None),
        ("0x10p0", 16.0),
        ("0x10", None),
        (".5", 0.5),
        ("5.", 5.0),
        (".", None),
        ("Inf", float("inf")),
        ("1e999", None),
        (" 1", None),
        ("", None),
    ],
)
def test_floats_are_read_as_go_does(text, number):
    assert parse_float(text) == number
