"""Is this value an amount of time or of a resource, and how much is it?"""

from decimal import Decimal
from functools import lru_cache

from lictor.lang.duration import parse_duration
from lictor.lang.quantity import parse_quantity
from lictor.raw import Json

# Most texts are no amounts; their first character tells it without an exception being raised.
_DURATION_START = frozenset("+-.0123456789")
_QUANTITY_START = _DURATION_START | frozenset("eEinumkKMGTP")


def read_duration(text: str) -> int | None:
    """Give the nanoseconds of a text such as `1h30m`, or None."""
    if text[:1] not in _DURATION_START:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def read_quantity(text: str) -> Decimal | None:
    """Give the amount of a text such as `1.5Gi`, or None."""
    if text[:1] not in _QUANTITY_START:
        return None
    return _remember_quantity(text) if len(text) <= _LONGEST_KNOWN else _parse_quantity(text)


def _parse_quantity(text: str) -> Decimal | None:
    try:
        return parse_quantity(text).value
    except ValueError:
        return None


# Clusters use few different amounts, again and again; long texts would only fill the memory.
_LONGEST_KNOWN = 40
_remember_quantity = lru_cache(maxsize=4096)(_parse_quantity)


def measure_duration(value: Json) -> int | None:
    """Give the nanoseconds of a value that is a duration; nothing at all lasts no time."""
    if isinstance(value, str):
        return read_duration(value)
    return 0 if value is None else None


def measure_quantity(value: Json) -> Decimal | int | None:
    """Give the amount of a value that is a quantity; nothing at all is zero."""
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is str:
        return read_quantity(value)
    if kind is float:
        return read_quantity(f"{value:f}")
    return 0 if value is None else None
