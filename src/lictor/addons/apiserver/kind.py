"""What the server knows of a kind: its names, where it is served, and how its objects are read."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.resources.registry import BuiltinResource
from lictor.core.facts.facts import ALL_VERBS, SubresourceFacts
from lictor.core.facts.schemas import Form
from lictor.core.raw import JsonObject


class ObjectSchema(Protocol):
    """How objects of a kind are read, completed and checked. None changes what it is given."""

    @property
    def form(self) -> Form:
        """Fields and how they are merged, for patches and server-side apply."""

    def list_unknown(self, document: JsonObject) -> list[str]:
        """Paths of fields that the kind does not have, such as `spec.foo`; for strict requests."""

    def prune(self, document: JsonObject) -> JsonObject:
        """Without the fields that the kind does not have."""

    def apply_defaults(self, document: JsonObject) -> JsonObject:
        """With defaults where nothing was said."""

    def validate(
        self, document: JsonObject, old: JsonObject | None, subresource: str = ""
    ) -> list[Cause]:
        """What is wrong with it; `old` where it replaces something, or a part of it."""


class ServedKind(msgspec.Struct, frozen=True):
    """One version of a kind, as it is served."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: ObjectSchema
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    # status, scale, token, eviction, binding, approval, finalize, ephemeralcontainers, resize ...
    subresources: Mapping[str, SubresourceFacts] = {}
    # What is particular to the kind.
    traits: BuiltinResource = BuiltinResource("", "")
    # Custom kinds are pruned, defaulted and checked by their own schema.
    is_custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """Is the status written only through its subresource?"""
        return "status" in self.subresources

    @property
    def is_namespace(self) -> bool:
        """Are these namespaces themselves?"""
        return self.plural == "namespaces" and not self.group

    @property
    def is_pod(self) -> bool:
        """Are these Pods?"""
        return self.plural == "pods" and not self.group

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def resource(self) -> str:
        """Such as `deployments.apps`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class ObjectSource(Protocol):
    """What is read of the store."""

    def get(self, kind: ServedKind, namespace: str, name: str, /) -> JsonObject | None:
        """One object."""

    def list(self, kind: ServedKind, namespace: str = "", /) -> list[JsonObject]:
        """All of a kind, or those of one namespace."""

    def subscribe(self, group: str, plural: str, callback: Callable[..., None], /) -> object:
        """Call back after each change of an object of a kind."""


class Catalogue(Protocol):
    """All kinds of the moment: built in, and those of CustomResourceDefinitions."""

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        """The kind that is served there."""

    def find_kind(self, api_version: str, kind: str) -> ServedKind | None:
        """The same by apiVersion and kind."""

    def preferred(self, group: str, plural: str) -> ServedKind | None:
        """The version in which objects are kept."""

    def __iter__(self) -> Iterator[ServedKind]:
        """All, in the order of discovery."""


class ObjectReader:
    """Reads in the version in which objects are kept. A kind that nobody knows has no objects."""

    def __init__(self, objects: ObjectSource, catalogue: Catalogue) -> None:
        self.objects = objects
        self.catalogue = catalogue

    def get(self, group: str, plural: str, namespace: str, name: str) -> JsonObject | None:
        kind = self.catalogue.preferred(group, plural)
        return None if kind is None else self.objects.get(kind, namespace, name)

    def list(self, group: str, plural: str, namespace: str = "") -> list[JsonObject]:
        kind = self.catalogue.preferred(group, plural)
        return [] if kind is None else self.objects.list(kind, namespace)

    def on_change(self, group: str, plural: str, callback: Callable[[], None]) -> None:
        """Call back after each change, whatever it was."""
        self.objects.subscribe(group, plural, lambda *_: callback())
