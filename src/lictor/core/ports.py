"""External data that the core needs, as Protocols. Services implement them, tests pass fakes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from lictor.core.errors import NotProvidedError
from lictor.core.raw import Json, JsonObject


class HttpLimits(msgspec.Struct, frozen=True):
    """Permitted destinations of HTTP calls from expressions."""

    # Networks and host names that are never called; None: all internal ones.
    blocked: tuple[str, ...] | None = None
    # URL prefixes; if there are any, nothing else is called.
    allowed: tuple[str, ...] = ()
    # Whether namespaced policies may make calls at all.
    allows_namespaced: bool = False


class HttpAnswer(msgspec.Struct, frozen=True):
    """The response of a service, with any status; the body is None if it is not JSON."""

    status: int
    body: Json = None


class ApiCall(msgspec.Struct, frozen=True):
    """One call of the Kubernetes API (`url_path`) or of another service (`service_url`).

    A guarded call must comply with the HttpLimits, and its result is an HttpAnswer.
    """

    url_path: str = ""
    method: str = "GET"
    data: Json = None
    service_url: str = ""
    headers: Mapping[str, str] | None = None
    ca_bundle: str = ""
    guarded: bool = False
    # Whether an object chose the host: then a host that only lictor can reach is denied.
    is_chosen_by_object: bool = False


class RegistryAccess(msgspec.Struct, frozen=True):
    """The credentials that a policy wants to use for a registry."""

    # Names of credential providers: default, amazon, azure, google, github.
    providers: tuple[str, ...] = ()
    # Names of Secrets of type kubernetes.io/dockerconfigjson.
    secrets: tuple[str, ...] = ()
    # The namespace of a namespaced policy, whose Secrets are read; empty for the others.
    namespace: str = ""
    # Whether plain HTTP, or TLS with an unknown certificate, is allowed for this registry.
    allow_insecure: bool = False
    # The registries that the policy itself names; None: no object chooses the registry.
    named: frozenset[str] | None = None


# No credentials of a policy: anonymous access, or the login of the machine.
DEFAULT_ACCESS = RegistryAccess()


class Descriptor(msgspec.Struct, frozen=True):
    """A content descriptor of an OCI manifest or index."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = {}
    artifact_type: str = ""


class ImageManifest(msgspec.Struct, frozen=True):
    """A manifest as stored in the registry; `digest` was computed from `content`."""

    media_type: str
    digest: str
    content: bytes


class Registries(Protocol):
    """OCI registries. A repository includes its registry: `localhost:5005/team/app`.

    Content is verified against its digest; a mismatch raises CorruptContentError. A missing or
    invalid response raises LookupFailedError, missing content ImageNotFoundError.
    """

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest: ...

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes: ...

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        """Manifests with this digest as subject, by the API or the tag schema of OCI 1.1."""
        ...

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        """`trusted_root.json` of a Sigstore; both empty: of the public instance, or of TUF_ROOT.

        `mirror` is the URL of a TUF repository and `root` its first trusted root metadata;
        `namespace` is that of the policy that names them, empty if it has none.
        """
        ...


class ObjectQuery(msgspec.Struct, frozen=True):
    """Which objects of one kind, and which fields."""

    api_version: str
    kind: str
    # Empty: all namespaces, or a cluster-scoped kind.
    namespace: str = ""
    # In the API server's syntax; empty: all.
    label_selector: str = ""
    field_selector: str = ""
    # Dotted paths of the fields to keep; none: all.
    field_masks: tuple[str, ...] = ()


class ResourceFacts(msgspec.Struct, frozen=True):
    """How the API server serves a kind."""

    # The plural in lower case.
    resource: str
    namespaced: bool


class GuestLogLine(msgspec.Struct, frozen=True):
    """A log line from or about a Wasm policy.

    Never contains its settings; of bounded length, without control characters.
    """

    policy: str
    # trace, debug, info, warning, error.
    level: str
    message: str
    data: Mapping[str, str] = {}


class Lookups(Protocol):
    """Data that is not in the request. A method without a result raises LookupFailedError."""

    def config_map(self, namespace: str, name: str) -> JsonObject: ...

    def call_api(self, call: ApiCall) -> Json: ...

    def global_reference(self, name: str) -> Json:
        """Data kept for cluster-scoped policies: an entry, or `entry.projection`."""
        ...

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject: ...

    def registries(self) -> Registries:
        """For image verification; must not be called on the event loop's thread."""
        ...

    def resource(
        self, api_version: str, kind: str, namespace: str, name: str
    ) -> JsonObject | None: ...

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]: ...

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        """The objects sorted by namespace and name, without managed fields.

        May return the same sequence as the last call if nothing has changed since.
        """
        ...

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        """How a kind is served; raises LookupFailedError if it is not."""
        ...

    def resolve_host(self, host: str) -> tuple[str, ...]:
        """The addresses of a host name."""
        ...

    def log_line(self, line: GuestLogLine) -> None:
        """Log a line of a policy; dropped if there is no log."""
        ...

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        """Values given explicitly for context entries of one rule, by name (offline only)."""
        ...

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        """Values given explicitly for one iteration of a foreach (offline only)."""
        ...

    def now(self) -> datetime: ...


class NoLookups:
    """No external data: for policies that need none."""

    def config_map(self, namespace: str, name: str) -> JsonObject:
        raise NotProvidedError(f"ConfigMap {namespace}/{name} is not given")

    def call_api(self, call: ApiCall) -> Json:
        raise NotProvidedError(f"no cluster available for {call.url_path or call.service_url}")

    def global_reference(self, name: str) -> Json:
        raise NotProvidedError(f"global context entry {name} was not given")

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:  # noqa: ARG002
        raise NotProvidedError(f"no registry available for {reference}")

    def registries(self) -> Registries:
        raise NotProvidedError("no registry available")

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        raise NotProvidedError(f"no cluster available for {api_version} {kind} {namespace}/{name}")

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        raise NotProvidedError(
            f"no cluster available for {api_version} {kind} in {namespace or '*'}"
        )

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        raise NotProvidedError(f"no cluster available for {query.api_version} {query.kind}")

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        raise NotProvidedError(f"no cluster available for {api_version} {kind}")

    def resolve_host(self, host: str) -> tuple[str, ...]:
        raise NotProvidedError(f"no resolver for the host {host[:253]}")

    def log_line(self, line: GuestLogLine) -> None:
        """Drop the line."""

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:  # noqa: ARG002
        return {}

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:  # noqa: ARG002
        return {}

    def now(self) -> datetime:
        return datetime.now(UTC)
