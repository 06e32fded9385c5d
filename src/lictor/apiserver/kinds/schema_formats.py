"""Is a text of this format? Formats that nobody knows are never broken."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from lictor.lang.duration import parse_duration

_DATE_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)"
    r"(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.][^@\s]*")
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_HOST = re.compile(
    r"(?=.{1,253}$)[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9_])?"
    r"(\.[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9_])?)*\.?"
)
_HEX_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def has_format(text: str, name: str) -> bool:
    """Does the text fit the format of this name?"""
    check = _FORMATS.get(name)
    if check is None:
        return True
    try:
        return check(text)
    except (ValueError, TypeError):
        return False


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _is_bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_uri(text: str) -> bool:
    return bool(urlsplit(text).scheme) or text.startswith("/")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """What cannot be read raises ValueError."""

    def check(text: str) -> bool:
        parse(text)
        return True

    return check


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _matches(_DATE_TIME),
    "datetime": _matches(_DATE_TIME),
    "date": _parses(date.fromisoformat),
    "duration": _parses(parse_duration),
    "byte": _is_bytes,
    "uri": _is_uri,
    "email": _matches(_EMAIL),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False)),
    "mac": _matches(_MAC),
    "uuid": _matches(_UUID),
    "uuid3": _matches(_UUID),
    "uuid4": _matches(_UUID),
    "uuid5": _matches(_UUID),
    "hostname": _matches(_HOST),
    "hexcolor": _matches(_HEX_COLOR),
}
