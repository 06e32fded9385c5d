"""Texts that stand for kinds, and what they stand for."""

import pytest

from lictor.core.lang.kind_selector import KindSelector, compile_kind_selector, parse_kind_selector


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Secret", KindSelector("*", "*", "Secret", "")),
        ("*", KindSelector("*", "*", "*", "")),
        ("", KindSelector("*", "*", "", "")),
        ("*/*", KindSelector("*", "*", "*", "*")),
        ("*/status", KindSelector("*", "*", "*", "status")),
        ("*/Secret", KindSelector("*", "*", "Secret", "")),
        ("v1/Secret", KindSelector("*", "v1", "Secret", "")),
        ("v2beta1/Widget", KindSelector("*", "v2beta1", "Widget", "")),
        # Versions have one digit only; what does not look like one is a kind.
        ("v10/Widget", KindSelector("*", "*", "v10", "Widget")),
        ("Pod/log", KindSelector("*", "*", "Pod", "log")),
        ("Pod.log", KindSelector("*", "*", "Pod", "log")),
        ("Pod/*", KindSelector("*", "*", "Pod", "*")),
        ("v1/Pod/log", KindSelector("*", "v1", "Pod", "log")),
        ("v1/Pod.log", KindSelector("*", "v1", "Pod", "log")),
        ("*/Node/status", KindSelector("*", "*", "Node", "status")),
        ("example.org/v1/Widget", KindSelector("example.org", "v1", "Widget", "")),
        ("example.org/*/Widget", KindSelector("example.org", "*", "Widget", "")),
        ("example.org/v1/Widget/scale", KindSelector("example.org", "v1", "Widget", "scale")),
        ("example.org/v1/Widget.scale", KindSelector("example.org", "v1", "Widget", "scale")),
        ("a/b/c/d/e", KindSelector("", "", "", "")),
    ],
)
def test_parse_kind_selector(text, expected):
    assert parse_kind_selector(text) == expected


@pytest.mark.parametrize(
    ("text", "kind", "fits"),
    [
        ("Widget", ("example.org", "v1", "Widget", ""), True),
        ("Widget", ("example.org", "v1", "Widget", "scale"), False),
        ("Wid*", ("example.org", "v1", "Widget", ""), True),
        ("Wid?et", ("", "v1", "Widget", ""), True),
        ("*", ("", "v1", "Pod", ""), True),
        ("*", ("", "v1", "Pod", "exec"), False),
        ("*/*", ("", "v1", "Pod", "exec"), True),
        ("*/exec", ("", "v1", "Pod", "exec"), True),
        ("*/exec", ("", "v1", "Pod", ""), False),
        ("*.org/v1/Widget", ("example.org", "v1", "Widget", ""), True),
        ("example.org/v2/Widget", ("example.org", "v1", "Widget", ""), False),
        ("a/b/c/d/e", ("a", "b", "c", "d"), False),
    ],
)
def test_compile_kind_selector(text, kind, fits):
    assert compile_kind_selector(parse_kind_selector(text))(*kind) is fits
