"""Which objects are lictor's own? Told by name and namespace as installed; labels can be forged."""

from lictor.cluster.names import Names
from lictor.cluster.resource import Resource

# The groups of the kinds that an installation brings.
_GROUPS = frozenset(
    (
        "kyverno.io",
        "policies.kyverno.io",
        "reports.kyverno.io",
        "wgpolicyk8s.io",
        "openreports.io",
    )
)


def is_own_object(names: Names, resource: Resource, namespace: str, name: str) -> bool:
    """Everything in our namespace, and what we have outside of all of them."""
    # A kind that was guessed to live in no namespace is looked at both ways.
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
