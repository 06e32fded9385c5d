"""The little grammar around an expression: `~name.(expression)->binding`, or a plain key."""

import re

import msgspec

# No DOTALL anywhere: an expression in parentheses stands on one line, or it is a plain key.
_FOREACH = re.compile(r"~(\w+)?\.(.*)", re.ASCII)
_BLANKS = " \t\n\r\f\v"
_NAME = re.compile(r"\s*+(\w+)\Z", re.ASCII)
_ESCAPED = re.compile(r"\\(.+)\\\Z")
_QUERY = re.compile(r"\((?:(\w+):)?(.+)\)\Z", re.ASCII)


class Clause(msgspec.Struct, frozen=True):
    """A key or a value of an assertion tree, taken apart."""

    statement: str
    is_query: bool = False
    for_each: bool = False
    index_name: str = ""
    binding: str = ""


def parse_clause(text: str) -> Clause:
    """Take a key apart; a text without any of the signs is the name of a member."""
    whole, for_each, index_name, binding = text, False, "", ""
    if found := _FOREACH.match(text):
        for_each, index_name, text = True, found[1] or "", found[2]
    head, arrow, tail = text.rpartition("->")
    if arrow and (found := _NAME.match(tail)):
        binding, text = found[1], _last_line(head)
    if not text:
        return Clause(whole)
    is_query = False
    if found := _ESCAPED.match(text):
        text = found[1]
    elif found := _QUERY.match(text):
        is_query, text = True, found[2]
    return Clause(text, is_query, for_each, index_name, binding)


def _last_line(text: str) -> str:
    """What is bound stands on the line of its arrow, or on the last one above that is not blank."""
    *above, last = text.split("\n")
    while above and not last.strip(_BLANKS):
        last = above.pop()
    return last
