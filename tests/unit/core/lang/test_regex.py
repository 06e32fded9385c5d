"""Regular expressions have Go's syntax, and so have the templates of replacements."""

import time

import pytest

from lictor.core.errors import SyntaxFaultError, TooLargeError
from lictor.core.lang.regex import compile_regex, compile_template, replace_matches


@pytest.mark.parametrize(
    ("expression", "text", "found"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("(?i)ABC", "xabcx", True),
        (r"\d{2,}", "a1b22", True),
        (r"\pL", "é", True),
        ("^.$", "é", True),
        ("a.b", "a\nb", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\\C", "\\C", True),
        ("", "", True),
    ],
)
def test_search(expression, text, found):
    assert (compile_regex(expression).search(text) is not None) is found


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        "[",
        "a**",
        "(?=a)",
        r"\Z",
        "a{1001}",
        r"\C",
        r"\1",
        "\ud800",
        "." * 12_000,
        "a" * 20_000,
    ],
)
def test_what_go_refuses(expression):
    with pytest.raises(SyntaxFaultError, match="error parsing regexp"):
        compile_regex(expression)


def test_time_is_linear():
    start = time.process_time()
    assert compile_regex("(a*)*b").search("a" * 5000) is None
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("expression", "text", "template", "result"),
    [
        ("b", "abc", "[$0]", "a[b]c"),
        ("(b)(c)?", "abab", "<$1$2>", "a<b>a<b>"),
        ("(b)", "abc", "$1x", "ac"),
        ("(b)", "abc", "${1}x", "abxc"),
        ("(?P<name>b)", "abc", "${name}${name}", "abbc"),
        ("b", "abc", "$$1", "a$1c"),
        ("b", "abc", "$", "a$c"),
        ("b", "abc", "${", "a${c"),
        ("b", "abc", "$9", "ac"),
        ("(b)", "abc", "$01", "ac"),
        ("x*", "axb", "-", "-a-b-"),
        ("", "é", "-", "-é-"),
        ("$", "ab", "!", "ab!"),
        ("é", "aéb", "", "ab"),
    ],
)
def test_replacement(expression, text, template, result):
    assert replace_matches(expression, text, compile_template(template)) == result


def test_replacement_is_bounded():
    with pytest.raises(TooLargeError, match="too large"):
        replace_matches("a", "a" * 100_000, compile_template("b" * 100_000))
