"""Structural schemas of custom kinds, read once: what stands where, and what is known of it.

Parts are read when an object first leads there: most objects touch little of a large schema.
"""

from collections.abc import Iterator, KeysView
from functools import cached_property

from lictor.raw import Json, JsonObject

_VALIDATIONS = "x-kubernetes-validations"
# Parts that only judge: they say nothing about what a field is.
_JUDGES = ("allOf", "anyOf", "oneOf")


class Schema:
    """One place of a schema."""

    def __init__(self, raw: JsonObject, *, is_root: bool = False) -> None:
        self.raw = raw
        self.type: str = raw.get("type") or ""
        self.is_nullable: bool = raw.get("nullable") is True
        self.keeps_unknown: bool = raw.get("x-kubernetes-preserve-unknown-fields") is True
        self.is_embedded: bool = raw.get("x-kubernetes-embedded-resource") is True
        self.is_int_or_string: bool = raw.get("x-kubernetes-int-or-string") is True
        # An object itself is no embedded one, but its metadata is no more the author's affair.
        self.is_object: bool = is_root or self.is_embedded
        self.list_type: str = raw.get("x-kubernetes-list-type") or "atomic"
        self.list_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
        self.is_atomic_map: bool = raw.get("x-kubernetes-map-type") == "atomic"
        self.has_default: bool = "default" in raw
        self._properties: JsonObject = raw.get("properties") or {}
        self._children: dict[str, Schema] = {}

    @property
    def names(self) -> KeysView[str]:
        """The names of the fields."""
        return self._properties.keys()

    def find(self, field: str) -> "Schema | None":
        """What is known of a field: by name, or as one of a map."""
        found = self._children.get(field)
        if found is None:
            raw = self._properties.get(field)
            if raw is None:
                return self.others
            found = self._children[field] = Schema(raw)
        return found

    @cached_property
    def others(self) -> "Schema | None":
        """What a map holds."""
        raw = self.raw.get("additionalProperties")
        return Schema(raw) if isinstance(raw, dict) else Schema({}) if raw is True else None

    @cached_property
    def items(self) -> "Schema | None":
        """What a list holds."""
        raw = self.raw.get("items")
        return Schema(raw) if isinstance(raw, dict) else None

    @cached_property
    def rules(self) -> tuple[JsonObject, ...]:
        """Rules in CEL about this place."""
        return tuple(self.raw.get(_VALIDATIONS) or ())

    @cached_property
    def has_rules(self) -> bool:
        """Are there rules here or further inside?"""
        return _mentions(self.raw, _VALIDATIONS)

    @cached_property
    def fills_in(self) -> bool:
        """Are there defaults further inside?"""
        return any(_mentions(part, "default") for part in self._inside())

    def _inside(self) -> Iterator[Json]:
        yield from self._properties.values()
        yield self.raw.get("additionalProperties")
        yield self.raw.get("items")

    def judges(self, word: str) -> tuple["Schema", ...]:
        """The schemas under `allOf`, `anyOf` or `oneOf`."""
        return self._judges[word]

    @cached_property
    def _judges(self) -> dict[str, tuple["Schema", ...]]:
        return {word: tuple(map(Schema, self.raw.get(word) or ())) for word in _JUDGES}

    @cached_property
    def forbidden(self) -> "Schema | None":
        """The schema under `not`."""
        raw = self.raw.get("not")
        return Schema(raw) if isinstance(raw, dict) else None


def _mentions(schema: Json, word: str) -> bool:
    if not isinstance(schema, dict):
        return False
    if word in schema:
        return True
    inside = (*(schema.get("properties") or {}).values(), schema.get("items"))
    return any(_mentions(part, word) for part in (*inside, schema.get("additionalProperties")))
