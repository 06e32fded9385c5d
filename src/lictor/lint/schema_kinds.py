"""The schemas of the objects that a rule matches: built-in kinds, and those of given CRDs."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, TypeAlias

import msgspec

from lictor.core.facts.custom_schemas import read_custom_form, read_custom_type
from lictor.core.facts.facts import load_section
from lictor.core.facts.field_types import ANYTHING, FieldType, find_field_type, find_metadata
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.facts.schemas import Form, find_form
from lictor.core.lang.kind_selector import KindSelector, compile_kind_selector, parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.raw import Json, JsonObject
from lictor.lint.field import Field
from lictor.lint.match import list_filters

# One for each possible kind; a field that one of them has is valid.
FieldTypes: TypeAlias = tuple[FieldType, ...]
NOTHING_KNOWN: Final[FieldTypes] = (ANYTHING,)


def is_known(types: FieldTypes) -> bool:
    """Whether there is a type, and none of them allows anything."""
    return bool(types) and not any(_is_open(each) for each in types)


def _is_open(each: FieldType) -> bool:
    return each.scalar is None and not each.fields and each.others is None and each.element is None


class RuleSubject(msgspec.Struct, frozen=True):
    """The objects that a part of a policy matches: their kinds as text, and types."""

    label: str
    types: FieldTypes = NOTHING_KNOWN


class KnownSchemas:
    """Types by kind. Immutable; types of CRDs are read on demand."""

    def __init__(self, definitions: Iterable[Json] = ()) -> None:
        self._definitions = tuple(definitions)
        # apiVersion and kind -> the schema; empty if the definition has none.
        self._custom = {
            (f"{group}/{name}", kind): version
            for definition in self._definitions
            for group, kind, name, version in _list_versions(Field(definition))
        }
        self._types: dict[tuple[str, str], FieldType] = {}
        self._forms: dict[tuple[str, str], Form] = {}

    @cached_property
    def names(self) -> ResourceNames:
        """Maps resource names to kinds, including the given definitions."""
        return builtin_names().with_crds(self._definitions)

    def of_kind(self, api_version: str, kind: str) -> FieldType:
        """The type of a kind; of an unknown one, only the metadata."""
        found = self._find_custom((api_version, kind)) or find_field_type(api_version, kind)
        return found or _unknown_object()

    def find_form(self, api_version: str, kind: str) -> Form | None:
        """The CEL form of a kind; None if it is unknown."""
        key = (api_version, kind)
        if not self._custom.get(key):
            return find_form(api_version, kind)
        if key not in self._forms:
            self._forms[key] = read_custom_form(self._custom[key])
        return self._forms[key]

    def find_resource_form(self, api_version: str, resource: str) -> Form | None:
        """The same by the name of a resource, as in `resource.Get`."""
        found = self.names.of_resource(*_split(api_version), resource)
        return None if found is None else self.find_form(found.api_version, found.kind)

    def list_all(self) -> Iterator[tuple[str, str]]:
        """apiVersion and kind of all known kinds."""
        for version, kinds in load_section("kinds").items():
            yield from ((version, kind) for kind in kinds)
        yield from self._custom

    def list_custom(self, group: str = "*") -> dict[str, list[str]]:
        """The versions of the given definitions by kind; `*` matches any group."""
        found: dict[str, list[str]] = {}
        for api_version, kind in self._custom:
            own, version = _split(api_version)
            if group in ("*", own):
                found.setdefault(kind, []).append(version)
        return found

    def has_custom(self, api_version: str, kind: str) -> bool:
        """Whether one of the given definitions defines it."""
        return (api_version, kind) in self._custom

    def of_selector(self, text: str) -> FieldTypes:
        """The types that a text such as `apps/v1/Deployment` in a match selects."""
        selector = parse_kind_selector(text)
        if selector.subresource:
            return NOTHING_KNOWN
        versions = self._list_versions(selector)
        return tuple(self.of_kind(v, selector.kind) for v in versions) or (_unknown_object(),)

    def find_forms(self, kinds: Iterable[str]) -> tuple[Form, ...]:
        """The forms of kinds as a match names them; none at all if one of them is unknown."""
        forms: list[Form | None] = []
        for text in kinds:
            selector = parse_kind_selector(text)
            versions = [] if selector.subresource else self._list_versions(selector)
            forms += [self.find_form(version, selector.kind) for version in versions] or [None]
        known = tuple(form for form in forms if form is not None)
        return known if len(known) == len(forms) else ()

    def of_match(self, rule: Field) -> RuleSubject:
        """What the match of a rule selects."""
        kinds = list_matched_kinds(rule)
        types = tuple(t for kind in kinds for t in self.of_selector(kind))
        names = [parse_kind_selector(kind).kind for kind in kinds]
        return RuleSubject(" or ".join(dict.fromkeys(names)), types or NOTHING_KNOWN)

    def _list_versions(self, selector: KindSelector) -> list[str]:
        """The versions of a kind; none if it has a wildcard."""
        if has_wildcard(selector.kind):
            return []
        fits = compile_kind_selector(selector)
        return [
            version
            for version, kind in self.list_all()
            if kind == selector.kind and fits(*_split(version), kind, "")
        ]

    def _find_custom(self, key: tuple[str, str]) -> FieldType | None:
        if self._custom.get(key) and key not in self._types:
            self._types[key] = read_custom_type(self._custom[key])
        return self._types.get(key)


def list_matched_kinds(rule: Field) -> tuple[str, ...]:
    """The kinds in the match of a rule, without duplicates."""
    filters = list_filters(rule["match"])
    return tuple(dict.fromkeys(k for each in filters for k in each["resources"]["kinds"].texts))


def _split(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _unknown_object() -> FieldType:
    place = FieldType()
    place.fields = {"metadata": find_metadata()}
    place.others = ANYTHING
    return place


def _list_versions(definition: Field) -> Iterator[tuple[str, str, str, JsonObject]]:
    """Group, kind, version and schema of a CustomResourceDefinition."""
    spec = definition["spec"]
    group, kind = spec["group"].text, spec["names"]["kind"].text
    for version in spec["versions"].each():
        schema = version["schema"]["openAPIV3Schema"]
        if not group or not kind or not version["name"].text or version["served"].value is False:
            continue
        # With preserveUnknownFields, the schema is incomplete.
        is_told = schema.is_object and not spec["preserveUnknownFields"].is_true
        is_told = is_told and _is_shallow(schema.value)
        yield group, kind, version["name"].text, schema.value if is_told else {}


# Real schemas have some thirty levels; each is read recursively.
_MAX_DEPTH = 150


def _is_shallow(schema: Json) -> bool:
    level: list[Json] = [schema]
    for _ in range(_MAX_DEPTH):
        level = [inner for each in level for inner in _list_inner(each)]
        if not level:
            return True
    return False


def _list_inner(value: Json) -> Iterable[Json]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
