"""What do the objects that a rule is about look like? Built-in kinds, and those of given CRDs."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from lictor.kubernetes.custom_schemas import read_custom_type
from lictor.kubernetes.facts import load_section
from lictor.kubernetes.field_types import ANYTHING, FieldType, find_field_type, find_metadata
from lictor.lang.kind_selector import compile_kind_selector, parse_kind_selector
from lictor.lang.wildcard import has_wildcard
from lictor.lint.field import Field
from lictor.lint.match import list_filters
from lictor.raw import Json, JsonObject

# One for each kind that may stand there; a field that one of them has is right.
FieldTypes: TypeAlias = tuple[FieldType, ...]
NOTHING_KNOWN: Final[FieldTypes] = (ANYTHING,)


def is_known(types: FieldTypes) -> bool:
    """Is there a type, and does none of them take anything?"""
    return bool(types) and not any(_is_open(each) for each in types)


def _is_open(each: FieldType) -> bool:
    return each.scalar is None and not each.fields and each.others is None and each.element is None


class RuleSubject(msgspec.Struct, frozen=True):
    """The objects that a part of a policy is about: their kinds as people name them, and types."""

    label: str
    types: FieldTypes = NOTHING_KNOWN


class KnownSchemas:
    """Types by kind. Never changed; types of CRDs are read when first asked for."""

    def __init__(self, definitions: Iterable[Json] = ()) -> None:
        self._custom = {
            (f"{group}/{name}", kind): version
            for definition in definitions
            for group, kind, name, version in _list_versions(Field(definition))
        }
        self._read: dict[tuple[str, str], FieldType] = {}

    def of_kind(self, api_version: str, kind: str) -> FieldType:
        """The type of a kind; of one that nobody knows, only the metadata are known."""
        found = self._find_custom((api_version, kind)) or find_field_type(api_version, kind)
        return found or _unknown_object()

    def list_all(self) -> Iterator[tuple[str, str]]:
        """apiVersion and kind of everything that is known."""
        for version, kinds in load_section("kinds").items():
            yield from ((version, kind) for kind in kinds)
        yield from self._custom

    def has_custom(self, api_version: str, kind: str) -> bool:
        """Does one of the given definitions define it?"""
        return (api_version, kind) in self._custom

    def of_selector(self, text: str) -> FieldTypes:
        """The types of what a text such as `apps/v1/Deployment` in a match stands for."""
        selector = parse_kind_selector(text)
        if selector.subresource:
            return NOTHING_KNOWN
        if has_wildcard(selector.kind):
            return (_unknown_object(),)
        fits = compile_kind_selector(selector)
        versions = [
            version
            for version, kind in self._list_served(selector.kind)
            if fits(*_split(version), kind, "")
        ]
        return tuple(self.of_kind(v, selector.kind) for v in versions) or (_unknown_object(),)

    def of_match(self, rule: Field) -> RuleSubject:
        """What the match of a rule selects."""
        filters = list_filters(rule["match"])
        kinds = dict.fromkeys(k for each in filters for k in each["resources"]["kinds"].texts)
        types = tuple(t for kind in kinds for t in self.of_selector(kind))
        names = [parse_kind_selector(kind).kind for kind in kinds]
        return RuleSubject(" or ".join(dict.fromkeys(names)), types or NOTHING_KNOWN)

    def _list_served(self, kind: str) -> Iterator[tuple[str, str]]:
        for version, kinds in load_section("kinds").items():
            if kind in kinds:
                yield version, kind
        yield from (each for each in self._custom if each[1] == kind)

    def _find_custom(self, key: tuple[str, str]) -> FieldType | None:
        if key in self._custom and key not in self._read:
            self._read[key] = read_custom_type(self._custom[key])
        return self._read.get(key)


def _split(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _unknown_object() -> FieldType:
    place = FieldType()
    place.fields = {"metadata": find_metadata()}
    place.others = ANYTHING
    return place


def _list_versions(definition: Field) -> Iterator[tuple[str, str, str, JsonObject]]:
    """Group, kind, version and schema of what a CustomResourceDefinition defines."""
    spec = definition["spec"]
    group, kind = spec["group"].text, spec["names"]["kind"].text
    for version in spec["versions"].each():
        schema = version["schema"]["openAPIV3Schema"]
        if group and kind and version["name"].text and schema.is_object:
            yield group, kind, version["name"].text, schema.value
