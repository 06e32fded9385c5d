"""Which of Kubernetes' own kinds are namespaced, and which are cluster-scoped?"""

from typing import Final

# By kind: the groups in which it is known.
CLUSTER_KINDS: Final = {
    "APIService": ("apiregistration.k8s.io",),
    "CSIDriver": ("storage.k8s.io",),
    "CSINode": ("storage.k8s.io",),
    "CertificateSigningRequest": ("certificates.k8s.io",),
    "ClusterRole": ("rbac.authorization.k8s.io",),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io",),
    "ComponentStatus": ("",),
    "CustomResourceDefinition": ("apiextensions.k8s.io",),
    "FlowSchema": ("flowcontrol.apiserver.k8s.io",),
    "IngressClass": ("networking.k8s.io",),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io",),
    "Namespace": ("",),
    "Node": ("",),
    "PersistentVolume": ("",),
    "PriorityClass": ("scheduling.k8s.io",),
    "PriorityLevelConfiguration": ("flowcontrol.apiserver.k8s.io",),
    "RuntimeClass": ("node.k8s.io",),
    "StorageClass": ("storage.k8s.io",),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io",),
    "ValidatingAdmissionPolicyBinding": ("admissionregistration.k8s.io",),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io",),
    "VolumeAttachment": ("storage.k8s.io",),
    "ClusterPolicy": ("kyverno.io",),
    "ClusterCleanupPolicy": ("kyverno.io",),
}
NAMESPACED_KINDS: Final = {
    "ConfigMap": ("",),
    "ControllerRevision": ("apps",),
    "CronJob": ("batch",),
    "DaemonSet": ("apps",),
    "Deployment": ("apps",),
    "EndpointSlice": ("discovery.k8s.io",),
    "Endpoints": ("",),
    "Event": ("", "events.k8s.io"),
    "HorizontalPodAutoscaler": ("autoscaling",),
    "Ingress": ("networking.k8s.io",),
    "Job": ("batch",),
    "Lease": ("coordination.k8s.io",),
    "LimitRange": ("",),
    "NetworkPolicy": ("networking.k8s.io",),
    "PersistentVolumeClaim": ("",),
    "Pod": ("",),
    "PodDisruptionBudget": ("policy",),
    "PodTemplate": ("",),
    "ReplicaSet": ("apps",),
    "ReplicationController": ("",),
    "ResourceQuota": ("",),
    "Role": ("rbac.authorization.k8s.io",),
    "RoleBinding": ("rbac.authorization.k8s.io",),
    "Secret": ("",),
    "Service": ("",),
    "ServiceAccount": ("",),
    "StatefulSet": ("apps",),
}
# Kinds that are only ever sent to a subresource.
SUBRESOURCE_KINDS: Final = frozenset(
    [
        *("Binding", "Eviction", "NodeProxyOptions", "PodAttachOptions", "PodExecOptions"),
        *("PodPortForwardOptions", "PodProxyOptions", "Scale", "ServiceProxyOptions"),
        "TokenRequest",
    ]
)
KNOWN_KINDS: Final = frozenset(CLUSTER_KINDS) | frozenset(NAMESPACED_KINDS)


def is_cluster_wide(group: str, kind: str) -> bool:
    """A kind of Kubernetes' own that has no namespace; `*` stands for any group."""
    groups = CLUSTER_KINDS.get(kind)
    return groups is not None and (group == "*" or group in groups)


def is_namespaced(group: str, kind: str) -> bool:
    """A kind of Kubernetes' own that lives in a namespace; `*` stands for any group."""
    groups = NAMESPACED_KINDS.get(kind)
    return groups is not None and (group == "*" or group in groups)
