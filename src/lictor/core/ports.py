"""What the core asks of the outside world. Rooms at the edge implement these; tests pass fakes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from lictor.core.errors import NotProvidedError
from lictor.core.raw import Json, JsonObject


class HttpLimits(msgspec.Struct, frozen=True):
    """Where expressions may make HTTP calls to."""

    # Networks and host names that are never called; None: whatever is inside.
    blocked: tuple[str, ...] | None = None
    # Beginnings of URLs; where there are some, nothing else is called.
    allowed: tuple[str, ...] = ()
    # May policies of a namespace make calls at all?
    allows_namespaced: bool = False


class HttpAnswer(msgspec.Struct, frozen=True):
    """What a service said, whatever its status; the body is None where it was no JSON."""

    status: int
    body: Json = None


class ApiCall(msgspec.Struct, frozen=True):
    """One call of the Kubernetes API (`url_path`) or of another service (`service_url`).

    A guarded call may only go where the HttpLimits let it, and its answer is an HttpAnswer.
    """

    url_path: str = ""
    method: str = "GET"
    data: Json = None
    service_url: str = ""
    headers: Mapping[str, str] | None = None
    ca_bundle: str = ""
    guarded: bool = False
    # Did an object choose the host? Then it is none that only lictor can reach.
    is_chosen_by_object: bool = False


class RegistryAccess(msgspec.Struct, frozen=True):
    """With whose credentials a policy wants a registry to be asked."""

    # Names of credential providers: default, amazon, azure, google, github.
    providers: tuple[str, ...] = ()
    # Names of Secrets of type kubernetes.io/dockerconfigjson.
    secrets: tuple[str, ...] = ()
    # That of a namespaced policy, whose Secrets are read there; empty for the others.
    namespace: str = ""
    # May plain HTTP, or TLS with an unknown certificate, be spoken with this registry?
    allow_insecure: bool = False
    # The registries that the policy itself names; None: no object chooses which one is asked.
    named: frozenset[str] | None = None


# Nobody's: what a registry shows to everyone, or to whom the machine is logged in as.
DEFAULT_ACCESS = RegistryAccess()


class Descriptor(msgspec.Struct, frozen=True):
    """What an OCI manifest or index says of a piece of content."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = {}
    artifact_type: str = ""


class ImageManifest(msgspec.Struct, frozen=True):
    """A manifest as the registry keeps it; `digest` was computed from `content`."""

    media_type: str
    digest: str
    content: bytes


class Registries(Protocol):
    """OCI registries. A repository is written with its registry: `localhost:5005/team/app`.

    What has a digest was checked against it: other bytes raise CorruptContentError. A registry that
    does not answer, or not as it should, raises LookupFailedError; what is not there raises
    ImageNotFoundError.
    """

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest: ...

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes: ...

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        """Manifests whose subject is that digest, by the API or the tag schema of OCI 1.1."""
        ...

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        """`trusted_root.json` of a Sigstore; both empty: of the public one, or of TUF_ROOT.

        `mirror` is the URL of a TUF repository and `root` its first trusted root metadata;
        `namespace` is that of the policy which names them, empty where it has none.
        """
        ...


class ObjectQuery(msgspec.Struct, frozen=True):
    """Which objects of one kind, and what of them."""

    api_version: str
    kind: str
    # Empty: those of all namespaces, or of a kind that lives in none.
    namespace: str = ""
    # As the API server takes them; empty: all.
    label_selector: str = ""
    field_selector: str = ""
    # Dotted paths of what is kept of each object; none: everything.
    field_masks: tuple[str, ...] = ()


class ResourceFacts(msgspec.Struct, frozen=True):
    """How the API server serves a kind."""

    # The plural in lower case.
    resource: str
    namespaced: bool


class GuestLogLine(msgspec.Struct, frozen=True):
    """What a policy in Wasm wants to have logged, or what is to be logged about it.

    Never its settings; of bounded length, and without control characters.
    """

    policy: str
    # trace, debug, info, warning, error.
    level: str
    message: str
    data: Mapping[str, str] = {}


class Lookups(Protocol):
    """Data that is not in the request. A method with no answer raises LookupFailedError."""

    def config_map(self, namespace: str, name: str) -> JsonObject: ...

    def call_api(self, call: ApiCall) -> Json: ...

    def global_reference(self, name: str, namespace: str) -> Json:
        """Data kept for all policies; `namespace` is that of who asks, empty where it has none."""
        ...

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject: ...

    def registries(self) -> Registries:
        """For whoever verifies images; not to be called on the thread that answers requests."""
        ...

    def resource(
        self, api_version: str, kind: str, namespace: str, name: str
    ) -> JsonObject | None: ...

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]: ...

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        """The objects in the order of namespace and name, without managed fields.

        The very same sequence as the last time may be given where nothing has changed since.
        """
        ...

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        """How a kind is served; LookupFailedError where it is not."""
        ...

    def resolve_host(self, host: str) -> tuple[str, ...]:
        """The addresses of a host by its name."""
        ...

    def log_line(self, line: GuestLogLine) -> None:
        """Log a line of a policy; dropped where nobody reads logs."""
        ...

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        """Values given by hand for context entries of one rule: name -> value (offline only)."""
        ...

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        """Values given by hand for one pass of a foreach (offline only)."""
        ...

    def now(self) -> datetime: ...


class NoLookups:
    """A world that holds nothing: for policies that need nothing from outside."""

    def config_map(self, namespace: str, name: str) -> JsonObject:
        raise NotProvidedError(f"ConfigMap {namespace}/{name} was not given")

    def call_api(self, call: ApiCall) -> Json:
        raise NotProvidedError(f"no cluster to ask for {call.url_path or call.service_url}")

    def global_reference(self, name: str, namespace: str) -> Json:  # noqa: ARG002
        raise NotProvidedError(f"global context entry {name} was not given")

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:  # noqa: ARG002
        raise NotProvidedError(f"no registry to ask for {reference}")

    def registries(self) -> Registries:
        raise NotProvidedError("no registry to ask")

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        raise NotProvidedError(f"no cluster to ask for {api_version} {kind} {namespace}/{name}")

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        raise NotProvidedError(f"no cluster to ask for {api_version} {kind} in {namespace or '*'}")

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        raise NotProvidedError(f"no cluster to ask for {query.api_version} {query.kind}")

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        raise NotProvidedError(f"no cluster to ask for {api_version} {kind}")

    def resolve_host(self, host: str) -> tuple[str, ...]:
        raise NotProvidedError(f"nobody to ask for the addresses of {host[:253]}")

    def log_line(self, line: GuestLogLine) -> None:
        """Nobody reads it."""

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:  # noqa: ARG002
        return {}

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:  # noqa: ARG002
        return {}

    def now(self) -> datetime:
        return datetime.now(UTC)
