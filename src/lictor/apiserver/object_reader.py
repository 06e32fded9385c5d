"""Objects by the names of their group and resource, for those who decide about requests."""

from collections.abc import Callable
from typing import Protocol

from lictor.apiserver.kind import Catalogue, ServedKind
from lictor.raw import JsonObject


class ObjectSource(Protocol):
    """What is read of the store."""

    def get(self, kind: ServedKind, namespace: str, name: str, /) -> JsonObject | None:
        """One object."""

    def list(self, kind: ServedKind, namespace: str = "", /) -> list[JsonObject]:
        """All of a kind, or those of one namespace."""

    def subscribe(self, group: str, plural: str, callback: Callable[..., None], /) -> object:
        """Call back after each change of an object of a kind."""


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
