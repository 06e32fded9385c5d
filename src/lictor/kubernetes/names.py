"""The names of lictor's objects in the cluster, and which objects are lictor's."""

import msgspec

from lictor.kubernetes.resource import Resource


class Names(msgspec.Struct, frozen=True):
    """Names derived from the prefix and the namespace of an installation."""

    prefix: str = "lictor"
    namespace: str = "lictor"

    def webhook(self, name: str) -> str:
        """A webhook configuration, such as `resource-validating`."""
        return f"{self.prefix}-{name}-webhook-cfg"

    def webhook_entry(self, name: str) -> str:
        """One webhook in a configuration, such as `validate`: API servers require three labels."""
        return f"{name}.{self.prefix}.svc"

    @property
    def service(self) -> str:
        return f"{self.prefix}-svc"

    @property
    def config_map(self) -> str:
        return self.prefix

    @property
    def metrics_config_map(self) -> str:
        return f"{self.prefix}-metrics"

    @property
    def web(self) -> str:
        """Deployment and Service of the web UI."""
        return f"{self.prefix}-web"

    @property
    def boards_config_map(self) -> str:
        """The ConfigMap with the boards of the web UI."""
        return f"{self.prefix}-web-boards"

    def authority_secret(self) -> str:
        """The Secret with the certificate authority of the admission server."""
        return f"{self.service}.{self.namespace}.svc.{self.prefix}-tls-ca"

    def serving_secret(self) -> str:
        """The Secret with its serving certificate."""
        return f"{self.service}.{self.namespace}.svc.{self.prefix}-tls-pair"

    def controller(self, name: str) -> str:
        """A Deployment, such as `admission`."""
        return f"{self.prefix}-{name}-controller"

    def lease(self, name: str = "") -> str:
        """The Lease of one controller's leader; without a name, that of admission."""
        return f"{self.prefix}-{name}-controller" if name else self.prefix

    @property
    def web_lease(self) -> str:
        """The Lease of the web UI replica that sends notifications."""
        return f"{self.web}-notifications"

    @property
    def health_lease(self) -> str:
        return f"{self.prefix}-health"

    @property
    def quarantine_lease(self) -> str:
        """The Lease that lists quarantined policies."""
        return f"{self.prefix}-quarantine"

    @property
    def owner_role(self) -> str:
        """The ClusterRole that owns cluster-scoped objects, so that they are deleted with it."""
        return f"{self.prefix}:admission-controller"

    def service_account(self, name: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.prefix}-{name}-controller"


# The API groups of the installed kinds.
_GROUPS = frozenset(
    (
        "kyverno.io",
        "policies.kyverno.io",
        "reports.kyverno.io",
        "wgpolicyk8s.io",
        "openreports.io",
        "policies.kubewarden.io",
    )
)


def is_own_object(names: Names, resource: Resource, namespace: str, name: str) -> bool:
    """Everything in lictor's namespace, and its cluster-scoped objects."""
    # A kind that was guessed to be cluster-scoped is checked both ways.
    if namespace == names.namespace:
        return True
    if resource.namespaced:
        return False
    match resource.group, resource.plural:
        case "", "namespaces":
            return name == names.namespace
        case "rbac.authorization.k8s.io", "clusterroles" | "clusterrolebindings":
            return name.startswith(f"{names.prefix}:")
        case "admissionregistration.k8s.io", (
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations"
        ):
            return name.startswith(f"{names.prefix}-") and name.endswith("-webhook-cfg")
        case "apiextensions.k8s.io", "customresourcedefinitions":
            return name.partition(".")[2] in _GROUPS
        case _:
            return False
