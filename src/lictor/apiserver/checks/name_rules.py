"""What names may look like: rules of Kubernetes, each with its words for what breaks it."""

import re
from collections.abc import Callable
from typing import TypeAlias

# What is wrong with a name; nothing where it is fine.
NameRule: TypeAlias = Callable[[str], list[str]]

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SERVICE = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"
_ENDS = "and must start and end with an alphanumeric character"

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', {_ENDS} (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{_ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SERVICE_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_SERVICE}')"
)
_QUALIFIED_WORDS = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} (e.g. 'MyName',  or "
    f"'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)
_CONFIG_KEY_WORDS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    f"'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
)
MAX_SUBDOMAIN = 253
MAX_LABEL = 63


def _build_rule(pattern: str, words: str, most: int) -> NameRule:
    compiled = re.compile(pattern, re.ASCII)

    def check(name: str) -> list[str]:
        told = [tell_length(most)] if len(name) > most else []
        return told if compiled.fullmatch(name) else [*told, words]

    return check


def tell_length(most: int) -> str:
    """It is too long."""
    return f"must be no more than {most} characters"


check_subdomain = _build_rule(_SUBDOMAIN, _SUBDOMAIN_WORDS, MAX_SUBDOMAIN)
check_label = _build_rule(_LABEL, _LABEL_WORDS, MAX_LABEL)
check_service_name = _build_rule(_SERVICE, _SERVICE_WORDS, MAX_LABEL)
check_label_value = _build_rule(_VALUE, _VALUE_WORDS, MAX_LABEL)


def check_segment(name: str) -> list[str]:
    """A name that only must fit into a path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in name]


_QUALIFIED_PATTERN = re.compile(_QUALIFIED, re.ASCII)


def check_qualified(name: str) -> list[str]:
    """The key of a label: a name, and in front of it perhaps a domain."""
    prefix, slash, short = name.rpartition("/")
    if "/" in prefix:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_QUALIFIED_WORDS} {optional}"]
    told = []
    if slash and not prefix:
        told.append("prefix part must be non-empty")
    elif slash:
        told += [f"prefix part {each}" for each in check_subdomain(prefix)]
    if not short:
        told.append("name part must be non-empty")
    elif len(short) > MAX_LABEL:
        told.append(f"name part {tell_length(MAX_LABEL)}")
    if not _QUALIFIED_PATTERN.fullmatch(short):
        told.append(f"name part {_QUALIFIED_WORDS}")
    return told


_CONFIG_PATTERN = re.compile(_CONFIG_KEY, re.ASCII)


def check_config_key(key: str) -> list[str]:
    """The key of an entry of a ConfigMap or a Secret."""
    told = [tell_length(MAX_SUBDOMAIN)] if len(key) > MAX_SUBDOMAIN else []
    if not _CONFIG_PATTERN.fullmatch(key):
        told.append(_CONFIG_KEY_WORDS)
    elif key in (".", ".."):
        told.append(f"must not be '{key}'")
    elif key.startswith(".."):
        told.append("must not start with '..'")
    return told
