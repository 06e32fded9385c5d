"""Kinds of the API and their paths."""

import msgspec

from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.families.family import PolicyKind
from lictor.core.families.registry import registry
from lictor.core.lang.url import escape_segment


class Resource(msgspec.Struct, frozen=True):
    """A kind of object as the API server serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of one object, or of a subresource.

        Raises ApiError for a name that would change the path.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(map(escape_segment, parts))


def _classic(version: str, plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("kyverno.io", version, plural, kind, namespaced)


def find_resource(kind: PolicyKind) -> Resource:
    """A kind of policy as the API server serves it."""
    return Resource(
        kind.group, kind.preferred_version, kind.plural, kind.kind, namespaced=kind.namespaced
    )


GLOBAL_CONTEXT_ENTRY = _classic(
    "v2beta1", "globalcontextentries", "GlobalContextEntry", namespaced=False
)
UPDATE_REQUEST = _classic("v2", "updaterequests", "UpdateRequest", namespaced=True)

POLICY_REPORT = Resource("wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport")
CLUSTER_POLICY_REPORT = Resource(
    "wgpolicyk8s.io", "v1alpha2", "clusterpolicyreports", "ClusterPolicyReport", namespaced=False
)
OPEN_REPORT = Resource("openreports.io", "v1alpha1", "reports", "Report")
CLUSTER_OPEN_REPORT = Resource(
    "openreports.io", "v1alpha1", "clusterreports", "ClusterReport", namespaced=False
)
EPHEMERAL_REPORT = Resource("reports.kyverno.io", "v1", "ephemeralreports", "EphemeralReport")
CLUSTER_EPHEMERAL_REPORT = Resource(
    "reports.kyverno.io",
    "v1",
    "clusterephemeralreports",
    "ClusterEphemeralReport",
    namespaced=False,
)

_ADMISSION = "admissionregistration.k8s.io"
VALIDATING_WEBHOOK = Resource(
    _ADMISSION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING_WEBHOOK = Resource(
    _ADMISSION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICY = find_resource(registry().get(_ADMISSION, VALIDATING_KIND))
VALIDATING_ADMISSION_BINDING = find_resource(
    registry().get(_ADMISSION, f"{VALIDATING_KIND}Binding")
)

NAMESPACE = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SECRET = Resource("", "v1", "secrets", "Secret")
SERVICE = Resource("", "v1", "services", "Service")
EVENT = Resource("events.k8s.io", "v1", "events", "Event")
LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENT = Resource("apps", "v1", "deployments", "Deployment")
CUSTOM_RESOURCE_DEFINITION = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
_RBAC = "rbac.authorization.k8s.io"
ROLE = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDING = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLE = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDING = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
TOKEN_REVIEW = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
SUBJECT_ACCESS_REVIEW = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
