"""What becomes of texts with variables in braces."""

import time

import pytest

from lictor.core.errors import EvaluationError, LictorError
from lictor.core.lang.template import compile_template, find_expressions, has_variables, unescape

SCOPE = {
    "a": "x",
    "n": 5,
    "list": [1, "b"],
    "name": "a",
    "again": "{{ a }}",
    "deep": "{{ again }}",
    "escaped": "\\{{ a }}",
    "endless": "{{ endless }}.",
    "growing": "{{ growing }}" + "." * 40_000,
    "doubling": "{{ doubling }} {{ doubling }}",
    "large": "." * 1_000_000,
}


def resolve(expression):
    def fill(scope):
        if expression not in scope:
            raise EvaluationError(f"no {expression!r}")
        return scope[expression]

    return fill


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ a }}", "x"),
        ("{{n}}", 5),
        ("{{ list }}", [1, "b"]),
        ("-{{ a }}-{{ n }}-", "-x-5-"),
        ("{{ list }}!", '[1,"b"]!'),
        ("{{ {{ name }} }}", "x"),
        ("<{{ {{ name }} }}>", "<x>"),
        ("<{{ deep }}>", "<x>"),
        ("<{{- again }}>", "<{{ a }}>"),
        ("\\{{ a }} {{ a }}", "{{ a }} x"),
        ("{{{{{ a }} {{ a }}", "{{{x x"),
        ("{" * 100_000 + " {{ a }}", "{" * 100_000 + " x"),
    ],
)
def test_variables_are_filled_in(text, value):
    assert compile_template(text, resolve)(SCOPE) == value  # type: ignore[misc]


@pytest.mark.parametrize("text", ["", "a", "{{", "{{ a", "a }}", "\\{{ a }}", "{ a }"])
def test_texts_without_variables(text):
    assert not has_variables(text)
    assert compile_template(text, resolve) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ nothing }}", "no 'nothing'"),
        ("<{{ endless }}>", "nested more than 20 deep"),
        ("<{{ growing }}>", "exceeds 4 MiB"),
        ("<{{ doubling }}>", "exceeds 4 MiB"),
        ("{{ large }}" * 5, "exceeds 4 MiB"),
        ("{{ {{ name }} }}" + "{{ large }}" * 5, "exceeds 4 MiB"),
    ],
)
def test_what_cannot_be_filled_in(text, reason):
    fill = compile_template(text, resolve)
    start = time.process_time()
    with pytest.raises(LictorError, match=reason):
        fill(SCOPE)  # type: ignore[misc]
    assert time.process_time() - start < 5


def test_the_innermost_expressions_are_found():
    assert find_expressions("{{ a }} {{ b.{{ c }} }} \\{{ d }}") == ["a", "c"]


def test_escapes_are_taken_away():
    assert unescape("\\{{ a }} b") == "{{ a }} b"
