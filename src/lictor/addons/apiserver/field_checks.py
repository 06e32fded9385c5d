"""Names, labels, selectors: how they are validated, and how a selector selects."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from lictor.addons.apiserver.field_errors import (
    AddCause,
    Cause,
    duplicate,
    forbidden,
    invalid,
    required,
    show,
    too_long,
    unsupported,
)
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text, read_texts
from lictor.core.errors import CompileError
from lictor.core.lang.label_selector import MapTest, Requirement, compile_label_selector
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
    # re: linear - parts of the names above are separated by their dots and slashes
    compiled = re.compile(pattern, re.ASCII)

    def check(name: str) -> list[str]:
        detail = [describe_limit(most)] if len(name) > most else []
        return detail if compiled.fullmatch(name) else [*detail, words]

    return check


def describe_limit(most: int) -> str:
    """It is too long."""
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
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for'
        )
        causes.append(invalid(path, owners, f"{detail} {controllers[0]} and {controllers[1]}"))
    return causes


def _check_finalizers(metadata: JsonObject, *, takes_any: bool) -> list[Cause]:
    path = "metadata.finalizers"
    causes: list[Cause] = []
    for index, name in enumerate(read_list(metadata, "finalizers")):
        causes += [invalid(path, name, why) for why in check_qualified(str(name))]
        if "/" not in str(name) and name not in _STANDARD_FINALIZERS and not takes_any:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"{path}[{index}]", name, detail))
    return causes


PORTS = range(1, 65_536)
PROTOCOLS = ("TCP", "UDP", "SCTP")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
# Stands for the value that the field has.
_OWN: Json = object()


class CheckedField:
    """A value of an object under validation: its path, its earlier version, and where errors go.

    Methods take the name of a field inside it; "" is the value itself.
    """

    __slots__ = ("_add", "old", "path", "value")

    def __init__(
        self, value: Json, path: str, add: AddCause, old: JsonObject | None = None
    ) -> None:
        self.value = value
        self.path = path
        self._add = add
        # None where nothing is replaced.
        self.old = old

    def at(self, name: str) -> "CheckedField":
        """A field that is an object; empty if it is missing."""
        old = None if self.old is None else read_object(self.old, name)
        return CheckedField(read_object(self.value, name), self._join(name), self._add, old)

    def entry(self, key: str) -> "CheckedField":
        """The value under a key of a map."""
        return CheckedField(self.get(key), f"{self.path}[{key}]", self._add)

    def items(self, name: str) -> "list[CheckedField]":
        """The items of a field that is a list."""
        path = self._join(name)
        return [
            CheckedField(item, f"{path}[{index}]", self._add)
            for index, item in enumerate(self.list(name))
        ]

    def get(self, name: str) -> Json:
        return self.value.get(name) if name else self.value

    def text(self, name: str) -> str:
        return read_text(self.value, name)

    def list(self, name: str) -> "list[Json]":
        return read_list(self.value, name)

    def _join(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path and name else self.path or name

    # --- errors

    def add(self, cause: Cause) -> None:
        self._add(cause)

    def invalid(self, name: str, why: str, value: Json = _OWN) -> None:
        self._add(invalid(self._join(name), self.get(name) if value is _OWN else value, why))

    def required(self, name: str, why: str = "") -> None:
        self._add(required(self._join(name), why))

    def forbid(self, name: str, why: str) -> None:
        self._add(forbidden(self._join(name), why))

    def unsupported(self, name: str, choices: Iterable[str], value: Json = _OWN) -> None:
        shown = self.get(name) if value is _OWN else value
        self._add(unsupported(self._join(name), shown, tuple(choices)))

    def duplicate(self, name: str, value: Json = _OWN) -> None:
        self._add(duplicate(self._join(name), self.get(name) if value is _OWN else value))

    def not_found(self, name: str) -> None:
        message = f"Not found: {show(self.get(name))}"
        self._add(Cause("FieldValueNotFound", message, self._join(name)))

    # --- checks

    def need(self, *names: str) -> None:
        """Fields that must not be missing or empty."""
        for name in names:
            if self.get(name) in (None, "", [], {}):
                self.required(name)

    def choice(self, name: str, choices: Iterable[str]) -> None:
        """One of several words, or empty."""
        value, supported = self.get(name), tuple(choices)
        if value not in (None, "") and value not in supported:
            self.unsupported(name, supported)

    def counts(self, *names: str) -> None:
        """Numbers that may not be negative."""
        for name in names:
            value = self.get(name)
            if isinstance(value, int) and value < 0:
                self.invalid(name, "must be greater than or equal to 0")

    def port(self, name: str, value: Json = _OWN) -> None:
        """The number of a port."""
        found = self.get(name) if value is _OWN else value
        if isinstance(found, int) and found not in PORTS:
            self.invalid(name, "must be between 1 and 65535, inclusive", found)

    def named(self, name: str, rule: NameRule, value: Json = _OWN) -> None:
        """A name that follows a rule, or empty."""
        found = self.get(name) if value is _OWN else value
        if isinstance(found, str) and found:
            for why in rule(found):
                self.invalid(name, why, found)

    def address(self, name: str, value: Json = _OWN) -> None:
        """An IP address."""
        found = self.get(name) if value is _OWN else value
        try:
            ipaddress.ip_address(str(found))
        except ValueError:
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            self.invalid(name, why, found)

    def unique_names(self, name: str) -> None:
        """A list of which no two items have the same name."""
        seen: set[str] = set()
        for item in self.items(name):
            found = item.text("name")
            if found and found in seen:
                item.duplicate("name")
            seen.add(found)

    def same(self, *names: str) -> None:
        """Fields that cannot change."""
        for name in names if self.old is not None else ():
            if self.get(name) != (self.old or {}).get(name):
                self.invalid(name, "field is immutable")

    def labels(self, name: str) -> None:
        """Keys and values of labels."""
        for cause in check_labels(read_object(self.value, name), self._join(name)):
            self._add(cause)

    def selector(self, name: str) -> None:
        """A label selector, or none."""
        if not isinstance(self.get(name), dict):
            return
        selector = self.at(name)
        selector.labels("matchLabels")
        for expression in selector.items("matchExpressions"):
            expression.check_expression()

    def check_expression(self) -> None:
        """One of `matchExpressions`."""
        operator, values = self.text("operator"), self.list("values")
        if operator not in _OPERATORS:
            self.invalid("operator", "not a valid selector operator", operator)
        elif operator in ("In", "NotIn") and not values:
            self.required("values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            self.forbid("values", why)
        for cause in check_labels({self.text("key"): ""}, self._join("key")):
            self._add(cause)


def compile_fit(selector: Json) -> MapTest | None:
    """A test of labels that raises CompileError for an invalid selector; None if all match."""
    labels = read_object(selector, "matchLabels")
    expressions = read_list(selector, "matchExpressions")
    if not labels and not expressions:
        return None
    requirements = tuple(
        Requirement(read_text(each, "key"), read_text(each, "operator"), read_texts(each, "values"))
        for each in expressions
    )
    try:
        return compile_label_selector(labels, requirements)
    except CompileError as error:
        return _refuse_all(error.message)


def _refuse_all(why: str) -> MapTest:
    # Such a selector is refused when it is written; one that is stored must not silently disable a
    # webhook.
    def fits(_: Mapping[str, str]) -> bool:
        raise CompileError(why)

    return fits
