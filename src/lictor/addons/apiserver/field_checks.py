"""Checks of the fields of an object: CheckedField, metadata, selectors."""

import ipaddress
from collections.abc import Iterable, Mapping

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
from lictor.addons.apiserver.name_rules import (
    NameRule,
    check_label_value,
    check_qualified,
    check_subdomain,
)
from lictor.core.errors import CompileError
from lictor.core.lang.label_selector import MapTest, Requirement, compile_label_selector
from lictor.core.raw import Json, JsonObject

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
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
# Stands for the value that the field has.
_OWN: Json = object()


class CheckedField:
    """A value of an object under validation: its path, its earlier version, and where errors go.

    Methods take the name of a field inside it; "" is the value itself.
    """

    __slots__ = ("_add", "_names", "old", "parent", "path", "value")

    def __init__(
        self,
        value: Json,
        path: str,
        add: AddCause,
        old: JsonObject | None = None,
        parent: "CheckedField | None" = None,
    ) -> None:
        self.value = value
        self.path = path
        self._add = add
        # None where nothing is replaced.
        self.old = old
        # What contains it; None for a whole object.
        self.parent = parent
        self._names: dict[str, set[str]] | None = None

    def at(self, name: str) -> "CheckedField":
        """A field that is an object; empty if it is missing."""
        old = None if self.old is None else read_object(self.old, name)
        found = read_object(self.value, name)
        return CheckedField(found, self._join(name), self._add, old, self)

    def entry(self, key: str) -> "CheckedField":
        """The value under a key of a map."""
        return CheckedField(self.get(key), f"{self.path}[{key}]", self._add, parent=self)

    def items(self, name: str) -> "list[CheckedField]":
        """The items of a field that is a list."""
        listed = self.list(name)
        if not listed:
            return []
        path = self._join(name)
        return [
            CheckedField(item, f"{path}[{index}]", self._add, parent=self)
            for index, item in enumerate(listed)
        ]

    def get(self, name: str) -> Json:
        return self.value.get(name) if name else self.value

    def text(self, name: str) -> str:
        return read_text(self.value, name)

    def list(self, name: str) -> "list[Json]":
        return read_list(self.value, name)

    def names(self, name: str) -> set[str]:
        """The names of the items of a list; read once, since each item may ask for them."""
        if self._names is None:
            self._names = {}
        if name not in self._names:
            self._names[name] = {read_text(item, "name") for item in self.list(name)}
        return self._names[name]

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

    def require(self, name: str, why: str) -> None:
        """A field that must not be missing or empty, with the reason."""
        if not self.get(name):
            self.required(name, why)

    def one(self, name: str, choices: tuple[str, ...]) -> None:
        """One of several words; empty is none of them."""
        value = self.get(name)
        if value not in choices:
            self.unsupported(name, choices, value or "")

    def between(self, name: str, least: int, most: int, why: str) -> None:
        """A number within these limits, or none."""
        value = self.get(name)
        if isinstance(value, int) and not least <= value <= most:
            self.invalid(name, why)

    def keep(self, name: str, why: str) -> None:
        """A field that may not be changed."""
        if self.old is not None and self.get(name) != self.old.get(name):
            self.forbid(name, why)

    def choice(self, name: str, choices: tuple[str, ...]) -> None:
        """One of several words, or empty."""
        value = self.get(name)
        if value not in (None, "") and value not in choices:
            self.unsupported(name, choices)

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
            if getattr(ipaddress.ip_address(str(found)), "ipv4_mapped", None) is not None:
                self.invalid(name, "must not be an IPv4-mapped IPv6 address", found)
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
