"""Selectors as queries write them: what they take, and how long reading them may take."""

import contextlib
import time

import pytest

from lictor.core.errors import CompileError
from lictor.core.lang.label_selector import FieldTerm, parse_field_selector, parse_label_selector


@pytest.mark.parametrize(
    ("selector", "labels", "fits"),
    [
        ("", {}, True),
        ("  ", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b,c", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c),d notin (e)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("!a", {"a": ""}, False),
        ("! a , b", {"b": ""}, True),
        ("example.com/a=", {"example.com/a": ""}, True),
        ("a in (,b)", {"a": ""}, True),
        ("in in (notin)", {"in": "notin"}, True),
        ("a>3", {"a": "4"}, True),
        ("a > 3,a<5", {"a": "5"}, False),
        ("a<3", {"a": "x"}, False),
    ],
)
def test_label_selectors_of_queries(selector, labels, fits):
    assert parse_label_selector(selector)(labels) is fits


@pytest.mark.parametrize(
    "selector",
    [
        "a=b=c",
        "a in b",
        "in (a)",
        "=b",
        "a b",
        "-a=b",
        "a=_",
        "()",
        "a,",
        ",a",
        "a>x",
        "a>",
        "!a=b",
        "a in (b",
        "a in (b c)",
        "a=b!",
        "! (",
        "a in ()b",
    ],
)
def test_label_selectors_that_are_none(selector):
    with pytest.raises(CompileError):
        parse_label_selector(selector)


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ("", []),
        ("metadata.name=a", [("metadata.name", "a", True)]),
        ("a==b,,c!=d", [("a", "b", True), ("c", "d", False)]),
        ("a=", [("a", "", True)]),
        (r"a=b\,c\=d\\", [("a", "b,c=d\\", True)]),
    ],
)
def test_field_selectors(selector, terms):
    assert parse_field_selector(selector) == tuple(FieldTerm(*term) for term in terms)


@pytest.mark.parametrize("selector", ["a", "a=b=c", "a!=b!=c", r"a=\b", "a=\\", "!", "a,b=c"])
def test_field_selectors_that_are_none(selector):
    with pytest.raises(CompileError):
        parse_field_selector(selector)


# Repeated; what follows makes most of them invalid at their very end.
REPEATED = (
    " ",
    "!",
    "(",
    ",",
    "a",
    "a,",
    "a=b,",
    "a ",
    "=",
    "\\",
    "a.",
    "a-",
    "a/",
    "a in (b),",
    "b,",
)


@pytest.mark.parametrize("parse", [parse_label_selector, parse_field_selector])
@pytest.mark.parametrize("before", ["", "a in (", "a="])
@pytest.mark.parametrize("piece", REPEATED)
def test_reading_a_selector_takes_linear_time(parse, before, piece):
    def measure(size: int) -> float:
        text = before + piece * (size // len(piece)) + "("
        began = time.process_time()
        with contextlib.suppress(CompileError):
            parse(text)
        return time.process_time() - began

    # 64 KB is the most that a request's head can hold; 20 KB of spaces took 26 s.
    assert min(measure(65536) for _ in range(3)) < 0.25
