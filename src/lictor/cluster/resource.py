"""Which kinds of the API we speak of, and the paths under which the API server has them."""

import msgspec

from lictor.lang.url import escape_segment


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
        """The path of the collection, of one object, or of a part of it.

        Raises ApiError where a name would lead to another place.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(map(escape_segment, parts))


def _classic(version: str, plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("kyverno.io", version, plural, kind, namespaced)


def _cel(kind: str) -> tuple[Resource, Resource]:
    plural = kind.lower().removesuffix("y") + "ies"
    return (
        Resource("policies.kyverno.io", "v1beta1", plural, kind, namespaced=False),
        Resource("policies.kyverno.io", "v1beta1", f"namespaced{plural}", f"Namespaced{kind}"),
    )


CLUSTER_POLICY = _classic("v1", "clusterpolicies", "ClusterPolicy", namespaced=False)
POLICY = _classic("v1", "policies", "Policy", namespaced=True)
POLICY_EXCEPTION = _classic("v2", "policyexceptions", "PolicyException", namespaced=True)
CLEANUP_POLICY = _classic("v2", "cleanuppolicies", "CleanupPolicy", namespaced=True)
CLUSTER_CLEANUP_POLICY = _classic(
    "v2", "clustercleanuppolicies", "ClusterCleanupPolicy", namespaced=False
)
GLOBAL_CONTEXT_ENTRY = _classic(
    "v2beta1", "globalcontextentries", "GlobalContextEntry", namespaced=False
)
UPDATE_REQUEST = _classic("v2", "updaterequests", "UpdateRequest", namespaced=True)
VALIDATING_POLICY, NAMESPACED_VALIDATING_POLICY = _cel("ValidatingPolicy")
MUTATING_POLICY, NAMESPACED_MUTATING_POLICY = _cel("MutatingPolicy")
GENERATING_POLICY, NAMESPACED_GENERATING_POLICY = _cel("GeneratingPolicy")
DELETING_POLICY, NAMESPACED_DELETING_POLICY = _cel("DeletingPolicy")
IMAGE_VALIDATING_POLICY, NAMESPACED_IMAGE_VALIDATING_POLICY = _cel("ImageValidatingPolicy")
CEL_EXCEPTION = Resource("policies.kyverno.io", "v1beta1", "policyexceptions", "PolicyException")

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
VALIDATING_ADMISSION_POLICY = Resource(
    _ADMISSION,
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
VALIDATING_ADMISSION_BINDING = Resource(
    _ADMISSION,
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
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
SUBJECT_ACCESS_REVIEW = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
