"""In what do built-in kinds differ when they are written or deleted? Facts of Kubernetes."""

from lictor.apiserver.kind import ServedKind

_ADMISSION = frozenset(
    (
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations", "validatingadmissionpolicies",
        "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
    )
)  # fmt: skip
_COUNTED: dict[str, frozenset[str]] = {
    "": frozenset(("pods", "podtemplates", "replicationcontrollers")),
    "admissionregistration.k8s.io": _ADMISSION,
    "apiextensions.k8s.io": frozenset(("customresourcedefinitions",)),
    "apps": frozenset(("daemonsets", "deployments", "replicasets", "statefulsets")),
    "batch": frozenset(("cronjobs", "jobs")),
    "discovery.k8s.io": frozenset(("endpointslices",)),
    "flowcontrol.apiserver.k8s.io": frozenset(("flowschemas", "prioritylevelconfigurations")),
    "networking.k8s.io": frozenset(("ingressclasses", "ingresses", "networkpolicies")),
    "policy": frozenset(("poddisruptionbudgets",)),
    "resource.k8s.io": frozenset(("deviceclasses", "devicetaintrules", "resourceslices")),
    "scheduling.k8s.io": frozenset(("priorityclasses",)),
}
_CREATED_BY_UPDATE: dict[str, frozenset[str]] = {
    "": frozenset(("endpoints", "events", "limitranges", "services")),
    "coordination.k8s.io": frozenset(("leases",)),
    "events.k8s.io": frozenset(("events",)),
    "node.k8s.io": frozenset(("runtimeclasses",)),
    "rbac.authorization.k8s.io": frozenset(
        ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
    ),
}
_CONDITIONAL: dict[str, frozenset[str]] = {
    "admissionregistration.k8s.io": _ADMISSION,
    "apiextensions.k8s.io": frozenset(("customresourcedefinitions",)),
    "coordination.k8s.io": frozenset(("leases",)),
    "node.k8s.io": frozenset(("runtimeclasses",)),
    "policy": frozenset(("poddisruptionbudgets",)),
    "storage.k8s.io": frozenset(
        ("csidrivers", "csinodes", "csistoragecapacities", "volumeattachments")
    ),
}
_ORPHANING: dict[str, frozenset[str]] = {
    "": frozenset(("replicationcontrollers",)),
    "batch": frozenset(("jobs",)),
}
_SHOWN_WHEN_DELETED: dict[str, frozenset[str]] = {
    "": frozenset(
        (
            "namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
            "resourcequotas", "serviceaccounts", "services",
        )
    ),
    "storage.k8s.io": frozenset(
        ("csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses")
    ),
}  # fmt: skip
_BORN_WITH_STATUS: dict[str, frozenset[str]] = {"": frozenset(("nodes",))}


def counts_generations(kind: ServedKind) -> bool:
    """Does `metadata.generation` say how often the content has changed?"""
    return kind.is_custom or kind.plural in _COUNTED.get(kind.group, ())


def is_created_by_update(kind: ServedKind) -> bool:
    """Does replacing one that is not there create it?"""
    return kind.plural in _CREATED_BY_UPDATE.get(kind.group, ())


def is_conditional(kind: ServedKind) -> bool:
    """Must one who replaces it say which version of it?"""
    return kind.is_custom or kind.plural in _CONDITIONAL.get(kind.group, ())


def orphans_by_default(kind: ServedKind) -> bool:
    """Are those who belong to it left alone when it is deleted, unless told otherwise?"""
    return kind.plural in _ORPHANING.get(kind.group, ())


def is_shown_when_deleted(kind: ServedKind) -> bool:
    """Does one who deletes it get the object itself, and no Status?"""
    return kind.plural in _SHOWN_WHEN_DELETED.get(kind.group, ())


def is_born_with_status(kind: ServedKind) -> bool:
    """Does one who creates it say what its status is?"""
    return not kind.has_status or kind.plural in _BORN_WITH_STATUS.get(kind.group, ())


def is_namespace(kind: ServedKind) -> bool:
    """Are these namespaces themselves?"""
    return kind.plural == "namespaces" and not kind.group


def is_pod(kind: ServedKind) -> bool:
    """Are these Pods?"""
    return kind.plural == "pods" and not kind.group
