"""What the server knows of a kind: names, traits, where it is served, how objects are read."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

import msgspec

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.name_rules import NameRule, check_subdomain
from lictor.addons.apiserver.table_columns import OTHER, TableColumns
from lictor.core.facts.facts import ALL_VERBS, SubresourceFacts
from lictor.core.facts.schemas import Form
from lictor.core.raw import JsonObject

# Changes the object that it is given, which is a private copy.
Defaults: TypeAlias = Callable[[JsonObject], None]
# Adds the errors of an object.
Validate: TypeAlias = Callable[[CheckedField], None]


class SelectableField(msgspec.Struct, frozen=True):
    """A field by which objects can be selected, and what it counts as where it is not there."""

    path: tuple[str, ...]
    missing: str = ""


class ObjectPart(msgspec.Struct, frozen=True):
    """What a write of a subresource takes of the object that was sent."""

    # From the object as it is and the one that was sent to the object with this part changed.
    carry: Callable[[JsonObject, JsonObject], JsonObject]
    # Instead of that of the kind.
    validate: Validate | None = None
    changes_metadata: bool = False


def _carry_status(old: JsonObject, sent: JsonObject) -> JsonObject:
    kept = {key: value for key, value in old.items() if key != "status"}
    return kept if sent.get("status") is None else {**kept, "status": sent["status"]}


STATUS = ObjectPart(_carry_status, changes_metadata=True)
CUSTOM_STATUS = ObjectPart(_carry_status)
# The metadata of kinds whose status is written without any of it.
WHOLE_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


class BuiltinResource(msgspec.Struct, frozen=True):
    """One kind. Custom kinds have one too, made from their definition."""

    group: str
    kind: str
    set_defaults: Defaults | None = None
    # The object with what follows from its uid, once it has one.
    set_uid_defaults: Callable[[JsonObject], JsonObject] | None = None
    validate: Validate | None = None
    validate_name: NameRule = check_subdomain
    takes_any_finalizer: bool = False
    columns: TableColumns = OTHER
    selectable_fields: Mapping[str, SelectableField] = {}
    # From one version to another; apiVersion and kind are the new ones already.
    convert: Callable[[JsonObject], JsonObject] | None = None
    # Does `metadata.generation` count the changes of the content?
    counts_generations: bool = False
    # Does replacing one that is not there create it?
    created_by_update: bool = False
    # What updates may change, by subresource; "" is the object itself. The usual `status` is not
    # listed.
    parts: Mapping[str, ObjectPart] = {}
    # What of the metadata a write of the status cannot change.
    status_keeps: tuple[str, ...] = ()
    # Does a replacement require a resourceVersion?
    needs_version: bool = False
    # May a creation set the status, though status is a subresource?
    created_with_status: bool = False
    # Is Orphan the default propagation policy?
    orphans_dependents: bool = False
    # The warning of a deletion without a propagation policy.
    deletion_warning: str = ""
    # Does a deletion return the object instead of a Status?
    returned_when_deleted: bool = False
    # What an empty object already contains: no manager owns these fields.
    empty_object: JsonObject = {}
    # What a write of the status cannot change, in the form of `fieldsV1`.
    status_resets: JsonObject = msgspec.field(default_factory=lambda: {"f:spec": {}})


def select_by(*names: str, missing: str = "") -> dict[str, SelectableField]:
    """Fields that are selected by their own path."""
    return {name: SelectableField(tuple(name.split(".")), missing) for name in names}


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
        """With defaults for missing fields."""

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
    """Reads objects in their storage version. Unknown kinds have no objects."""

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
        """Call back after each change."""
        self.objects.subscribe(group, plural, lambda *_: callback())
