"""Bindings, templates and checks: values in which a text in parentheses is an expression."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lictor.core.errors import LictorError
from lictor.core.lang.assertion import compile_assertion, compile_expression
from lictor.core.lang.assertion.functions import SPECS
from lictor.core.lang.jmespath.functions.spec import define

Bindings = Mapping[str, Any]
_ESCAPED = re.compile(r"\\(.+)\\\Z", re.DOTALL)
_QUERY = re.compile(r"\((?:(\w+);)?(.+)\)\Z")
_NAME = re.compile(r"\w+\Z", re.ASCII)


class ExpressionError(Exception):
    """An expression that cannot be read or evaluated."""


def _as_string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# Functions that chainsaw adds to those of assertion trees.
_FUNCTIONS = (
    define("trim_space(string) string", str.strip, "takes space off both ends"),
    define("as_string(any) string", _as_string, "gives a text as it is, else null"),
)
# The table of functions is closed to policies on purpose; here the language is chainsaw's.
SPECS.update({spec.name: (spec,) for spec in _FUNCTIONS})  # type: ignore[attr-defined]


def evaluate(text: str, bindings: Bindings, value: Any = None) -> Any:
    """What an expression, without its parentheses, stands for."""
    try:
        return compile_expression(text)(value, bindings)
    except LictorError as error:
        raise ExpressionError(f"{text}: {error}") from error


def fill(template: Any, bindings: Bindings, value: Any = None) -> Any:
    """The same JSON with each text in parentheses replaced by what it stands for."""
    if isinstance(template, dict):
        inner = value if isinstance(value, dict) else {}
        return {key: fill(item, bindings, inner.get(key)) for key, item in template.items()}
    if isinstance(template, list):
        return [fill(item, bindings) for item in template]
    return _fill_text(template, bindings, value) if isinstance(template, str) else template


def _fill_text(text: str, bindings: Bindings, value: Any) -> Any:
    if found := _ESCAPED.match(text):
        return found[1]
    if found := _QUERY.match(text):
        return evaluate(found[2], bindings, value)
    return text


def bind_all(bindings: Bindings, given: Sequence[Mapping[str, Any]]) -> Bindings:
    """The bindings with these added, each of which sees those before it."""
    for entry in given:
        name = fill(entry["name"], bindings)
        if not isinstance(name, str) or not _NAME.match(name):
            raise ExpressionError(f"invalid binding name {name}")
        bindings = {**bindings, name: fill(entry["value"], bindings)}
    return bindings


def find_mismatches(tree: Any, value: Any, bindings: Bindings) -> list[str]:
    """Where a value is not as a tree asserts; empty where it is."""
    try:
        return [str(mismatch) for mismatch in compile_assertion(tree)(value, bindings)]
    except LictorError as error:
        raise ExpressionError(str(error)) from error
