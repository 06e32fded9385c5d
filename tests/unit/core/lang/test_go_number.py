"""JSON as Go reads it: numbers are 64-bit floats."""

import pytest

from lictor.core.lang.go_number import decode_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.0", 1),
        ("1.5", 1.5),
        ("9007199254740993", 9007199254740992),
        ("1" + "0" * 30, 1e30),
        ('"\\ud800"', "\ufffd"),
        ('{"a": [true, null]}', {"a": [True, None]}),
    ],
)
def test_what_is_read(text, value):
    read = decode_json(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "1e999", "1" + "0" * 350, "1" * 500, "[" * 100_000, "01"]
)
def test_what_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        decode_json(text)
