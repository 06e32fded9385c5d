"""What Kubernetes documents share: metadata, label selectors, and the parts of a policy."""

from typing import Any, Protocol, TypeAlias

import msgspec

from lictor.core.raw import Json

Strings: TypeAlias = tuple[str, ...]


class Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Kubernetes' ObjectMeta; fields that the API server adds are kept unchanged."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: Json = None
    deletion_timestamp: Json = None
    deletion_grace_period_seconds: int | None = None
    owner_references: Json = None
    finalizers: Strings = ()
    managed_fields: Json = None
    self_link: str = ""


class LabelRequirement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of a label selector's `matchExpressions`."""

    key: str
    operator: str
    values: Strings = ()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which labels an object must have; the empty selector matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class PolicyRecord(Protocol):
    """A policy or a related document as a record, of any kind."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def spec(self) -> Any: ...
