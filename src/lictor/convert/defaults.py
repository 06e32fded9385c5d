"""Which value for a missing field makes a test hold, or not hold?"""

import re
from collections.abc import Callable

import orjson

from lictor.convert.writing import literal
from lictor.raw import Json

_SIGNS = r"(==|!=|<=|>=|<|>)"
_OPPOSITE = {"==": "!=", "!=": "=="}


def find_default(test: str, path: str, *, holds: bool) -> str | None:
    """A literal for what stands at the path, so that the test holds or not; None if unknown."""
    place = re.escape(path)
    for pattern, find in _FORMS:
        found = re.fullmatch(pattern.replace("PATH", place), test, re.DOTALL)
        if found is not None:
            return find(found, holds)
    return None


def _read(text: str) -> tuple[Json, bool]:
    try:
        return orjson.loads(text), True
    except ValueError:
        return None, False


def _compared(found: re.Match[str], holds: bool) -> str | None:  # noqa: FBT001
    sign, (value, is_literal) = found.group(1), _read(found.group(2))
    if not is_literal or not isinstance(value, str | int | float):
        return None
    if sign in _OPPOSITE:
        same = (sign == "==") is holds
        return literal(value) if same else _other_than(value)
    if isinstance(value, str | bool):
        return None
    zero_holds = {"<": value > 0, "<=": value >= 0, ">": value < 0, ">=": value <= 0}[sign]
    return "0" if zero_holds is holds else None


def _other_than(value: str | float) -> str | None:
    if isinstance(value, bool):
        return literal(not value)
    zero: str | int = "" if isinstance(value, str) else 0
    return None if value == zero else literal(zero)


def _among(found: re.Match[str], holds: bool) -> str | None:  # noqa: FBT001
    values, is_literal = _read(found.group(1))
    if not is_literal or not isinstance(values, list) or not values:
        return None
    if holds:
        return literal(values[0])
    if not all(isinstance(value, str) for value in values) or "" in values:
        return None
    return '""'


def _not_among(found: re.Match[str], holds: bool) -> str | None:  # noqa: FBT001
    return _among(found, not holds)


def _always(default: str, *, holds: bool) -> Callable[[re.Match[str], bool], str | None]:
    return lambda _, wanted: default if wanted is holds else None


_TEXT = r'"(?:[^"\\]|\\.)+"'
_STARTS = rf"PATH\.(?:startsWith|endsWith|contains)\({_TEXT}\)"
# An expression about PATH, and the default for it.
_FORMS: tuple[tuple[str, Callable[[re.Match[str], bool], str | None]], ...] = (
    (rf"PATH {_SIGNS} (\S.*)", _compared),
    (r"PATH in (\[.*\])", _among),
    (r"!\(PATH in (\[.*\])\)", _not_among),
    (r"PATH\.size\(\) > 0", _always("[]", holds=False)),
    (r"PATH\.size\(\) == 0", _always("[]", holds=True)),
    (_STARTS, _always('""', holds=False)),
    (f"!{_STARTS}", _always('""', holds=True)),
    (rf"{_TEXT} in PATH", _always("[]", holds=False)),
    (rf"!\({_TEXT} in PATH\)", _always("[]", holds=True)),
)
