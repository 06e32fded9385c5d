"""PolicyServer objects, and the names that Kubewarden gives to what belongs to one."""

import msgspec

from lictor.addons.kubewarden.family.capabilities import read_capabilities
from lictor.core.errors import CompileError
from lictor.core.families.kind_facts import WebhookPath
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

DEFAULT_SERVER = "default"
PART_OF = "app.kubernetes.io/part-of"
KUBEWARDEN = "kubewarden"
SERVER_LABEL = "kubewarden/policy-server"
CONFIG_VERSION = "kubewarden/config-version"
FINALIZER = "kubewarden.io/finalizer"
AUTHORITY_SECRET = "kubewarden-ca"  # noqa: S105  (a name)
# What Kubewarden put there before release 1.14.
OLD_FINALIZER = "kubewarden"
POLICIES_FILE = "policies.yml"
SOURCES_FILE = "sources.yml"


class SecurityContexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the Pod and the container of a policy server may do; empty: as little as possible."""

    container: JsonObject | None = None
    pod: JsonObject | None = None


class PolicyServerSpec(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True
):
    """How the Pods that evaluate policies are run."""

    image: str
    replicas: int = 1
    # A number, or a text such as 50%.
    min_available: Json = None
    max_unavailable: Json = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    env: tuple[JsonObject, ...] = ()
    service_account_name: str = ""
    image_pull_secret: str = ""
    insecure_sources: tuple[str, ...] = ()
    # Host -> certificates (PEM) of the authorities that are trusted there.
    source_authorities: dict[str, tuple[str, ...]] = {}
    # ConfigMaps, with the keys `verification-config` and `sigstore-trust-config`.
    verification_config: str = ""
    sigstore_trust_config: str = ""
    security_contexts: SecurityContexts = SecurityContexts()
    affinity: JsonObject = {}
    limits: JsonObject = {}
    requests: JsonObject = {}
    tolerations: tuple[JsonObject, ...] = ()
    priority_class_name: str = ""
    # The host calls that policies of namespaces may make; empty: none.
    namespaced_policies_capabilities: tuple[str, ...] = ()
    webhook_port: int = 8443
    readiness_probe_port: int = 8081
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        """A wrong pattern would keep the server from starting, with all of its policies."""
        try:
            read_capabilities(self.namespaced_policies_capabilities)
        except CompileError as error:
            raise ValueError(f"namespacedPoliciesCapabilities: {error}") from error


class PolicyServer(msgspec.Struct, frozen=True):
    """One PolicyServer as the cluster has it."""

    name: str
    uid: str
    spec: PolicyServerSpec
    is_going: bool = False

    @property
    def full_name(self) -> str:
        """The name of its Deployment, Service, ConfigMap, Secret and PodDisruptionBudget."""
        return name_server_objects(self.name)

    @property
    def runs_lictor(self) -> bool:
        """Is its image one of lictor, which needs the command `policy-server`?"""
        image = self.spec.image.rpartition("/")[2].partition("@")[0].partition(":")[0]
        return image == "lictor"


def name_server_objects(server: str) -> str:
    """What the objects of a policy server are called."""
    return f"policy-server-{server}"


def read_server(document: JsonObject) -> PolicyServer:
    """A PolicyServer from its document; msgspec.ValidationError where it cannot be one."""
    metadata = document["metadata"]
    return PolicyServer(
        str(metadata["name"]),
        str(metadata.get("uid") or ""),
        convert_record(document.get("spec") or {}, PolicyServerSpec),
        bool(metadata.get("deletionTimestamp")),
    )


def choose_prefix(*, namespaced: bool, is_group: bool) -> str:
    """What the unique names of policies of a kind begin with."""
    scope = "namespaced" if namespaced else "clusterwide"
    return f"{scope}-group" if is_group else scope


def name_policy(*, namespace: str, name: str, is_group: bool) -> str:
    """The name under which servers know a policy: that of its webhook, and part of its path."""
    prefix = choose_prefix(namespaced=bool(namespace), is_group=is_group)
    return WebhookPath(policy_prefix=prefix).name_policy(namespace, name)
