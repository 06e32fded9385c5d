"""Resolves plain YAML scalars as the YAML library of Kubernetes does.

Kubernetes converts YAML to JSON (sigs.k8s.io/yaml over go-yaml v2) and parses that. Two
consequences are surprising: `y` and `off` are booleans, and a number without a fraction is an
integer in any notation (`1e3`, `2.0`).
"""

import math
import re
import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from lictor.core.raw import Json

_WORDS: dict[str, Json] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
# Kubernetes' parser treats the digits after the prefix as a separate number, sign included.
_BINARY = re.compile(r"(-?)0b([-+]?)([01]+)")
# Digits with underscores between them, in a number that starts with a point.
_POINT_FLOAT = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES = (16, 2, 8, 10)

# A scalar that starts with anything else is a string.
MEANINGFUL = frozenset("yYnNtTfFoO~.+-0123456789")
# The same for a key, which may be a merge key.
CAREFUL = MEANINGFUL | {"<"}

_INT64 = 2**63


def settle_integer(number: float) -> Json:
    """A number after conversion to JSON: integral ones are 64-bit integers."""
    if isinstance(number, int):
        return number if -_INT64 <= number < _INT64 else float(number)
    if not number.is_integer():
        return number
    # JSON writes the shortest digits that identify the number, then zeros.
    whole = int(Decimal(repr(number)))
    return whole if -_INT64 <= whole < _INT64 else number


def _read_integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    if found is None:
        return _read_signed_binary(text)
    digits = next((i for i in range(4) if found[i + 2] is not None), 3)
    # Nothing longer fits 64 bits, and Python refuses to parse very long ones.
    if len(found[digits + 2].lstrip("0")) > 64:
        return None
    number = int(found[digits + 2], _BASES[digits])
    number = -number if found[1] == "-" else number
    fits = -_INT64 <= number < _INT64 or (not found[1] and number < 2 * _INT64)
    return number if fits else None


def _read_signed_binary(text: str) -> int | None:
    found = _BINARY.fullmatch(text)
    if found is None or (found[1] and found[2]) or len(found[3].lstrip("0")) > 64:
        return None
    number = int(found[3], 2)
    number = -number if "-" in (found[1], found[2]) else number
    return number if -_INT64 <= number < _INT64 else None


def _read_number(text: str) -> int | float | None:
    plain = text.replace("_", "")
    if text[0] == ".":
        if _POINT_FLOAT.fullmatch(text) is None:
            return None
    else:
        number = _read_integer(plain)
        if number is not None:
            return number
        if _FLOAT.fullmatch(plain) is None:
            return None
    value = float(plain)
    return None if math.isinf(value) else value


@lru_cache(maxsize=4096)
def resolve_plain(text: str) -> Json:
    """The value of a scalar without quotes and tag, before `settle_number`."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in ".+-0123456789":
        number = _read_number(text)
        if number is not None:
            return number
    return text


def settle(value: Json) -> Json:
    """A value after conversion to JSON; raises ValueError if JSON cannot represent it."""
    if type(value) is int or type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        return settle_integer(value)
    return value


@lru_cache(maxsize=4096)
def read_plain(text: str) -> Json:
    """The value of a scalar without quotes and tag; ValueError if JSON cannot represent it."""
    return settle(resolve_plain(text))


def _expect(kinds: tuple[type, ...]) -> Callable[[str], Json]:
    def read(text: str) -> Json:
        value = resolve_plain(text)
        # bool is a subclass of int in Python, not in YAML.
        if type(value) not in kinds:
            raise ValueError
        return value

    return read


def _read_float(text: str) -> Json:
    number = _expect((int, float))(text)
    if type(number) is int and number >= _INT64:
        raise ValueError
    return float(number)


def _read_timestamp(text: str) -> Json:
    raise ValueError(f"the tag !!timestamp is not supported: write {text!r} without it")


def _read_binary(text: str) -> str:
    try:
        return b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    except Base64Error as error:
        raise ValueError("!!binary value contains invalid base64 data") from error


_YAML = "tag:yaml.org,2002:"
_TAGGED: dict[str, Callable[[str], Json]] = {
    f"{_YAML}int": _expect((int,)),
    f"{_YAML}float": _read_float,
    f"{_YAML}bool": _expect((bool,)),
    f"{_YAML}null": _expect((type(None),)),
    f"{_YAML}binary": _read_binary,
    f"{_YAML}timestamp": _read_timestamp,
}


def resolve_tagged(tag: str, text: str) -> Json:
    """The value of a scalar with a tag; unknown tags mean a string.

    Raises ValueError if the text is invalid for the tag.
    """
    read = _TAGGED.get(tag)
    if read is None:
        return text
    try:
        return read(text)
    except ValueError as error:
        reason = str(error) or f"cannot read {text!r} as !!{tag.removeprefix(_YAML)}"
        raise ValueError(reason) from None


def _format_float(number: float) -> str:
    """The shortest text of the same 32-bit number: Kubernetes' form of a key."""
    if math.isnan(number):
        return ".nan"
    single = struct.unpack("f", struct.pack("f", number))[0]
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    texts = (f"{single:.{digits}e}" for digits in range(9))
    text = next((t for t in texts if struct.pack("f", float(t)) == struct.pack("f", single)), "0")
    exponent = int(text.partition("e")[2] or 0)
    return text if exponent < -4 or exponent >= 6 else format(Decimal(text), "f")


def write_key(key: Json) -> str:
    """A mapping's key as text. Raises ValueError for what cannot be a JSON key."""
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int() if -_INT64 <= key < _INT64:
            return str(key)
        case float():
            return _format_float(key)
        case _:
            raise ValueError(f"{'null' if key is None else key} cannot be a key")
