"""Which texts fit which wildcard patterns."""

import time

import pytest

from lictor.core.lang.wildcard import compile_wildcard, has_wildcard, match_wildcard


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("", "x", False),
        ("web", "web", True),
        ("web", "webs", False),
        ("*", "", True),
        ("**", "anything\nat all", True),
        ("?", "", False),
        ("?", "é", True),
        ("?", "ab", False),
        ("?*", "", False),
        ("*?", "a", True),
        ("kube-*", "kube-", True),
        ("kube-*", "kub", False),
        ("*-system", "kube-system", True),
        ("*-system", "kube-systems", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("*mid*", "amidst", True),
        ("*mid*", "am id", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*bb*b", "abb", False),
        ("a?c*", "abcd", True),
        ("a?c*", "ac", False),
        ("*.?.*", "1.2.3", True),
        ("*?b*?d", "abcd", True),
        ("*?b*?d", "bcd", False),
        ("a.c", "abc", False),
        ("[ab]*", "[ab]c", True),
        ("(?)", "(x)", True),
        ("?*" * 200, "x" * 200, True),
        ("?*" * 200, "x" * 199, False),
        ("a?*b" * 100, "axyzb" * 100, True),
        ("a?*b" * 100, "axyzb" * 99, False),
        ("*a?" * 100 + "b", "ax" * 300 + "b", True),
        ("*a?" * 100 + "b", "ax" * 300 + "c", False),
    ],
)
def test_fits(pattern, text, fits):
    assert compile_wildcard(pattern)(text) is fits
    assert match_wildcard(pattern, text) is fits


@pytest.mark.parametrize(("text", "has"), [("a", False), ("", False), ("a*", True), ("?", True)])
def test_has_wildcard(text, has):
    assert has_wildcard(text) is has


@pytest.mark.parametrize(
    "pattern", ["*a" * 200 + "b", "*?a" * 200 + "b", "*" * 300 + "?b", "?*" * 20_000]
)
def test_time_is_bounded(pattern):
    start = time.process_time()
    assert not compile_wildcard(pattern)("a" * 3000)
    assert time.process_time() - start < 2
