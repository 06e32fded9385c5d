"""What the server must know of a built-in kind beside its generated facts, declared once per kind.

Every module of this package that has `RESOURCES` is read: a new kind needs no other file.
"""

import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lictor.addons.apiserver.field_errors import Say
from lictor.addons.apiserver.resources.columns import OTHER, TableColumns
from lictor.addons.apiserver.resources.validation import NameRule, check_subdomain
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    from lictor.addons.apiserver.controllers.workloads import ControllerClient


# Fills in the object that it is given: a copy that nobody else has.
Defaults: TypeAlias = Callable[[JsonObject], None]
# The object, what it replaces, and where findings go.
Validate: TypeAlias = Callable[[JsonObject, JsonObject | None, Say], None]
# In how many seconds the object is to be looked at again, where that is not left to changes.
Reconcile: TypeAlias = Callable[["ControllerClient", JsonObject], Awaitable[float | None]]


class SelectableField(msgspec.Struct, frozen=True):
    """A field by which objects can be selected, and what it counts as where it is not there."""

    path: tuple[str, ...]
    missing: str = ""


class ResourceController(msgspec.Struct, frozen=True):
    """The controller of a kind; its name is that of its ServiceAccount and of its Events."""

    name: str
    reconcile: Reconcile


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
    controller: ResourceController | None = None
    # Does `metadata.generation` say how often the content has changed?
    counts_generations: bool = False
    # Does replacing one that is not there create it?
    created_by_update: bool = False
    # What updates may change, by subresource; "" is the object itself. Nothing particular is said
    # of `status` where it is like that of most kinds.
    parts: Mapping[str, ObjectPart] = {}
    # What of the metadata a write of the status cannot change.
    status_keeps: tuple[str, ...] = ()
    # Must one who replaces it say which version of it?
    needs_version: bool = False
    # Does one who creates it say what its status is, though status is a subresource?
    created_with_status: bool = False
    # Are dependents left alone when it is deleted, unless told otherwise?
    orphans_dependents: bool = False
    # What one who deletes it without saying what becomes of dependents is warned of.
    deletion_warning: str = ""
    # Does one who deletes it get the object itself, and no Status?
    returned_when_deleted: bool = False
    # What an empty object holds already, so that nobody becomes the owner of these fields.
    empty_object: JsonObject = {}
    # What a write of the status cannot change, in the form of `fieldsV1`.
    status_resets: JsonObject = msgspec.field(default_factory=lambda: {"f:spec": {}})


def select_by(*names: str, missing: str = "") -> dict[str, SelectableField]:
    """Fields that are selected by their own path."""
    return {name: SelectableField(tuple(name.split(".")), missing) for name in names}


@cache
def builtin_resources() -> Mapping[tuple[str, str], BuiltinResource]:
    """All that are declared, by group and kind."""
    package = import_module(__package__)
    names = sorted(each.name for each in pkgutil.iter_modules(package.__path__))
    modules = (import_module(f"{__package__}.{name}") for name in names)
    declared = (each for module in modules for each in getattr(module, "RESOURCES", ()))
    return {(each.group, each.kind): each for each in declared}


def find_resource(group: str, kind: str) -> BuiltinResource:
    """What is declared of a kind; nothing particular where nothing is declared."""
    return builtin_resources().get((group, kind)) or BuiltinResource(group, kind)
