"""Versions are ordered, and ranges of them hold what they should."""

import pytest

from lictor.core.lang.semver import parse_range, parse_version, parse_version_or_zero


def test_order():
    texts = [
        "0.0.1", "0.1.0", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-a", "1.0.0-a.1", "1.0.0-b", "1.0.0",
        "1.0.1", "1.10.0", "2.0.0",
    ]  # fmt: skip
    versions = [parse_version(text) for text in texts]
    assert versions == sorted(versions)
    assert parse_version("1.0.0+x") == parse_version("1.0.0+y.2")


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-ä", "1.2.-3", "1.2.3.4",
     "99999999999999999999.0.0", "1.2.3-" + "a" * 2000],
)  # fmt: skip
def test_what_is_no_version(text):
    with pytest.raises(ValueError, match=r"version|large|zeros"):
        parse_version(text)
    assert parse_version_or_zero(text) == parse_version("0.0.0")


@pytest.mark.parametrize(
    ("wanted", "inside", "outside"),
    [
        ("1.2.3", "1.2.3", "1.2.4"),
        ("==1.2.3", "1.2.3", "1.2.4"),
        ("!1.2.3", "1.2.4", "1.2.3"),
        (">1.2.3", "1.2.4", "1.2.3"),
        (">= 1.2.3", "1.2.3", "1.2.2"),
        ("<=1.2.3", "1.2.3", "1.2.4"),
        (">1.0.0 <2.0.0", "1.5.0", "2.0.0"),
        ("<1.0.0 || >=2.0.0", "2.0.0", "1.5.0"),
        ("1.x", "1.9.9", "2.0.0"),
        ("1.x.x", "1.0.0", "0.9.0"),
        ("1.2.x", "1.2.9", "1.3.0"),
        (">1.2.x", "1.3.0", "1.2.9"),
        ("<=1.2.x", "1.2.9", "1.3.0"),
        (">=1.x", "1.0.0", "0.9.9"),
        ("<1.x", "0.9.9", "1.0.0"),
    ],
)
def test_ranges(wanted, inside, outside):
    holds = parse_range(wanted)
    assert holds(parse_version(inside))
    assert not holds(parse_version(outside))


@pytest.mark.parametrize(
    "text", ["", "x", "||", "|| 1.0.0", "1.0.0 ||", "1.0.0 || || 2.0.0", "~1.0.0", "^1.0.0", "1.0", "1.0.0-x", "1" * 5000]
)  # fmt: skip
def test_what_is_no_range(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_range(text)
