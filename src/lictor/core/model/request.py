"""The request to evaluate, from an API server or from a file."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from lictor.core.errors import UsageError
from lictor.core.raw import Json, JsonObject


class Operation(StrEnum):
    """The operation of the caller, in the API server's words."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


# Kinds that controllers write about other objects, by group and kind. A rule that reports on them
# causes another object of such a kind, and so on without end.
BOOKKEEPING_KINDS = frozenset(
    (
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("wgpolicyk8s.io", "PolicyReport"),
        ("wgpolicyk8s.io", "ClusterPolicyReport"),
        ("openreports.io", "Report"),
        ("openreports.io", "ClusterReport"),
        ("reports.kyverno.io", "EphemeralReport"),
        ("reports.kyverno.io", "ClusterEphemeralReport"),
        ("kyverno.io", "UpdateRequest"),
    )
)


class GroupVersionKind(msgspec.Struct, frozen=True):
    """A fully qualified kind. The core group is the empty string."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> "GroupVersionKind":
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_bookkeeping(self) -> bool:
        """Whether only rules that name this kind match it, and no wildcard does."""
        return (self.group, self.kind) in BOOKKEEPING_KINDS


class Caller(msgspec.Struct, frozen=True):
    """The user as the API server knows them, and the roles bound to them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Json] = msgspec.field(default_factory=dict)
    roles: tuple[str, ...] = ()
    cluster_roles: tuple[str, ...] = ()


class UnknownNamespace(dict[str, str]):
    """No labels, because the namespace does not exist: rules that select by labels fail."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Request(msgspec.Struct, frozen=True):
    """One operation on one resource. `object` is plain JSON and is never changed in place."""

    kind: GroupVersionKind
    object: JsonObject | None
    old_object: JsonObject | None = None
    operation: Operation = Operation.CREATE
    subresource: str = ""
    # None: the caller is unknown (a file, a scan), and rules about callers match.
    caller: Caller | None = None
    namespace_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Values for variables that need a cluster, given explicitly: dotted name -> value.
    variables: Mapping[str, Json] = msgspec.field(default_factory=dict)
    # The original AdmissionRequest, if it came from an API server.
    admission: JsonObject | None = None
    background: bool = False

    @classmethod
    def of(
        cls,
        resource: JsonObject,
        *,
        operation: Operation | str = Operation.CREATE,
        old: JsonObject | None = None,
        caller: Caller | None = None,
        namespace_labels: Mapping[str, str] | None = None,
    ) -> "Request":
        """A request for a resource from a file; on DELETE it becomes the old object."""
        if not isinstance(resource, dict):
            found = type(resource).__name__
            raise UsageError(f"a resource is a dict as JSON gives it, not {found}")
        try:
            asked = Operation(operation)
        except ValueError as error:
            raise UsageError(f"{operation!r} is no operation of an admission") from error
        kind = GroupVersionKind.of(
            _read_text(resource.get("apiVersion")), _read_text(resource.get("kind"))
        )
        deleted = asked is Operation.DELETE
        return cls(
            kind=kind,
            object=None if deleted else resource,
            old_object=resource if deleted and old is None else old,
            operation=asked,
            caller=caller,
            namespace_labels=namespace_labels or {},
        )

    @property
    def resource(self) -> JsonObject:
        """The object to evaluate; on DELETE, the API server sends only the old one."""
        if self.object is not None:
            return self.object
        return self.old_object if self.old_object is not None else {}


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""
