"""Rules for names: what is wrong with the name of an object, a label or a port."""

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
    # re: linear - parts of the names above are separated by their dots and slashes
    compiled = re.compile(pattern, re.ASCII)

    def check(name: str) -> list[str]:
        detail = [describe_limit(most)] if len(name) > most else []
        return detail if compiled.fullmatch(name) else [*detail, words]

    return check


def describe_limit(most: int) -> str:
    """The message for a name that is too long."""
    return f"must be no more than {most} characters"


check_subdomain = _build_rule(_SUBDOMAIN, _SUBDOMAIN_WORDS, MAX_SUBDOMAIN)
check_label = _build_rule(_LABEL, _LABEL_WORDS, MAX_LABEL)
check_service_name = _build_rule(_SERVICE, _SERVICE_WORDS, MAX_LABEL)
check_label_value = _build_rule(_VALUE, _VALUE_WORDS, MAX_LABEL)


def take_any_name(name: str) -> list[str]:
    """Accept every name."""
    del name
    return []


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
    detail = []
    if slash and not prefix:
        detail.append("prefix part must be non-empty")
    elif slash:
        detail += [f"prefix part {each}" for each in check_subdomain(prefix)]
    if not short:
        detail.append("name part must be non-empty")
    elif len(short) > MAX_LABEL:
        detail.append(f"name part {describe_limit(MAX_LABEL)}")
    if not _QUALIFIED_PATTERN.fullmatch(short):
        detail.append(f"name part {_QUALIFIED_WORDS}")
    return detail


_CONFIG_PATTERN = re.compile(_CONFIG_KEY, re.ASCII)


def check_config_key(key: str) -> list[str]:
    """The key of an entry of a ConfigMap or a Secret."""
    detail = [describe_limit(MAX_SUBDOMAIN)] if len(key) > MAX_SUBDOMAIN else []
    if not _CONFIG_PATTERN.fullmatch(key):
        detail.append(_CONFIG_KEY_WORDS)
    elif key in (".", ".."):
        detail.append(f"must not be '{key}'")
    elif key.startswith(".."):
        detail.append("must not start with '..'")
    return detail


def check_port_name(name: str) -> list[str]:
    """The name of a port of a container."""
    checks = (
        (len(name) > 15, describe_limit(15)),
        (
            not re.fullmatch(r"[-a-z0-9]+", name),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (not re.search(r"[a-z]", name), "must contain at least one letter (a-z)"),
        ("--" in name, "must not contain consecutive hyphens"),
        (name[0] == "-" or name[-1] == "-", "must not begin or end with a hyphen"),
    )
    return [why for is_wrong, why in checks if is_wrong]


# re: linear - the two parts have no slash in common
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\S+")


def check_domain_path(name: str) -> list[str]:
    """A domain and a path, such as the controller of an IngressClass."""
    why = 'must be a domain-prefixed path (such as "acme.io/foo")'
    return [] if _DOMAIN_PATH.fullmatch(name) else [why]


# The rules by the names that kinds.yaml uses.
NAME_RULES: dict[str, NameRule] = {
    "any": take_any_name,
    "domain_path": check_domain_path,
    "label": check_label,
    "port": check_port_name,
    "qualified": check_qualified,
    "segment": check_segment,
    "service": check_service_name,
    "subdomain": check_subdomain,
}
