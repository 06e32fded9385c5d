"""Objects by the names of their group and resource, for those who decide about requests."""

from collections.abc import Callable
from typing import Protocol

from lictor.apiserver.kind import Catalogue, ServedKind
from lictor.raw import Json, JsonObject


def copy_json(value: Json) -> Json:
    """Maps and lists are new, all the way down; scalars are shared."""
    if type(value) is dict:
        return {
            key: copy_json(inner) if type(inner) in (dict, list) else inner
            for key, inner in value.items()
        }
    if type(value) is list:
        return [copy_json(inner) if type(inner) in (dict, list) else inner for inner in value]
    return value


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


def read_object(holder: Json, field: str) -> JsonObject:
    """A field that is an object; empty where it is not there, or something else."""
    value = holder.get(field) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def read_list(holder: Json, field: str) -> list[Json]:
    """A field that is a list; empty where it is not there, or something else."""
    value = holder.get(field) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def read_text(holder: Json, field: str) -> str:
    """A field that is text; empty where it is not there, or something else."""
    value = holder.get(field) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""


def read_texts(holder: Json, field: str) -> tuple[str, ...]:
    """The texts of a field that is a list."""
    return tuple(each for each in read_list(holder, field) if isinstance(each, str))
