"""Compares and formats values: numbers are numbers, true is not 1; texts are Go's."""

import math

from lictor.core.errors import EvaluationError
from lictor.core.lang.go_number import dump_go_json, quote_go
from lictor.core.raw import Json


def is_number(value: Json) -> bool:
    """Whether this is a number; a boolean is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def name_kind(value: Json) -> str:
    """Go's name for the type of a value."""
    if value is None:
        return "invalid"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "float64"
    return "map" if isinstance(value, dict) else "slice"


def fits(expected: Json, actual: Json) -> bool:
    """Whether a value is as expected; an object may have more members than expected.

    Raises EvaluationError for values that are not comparable, such as a text and a number.
    """
    if isinstance(expected, list):
        if not isinstance(actual, list):
            kind = name_kind(actual)
            raise EvaluationError(f"invalid actual value, must be a slice, found {kind}")
        if len(expected) != len(actual):
            return False
        return all(fits(one, other) for one, other in zip(expected, actual, strict=True))
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            kind = name_kind(actual)
            raise EvaluationError(f"invalid actual value, must be a map, found {kind}")
        return all(key in actual and fits(value, actual[key]) for key, value in expected.items())
    if expected is None or actual is None:
        return expected is actual
    kinds = name_kind(expected), name_kind(actual)
    if kinds[0] != kinds[1]:
        raise EvaluationError(f"types are not comparable, {kinds[0]} - {kinds[1]}")
    return bool(expected == actual)


def _show_number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return dump_go_json(value)


def show_found(value: Json) -> str:
    """A found value, for a message."""
    if isinstance(value, str):
        return quote_go(value)
    if is_number(value):
        return _show_number(value)
    try:
        return dump_go_json(value)
    except EvaluationError:
        # A value that is not JSON (infinity, an expression) must not break the message.
        return show_expected(value)


def show_expected(value: Json) -> str:
    """An expected value, for a message: Go's notation for lists and objects."""
    try:
        return "<nil>" if value is None else _show_nested(value)
    except RecursionError:
        return "..."


def _show_nested(value: Json) -> str:
    if isinstance(value, str):
        return quote_go(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_show_nested(item) for item in value)}}}"
    if isinstance(value, dict):
        members = ", ".join(f"{quote_go(k)}:{_show_nested(value[k])}" for k in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    if value is None:
        return "interface {}(nil)"
    return _show_number(value) if is_number(value) else type(value).__name__
