"""Validation that many kinds share: names, labels, selectors. What is found goes to `say`."""

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from lictor.addons.apiserver.field_errors import (
    INVALID,
    Cause,
    Say,
    forbidden,
    invalid,
    required,
    show,
    too_long,
    unsupported,
)
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.core.raw import Json, JsonObject

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
    # re: linear - parts of the names above are told apart by their dots and slashes
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


def take_any_name(name: str) -> list[str]:
    """Names that nobody looks at."""
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


_MAX_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = frozenset(("orphan", "foregroundDeletion", "kubernetes"))
_OWNER_FIELDS = (
    ("apiVersion", "version must not be empty"),
    ("kind", "must not be empty"),
    ("name", "must not be empty"),
    ("uid", "must not be empty"),
)


def validate_metadata(
    document: JsonObject,
    old: JsonObject | None,
    rule: NameRule = check_subdomain,
    *,
    takes_any_finalizer: bool = False,
) -> list[Cause]:
    """Everything that is wrong. Names of objects that are there already are let be."""
    metadata = read_object(document, "metadata")
    causes = [] if old is not None else _check_name(metadata, rule)
    causes += check_labels(read_object(metadata, "labels"), "metadata.labels")
    causes += check_annotations(read_object(metadata, "annotations"), "metadata.annotations")
    if "ownerReferences" in metadata:
        causes += _check_owners(metadata)
    if "finalizers" in metadata:
        causes += _check_finalizers(metadata, takes_any=takes_any_finalizer)
    return causes


def _check_name(metadata: JsonObject, rule: NameRule) -> list[Cause]:
    name, prefix = read_text(metadata, "name"), read_text(metadata, "generateName")
    causes = []
    if prefix:
        # What comes behind a dash is still to be made.
        shown = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        causes += [invalid("metadata.generateName", prefix, why) for why in rule(shown)]
    if not name:
        return [*causes, required("metadata.name", "name or generateName is required")]
    return [*causes, *(invalid("metadata.name", name, why) for why in rule(name))]


def check_labels(labels: JsonObject, path: str) -> list[Cause]:
    """Keys and values of labels."""
    causes: list[Cause] = []
    for key, value in labels.items():
        causes += [invalid(path, key, why) for why in check_qualified(key)]
        if isinstance(value, str):
            causes += [invalid(path, value, why) for why in check_label_value(value)]
    return causes


def check_annotations(annotations: JsonObject, path: str) -> list[Cause]:
    """Keys of annotations, and how much they are together."""
    causes: list[Cause] = []
    size = 0
    for key, value in annotations.items():
        causes += [invalid(path, key, why) for why in check_qualified(key.lower())]
        size += len(key) + (len(value.encode()) if isinstance(value, str) else 0)
    if size > _MAX_ANNOTATIONS:
        causes.append(too_long(path, _MAX_ANNOTATIONS))
    return causes


def _check_owners(metadata: JsonObject) -> list[Cause]:
    path = "metadata.ownerReferences"
    owners = read_list(metadata, "ownerReferences")
    causes = [
        invalid(f"{path}.{field}", "", why)
        for owner in owners
        for field, why in _OWNER_FIELDS
        if not read_text(owner, field)
    ]
    controllers = [
        f"{read_text(each, 'kind')}/{read_text(each, 'name')}"
        for each in owners
        if isinstance(each, dict) and each.get("controller") is True
    ]
    if len(controllers) > 1:
        told = 'Only one reference can have Controller set to true. Found "true" in references for'
        causes.append(invalid(path, owners, f"{told} {controllers[0]} and {controllers[1]}"))
    return causes


def _check_finalizers(metadata: JsonObject, *, takes_any: bool) -> list[Cause]:
    path = "metadata.finalizers"
    causes: list[Cause] = []
    for index, name in enumerate(read_list(metadata, "finalizers")):
        causes += [invalid(path, name, why) for why in check_qualified(str(name))]
        if "/" not in str(name) and name not in _STANDARD_FINALIZERS and not takes_any:
            told = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"{path}[{index}]", name, told))
    return causes


PORTS = range(1, 65_536)
PROTOCOLS = ("TCP", "UDP", "SCTP")
_IMMUTABLE = "field is immutable"
_AT_LEAST_ZERO = "must be greater than or equal to 0"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def say_all(causes: Iterable[Cause], say: Say) -> None:
    """Tell several."""
    for cause in causes:
        say(cause)


def need(holder: JsonObject, fields: Iterable[str], path: str, say: Say) -> None:
    """Fields that must be there, and not be empty."""
    for field in fields:
        if holder.get(field) in (None, "", [], {}):
            say(required(f"{path}.{field}" if path else field))


def check_choice(value: Json, choices: Iterable[str], path: str, say: Say) -> None:
    """One of several words; nothing said is fine."""
    supported = tuple(choices)
    if value not in (None, "") and value not in supported:
        say(unsupported(path, value, supported))


def check_counts(holder: JsonObject, fields: Iterable[str], path: str, say: Say) -> None:
    """Numbers that may not be negative."""
    for field in fields:
        value = holder.get(field)
        if isinstance(value, int) and value < 0:
            say(invalid(f"{path}.{field}", value, _AT_LEAST_ZERO))


def check_port(value: Json, path: str, say: Say) -> None:
    """The number of a port."""
    if isinstance(value, int) and value not in PORTS:
        say(invalid(path, value, "must be between 1 and 65535, inclusive"))


def check_named(value: Json, rule: NameRule, path: str, say: Say) -> None:
    """A name that follows a rule; nothing said is fine."""
    if isinstance(value, str) and value:
        say_all((invalid(path, value, why) for why in rule(value)), say)


def check_address(value: Json, path: str, say: Say) -> None:
    """An IP address."""
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        told = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        say(invalid(path, value, told))


def check_unique(names: Iterable[str], path: str, field: str, say: Say) -> None:
    """Names of which each may be there once."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name and name in seen:
            say(
                Cause(
                    "FieldValueDuplicate",
                    f"Duplicate value: {show(name)}",
                    f"{path}[{index}].{field}",
                )
            )
        seen.add(name)


def check_same(
    new: JsonObject, old: JsonObject | None, fields: Iterable[str], path: str, say: Say
) -> None:
    """Fields that stay as they are once they are there."""
    if old is None:
        return
    for field in fields:
        if new.get(field) != old.get(field):
            place = f"{path}.{field}" if path else field
            say(Cause(INVALID, f"Invalid value: {show(new.get(field))}: {_IMMUTABLE}", place))


def check_selector(selector: Json, path: str, say: Say) -> None:
    """A label selector; nothing said is fine."""
    if not isinstance(selector, dict):
        return
    say_all(check_labels(read_object(selector, "matchLabels"), f"{path}.matchLabels"), say)
    for index, each in enumerate(read_list(selector, "matchExpressions")):
        _check_expression(each, f"{path}.matchExpressions[{index}]", say)


def _check_expression(expression: JsonObject, path: str, say: Say) -> None:
    operator = read_text(expression, "operator")
    values = read_list(expression, "values")
    if operator not in _OPERATORS:
        say(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif operator in ("In", "NotIn") and not values:
        told = "must be specified when `operator` is 'In' or 'NotIn'"
        say(required(f"{path}.values", told))
    elif operator in ("Exists", "DoesNotExist") and values:
        told = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        say(forbidden(f"{path}.values", told))
    say_all(check_labels({read_text(expression, "key"): ""}, f"{path}.key"), say)
