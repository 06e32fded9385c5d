"""What our own objects in the cluster are called; an installer chooses the prefix."""

import msgspec


class Names(msgspec.Struct, frozen=True):
    """Names that follow from the prefix and the namespace of an installation."""

    prefix: str = "lictor"
    namespace: str = "lictor"

    def webhook(self, name: str) -> str:
        """A webhook configuration, such as `resource-validating`."""
        return f"{self.prefix}-{name}-webhook-cfg"

    def webhook_entry(self, name: str) -> str:
        """One webhook in a configuration, such as `validate`: API servers want three labels."""
        return f"{name}.{self.prefix}.svc"

    @property
    def service(self) -> str:
        return f"{self.prefix}-svc"

    @property
    def cleanup_service(self) -> str:
        return f"{self.prefix}-cleanup-controller"

    @property
    def config_map(self) -> str:
        return self.prefix

    @property
    def metrics_config_map(self) -> str:
        return f"{self.prefix}-metrics"

    def authority_secret(self, service: str = "") -> str:
        """The Secret with the certificate authority of a service."""
        return f"{service or self.service}.{self.namespace}.svc.{self.prefix}-tls-ca"

    def serving_secret(self, service: str = "") -> str:
        """The Secret with the serving certificate of a service."""
        return f"{service or self.service}.{self.namespace}.svc.{self.prefix}-tls-pair"

    def controller(self, name: str) -> str:
        """A Deployment, such as `admission`."""
        return f"{self.prefix}-{name}-controller"

    def lease(self, name: str = "") -> str:
        """The Lease of one controller's leader; without a name, that of admission."""
        return f"{self.prefix}-{name}-controller" if name else self.prefix

    @property
    def health_lease(self) -> str:
        return f"{self.prefix}-health"

    @property
    def owner_role(self) -> str:
        """The ClusterRole that owns what has no namespace, so that it goes with us."""
        return f"{self.prefix}:admission-controller"

    def service_account(self, name: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.prefix}-{name}-controller"
