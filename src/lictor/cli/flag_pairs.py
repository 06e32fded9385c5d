"""Flags of the controllers as NAME=VALUE, for commands that start controllers or install them."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from lictor.cli.flag_command import read_bool
from lictor.cli.flag_words import IGNORED
from lictor.cluster.flags import Flags
from lictor.errors import UsageError
from lictor.lang.duration import parse_duration
from lictor.raw import Json

_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Flags)}
CHOICES = {"logging_format": ("text", "json"), "tls_key_algorithm": ("RSA", "ECDSA", "Ed25519")}


def read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE`, each once; the last one counts."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def read_flags(texts: Iterable[str], own: Collection[str]) -> dict[str, str]:
    """Flags that the controllers know and will take; `own` are those that the command sets."""
    pairs = read_pairs("--flag", texts)
    for name, value in pairs.items():
        if name in own:
            raise UsageError(f"--flag {name}: cannot be set here")
        if name not in _FIELDS and name not in IGNORED:
            raise UsageError(_describe_unknown(name))
        if name in _FIELDS:
            _convert(name, value)
    return pairs


def change_flags(flags: Flags, pairs: Mapping[str, str]) -> Flags:
    """The same flags but for those that were given, which `read_flags` has checked."""
    changes = {_FIELDS[name].name: _convert(name, pairs[name]) for name in pairs if name in _FIELDS}
    return msgspec.structs.replace(flags, **changes)


def _describe_unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _FIELDS, n=1)
    return f"--flag {name}: no such flag" + (f"; did you mean {close[0]}?" if close else "")


def _convert(name: str, text: str) -> Json:
    field = _FIELDS[name]
    if field.type is bool:
        value = read_bool(text)
        if value is None:
            raise UsageError(f"--flag {name}={text}: write true or false")
        return value
    if field.type is int:
        if not text.isdecimal():
            raise UsageError(f"--flag {name}={text}: write a number")
        return int(text)
    if is_duration(field.default) and not is_duration(text):
        raise UsageError(f"--flag {name}={text}: write a duration such as 30s or 15m")
    return _choose(name, text) if field.name in CHOICES else text


def _choose(name: str, text: str) -> str:
    choices = CHOICES[_FIELDS[name].name]
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise UsageError(f"--flag {name}={text}: write one of {', '.join(choices)}")


def is_duration(text: Json) -> bool:
    """Is it a length of time, as Go writes it?"""
    try:
        return parse_duration(text) >= 0
    except ValueError:
        return False
