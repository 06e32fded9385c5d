"""What is asked of the server: by whom, of what, and how. Handed from step to step."""

from collections.abc import Mapping

import msgspec

from lictor.apiserver.kind import ServedKind
from lictor.model.request import Operation
from lictor.raw import JsonObject


class ApiUser(msgspec.Struct, frozen=True):
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class RequestAttributes(msgspec.Struct, frozen=True):
    """One request on one kind of object. For other paths there is only a user and a path."""

    user: ApiUser
    # get, list, watch, create, update, patch, delete, deletecollection
    verb: str
    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # None where nothing is written.
    operation: Operation | None = None
    dry_run: bool = False
    # CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, as admission shows them.
    options: JsonObject = msgspec.field(default_factory=dict)
    field_manager: str = ""
