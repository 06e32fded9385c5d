"""Our notation of fields, line by line."""

import pytest

from lictor.core.errors import LoadError
from lictor.install.schema import parse_line, parse_notes

LINES = [
    ("name", ("name", "", False, {}, "")),
    ("name! string", ("name", "string", True, {}, "")),
    ("name -- What it is called.", ("name", "", False, {}, "What it is called.")),
    ("keys [string] atomic", ("keys", "[string]", False, {"atomic": ""}, "")),
    (
        'method default="GET" enum=GET|POST -- How -- or why.',
        ("method", "", False, {"default": '"GET"', "enum": "GET|POST"}, "How -- or why."),
    ),
    ("rest any", ("rest", "any", False, {}, "")),
    ("rest open", ("rest", "", False, {"open": ""}, "")),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line for line, _ in LINES])
def test_line(line, expected):
    note = parse_line(line)
    assert (note.name, note.type, note.required, note.attributes, note.description) == expected


def test_fields_stand_below_what_they_belong_to():
    notes = parse_notes(
        """
# a comment
Report -- What is said
    -- of a thing.
  owner! object
    name string
  results [Result]

Result
  text string
"""
    )
    assert list(notes) == ["Report", "Result"]
    assert notes["Report"].description == "What is said of a thing."
    assert list(notes["Report"].fields) == ["owner", "results"]
    assert list(notes["Report"].fields["owner"].fields) == ["name"]


def test_a_field_that_belongs_to_nothing_is_told_by_line():
    with pytest.raises(LoadError, match="line 2"):
        parse_notes("Report\n    name string\n")
