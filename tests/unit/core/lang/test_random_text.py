"""Texts made up to fit an expression; chance always takes the largest."""

import pytest

from lictor.core.lang.random_text import make_random_text


def take_last(count):
    return count - 1


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("abc", "abc"),
        ("[a-c]{2}", "cc"),
        ("(x|y)?", "y"),
        ("a{2}{2}", "aaaa"),
        ("[[:digit:]]", "9"),
        ("^a$", "a"),
    ],
)
def test_what_is_made(pattern, text):
    assert make_random_text(pattern, take_last) == text


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "(",
        "[",
        "*",
        "a{2,1}",
        "\\d",
        "(" * 100,
        "a" + "?" * 3000,
        "a" * 5000,
        "(a{1000}){1000}",
    ],
)
def test_what_is_refused(pattern):
    with pytest.raises(ValueError, match=r"."):
        make_random_text(pattern, take_last)
