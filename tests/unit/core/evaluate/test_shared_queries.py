"""Queries that are kept for policies that come later."""

from datetime import UTC, datetime

from lictor.core.evaluate.expressions import Expressions
from lictor.core.lang.template import Fill


def _compile(text: str, known: dict[str, Fill]) -> Fill:
    return Expressions(lambda: datetime.now(UTC), known).query(text)


def test_short_texts_are_kept_for_others_and_long_ones_go_with_their_policy() -> None:
    known: dict[str, Fill] = {}
    long = "a" * 300
    assert _compile("a.b", known)({"a": {"b": 1}}) == 1
    assert _compile(long, known)({long: 2}) == 2
    assert list(known) == ["a.b"]


def test_a_long_text_is_compiled_once_for_a_policy() -> None:
    expressions = Expressions(lambda: datetime.now(UTC))
    long = "a" * 300
    assert expressions.query(long) is expressions.query(long)
