"""Quantities are read, written, ordered and computed with as Kubernetes does it."""

from decimal import Decimal

import pytest

from lictor.core.lang.quantity import Quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1.5", "1500m"),
        ("0.25", "250m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1500000", "1500k"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("-2Gi", "-2Gi"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1E", "1E"),
        ("12e6", "12e6"),
        ("1e-3", "1e-3"),
        ("0.1m", "100u"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1e-12", "1e-9"),
        ("9Ei", "9223372036854775807"),
        ("99999999999999999999", "99999999999999999999"),
        ("1.", "1"),
        (".5", "500m"),
        # Kubernetes takes these for zero.
        (".", "0"),
        ("m", "0"),
        ("-", "0"),
    ],
)
def test_canonical_form(text, canonical):
    assert str(parse_quantity(text)) == canonical


@pytest.mark.parametrize(
    "text",
    ["", "x", "1x", "1 ", " 1", "1Gib", "1gi", "1KI", "1e", "1e+", "1Ee3", "1G1", "1+1", "--1", "1.2.3",
     "1h", "٣", "1e99999", "9" * 5000],
)  # fmt: skip
def test_what_is_no_quantity(text):
    with pytest.raises(ValueError, match=r"quantit|large"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("small", "large"),
    [("1", "2"), ("999m", "1"), ("1k", "1Ki"), ("1Gi", "1100M"), ("-1", "0"), ("1n", "1u")],
)
def test_order(small, large):
    assert parse_quantity(small) < parse_quantity(large)
    assert parse_quantity(large) > parse_quantity(small)
    assert parse_quantity(small) != parse_quantity(large)


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1000m"), ("1Gi", "1024Mi"), ("1e3", "1k"), ("0", "0Gi")]
)
def test_equality_is_of_the_amount(one, other):
    assert parse_quantity(one) == parse_quantity(other)
    assert hash(parse_quantity(one)) == hash(parse_quantity(other))


def test_value_is_exact():
    assert parse_quantity("1.1").value == Decimal("1.1")
    assert parse_quantity("1") != "1"


@pytest.mark.parametrize(
    ("left", "right", "added", "subtracted"),
    [
        ("1Gi", "512Mi", "1536Mi", "512Mi"),
        ("1", "500m", "1500m", "500m"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("1Ki", "1k", "2024", "24"),
    ],
)
def test_addition(left, right, added, subtracted):
    assert str(parse_quantity(left).add(parse_quantity(right))) == added
    assert str(parse_quantity(left).subtract(parse_quantity(right))) == subtracted


def test_multiplication_and_division():
    assert str(parse_quantity("1Gi").multiply(parse_quantity("0.5"))) == "512Mi"
    assert str(parse_quantity("10").divide(parse_quantity("4"))) == "2"
    assert str(parse_quantity("10.00").divide(parse_quantity("4"))) == "2500m"
    assert str(parse_quantity("-7").divide(parse_quantity("2"))) == "-3"


def test_approximation_never_fails():
    assert parse_quantity("1500m").approximate() == 1.5
    assert Quantity(10**400).approximate() == float("inf")
