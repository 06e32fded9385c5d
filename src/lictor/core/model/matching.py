"""Records of rules: what they match, their conditions, and the data they load."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from lictor.core.model.metadata import LabelSelector, Strings
from lictor.core.raw import Json


def shaped_like(record: str, items: str = "") -> msgspec.Meta:
    """An annotation for a free-form field: it should look like the named record of this module.

    If it is a list, each of its entries should look like `items`.
    """
    return msgspec.Meta(extra={"shape": record, "items": items})


Conditions: TypeAlias = Annotated[Json, shaped_like("AnyAllConditions", items="Condition")]


FailureAction: TypeAlias = Literal["Audit", "Enforce"]


# The older fields also accept lower case.
AnyCaseAction: TypeAlias = Literal["audit", "enforce", "Audit", "Enforce"]


FailurePolicy: TypeAlias = Literal["Ignore", "Fail"]


CredentialProvider: TypeAlias = Literal["default", "amazon", "azure", "google", "github"]


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One comparison of `preconditions` or `deny.conditions`."""

    key: Json = None
    operator: str = ""
    value: Json = None
    message: str = ""


class AnyAllConditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Comparisons of which one (`any`) or each (`all`) must hold."""

    any: tuple[Condition, ...] = ()
    all: tuple[Condition, ...] = ()


class Subject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A user, a group or a service account."""

    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class ResourceDescription(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Names, labels and operations that a resource must have."""

    kinds: Strings = ()
    name: str = ""
    names: Strings = ()
    namespaces: Strings = ()
    annotations: dict[str, str] = {}
    selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    operations: tuple[Literal["CREATE", "CONNECT", "UPDATE", "DELETE"], ...] = ()


class ResourceFilter(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A resource and a caller; every part that is given must match."""

    resources: ResourceDescription = ResourceDescription()
    subjects: tuple[Subject, ...] = ()
    roles: Strings = ()
    cluster_roles: Strings = ()


class Match(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Filters of which one (`any`) or each (`all`) must match; or, the older form, one filter."""

    any: tuple[ResourceFilter, ...] = ()
    all: tuple[ResourceFilter, ...] = ()
    resources: ResourceDescription = ResourceDescription()
    subjects: tuple[Subject, ...] = ()
    roles: Strings = ()
    cluster_roles: Strings = ()


class MatchCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL expression with a name."""

    name: str
    expression: str


class ConfigMapReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A ConfigMap to read."""

    name: str
    namespace: str = ""


class RequestData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of the body of a POST."""

    key: str
    value: Json


class HttpHeader(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One header of a call."""

    key: str
    value: str


class ServiceCall(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A service other than the API server."""

    url: str
    headers: tuple[HttpHeader, ...] = ()
    ca_bundle: str = ""


class ContextApiCall(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A call of the Kubernetes API (`url_path`) or of a service."""

    url_path: str = ""
    method: Literal["GET", "POST"] = "GET"
    data: tuple[RequestData, ...] = ()
    service: ServiceCall | None = None
    default: Json = None
    jmes_path: str = ""


class RegistryCredentials(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How to log in to a registry."""

    allow_insecure_registry: bool = False
    providers: tuple[CredentialProvider, ...] = ()
    secrets: Strings = ()


class ImageRegistry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a registry has about an image."""

    reference: str
    jmes_path: str = ""
    image_registry_credentials: RegistryCredentials | None = None


class Variable(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A value, or a query on known variables."""

    value: Json = None
    jmes_path: str = ""
    default: Json = None


class GlobalReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A GlobalContextEntry to read."""

    name: str
    jmes_path: str = ""


class ContextEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A variable of a rule and where its value comes from."""

    name: str
    config_map: ConfigMapReference | None = None
    api_call: ContextApiCall | None = None
    image_registry: ImageRegistry | None = None
    variable: Variable | None = None
    global_reference: GlobalReference | None = None
