"""What is wrong with an object of a built-in kind? In the API server's words."""

from collections.abc import Callable
from typing import TypeAlias

from lictor.apiserver.checks import access_checks as access
from lictor.apiserver.checks import admission_checks as admission
from lictor.apiserver.checks import data_checks as data
from lictor.apiserver.checks import network_checks as network
from lictor.apiserver.checks import storage_checks as storage
from lictor.apiserver.checks import workload_checks as workloads
from lictor.apiserver.checks.check_basics import Say
from lictor.apiserver.checks.definition_checks import check_definition
from lictor.apiserver.checks.name_rules import (
    NameRule,
    check_label,
    check_segment,
    check_service_name,
    check_subdomain,
)
from lictor.apiserver.checks.object_checks import check_metadata
from lictor.apiserver.checks.pod_checks import check_pod
from lictor.apiserver.field_errors import Cause
from lictor.raw import JsonObject

Check: TypeAlias = Callable[[JsonObject, JsonObject | None, Say], None]


def check_builtin(kind: str, document: JsonObject, old: JsonObject | None) -> list[Cause]:
    """Everything that is wrong; `old` is what it replaces."""
    rule = _NAME_RULES.get(kind, check_subdomain)
    causes = check_metadata(document, old, rule, takes_any_finalizer=kind in _FROM_OUTSIDE)
    check = _CHECKS.get(kind)
    if check is not None:
        check(document, old, causes.append)
    return causes


def _take_any(name: str) -> list[str]:
    del name
    return []


# They come from other API servers that are built in.
_FROM_OUTSIDE = frozenset(("CustomResourceDefinition", "APIService"))
# Kinds whose names are not those of subdomains.
_NAME_RULES: dict[str, NameRule] = {
    "Namespace": check_label,
    "Service": check_service_name,
    "StatefulSet": check_label,
    "Role": check_segment,
    "RoleBinding": check_segment,
    "ClusterRole": check_segment,
    "ClusterRoleBinding": check_segment,
    # Made by clients in great numbers; nobody looks at them.
    "Event": _take_any,
    "CertificateSigningRequest": _take_any,
    "IPAddress": _take_any,
    "APIService": check_segment,
    # These are asked and answered, never kept.
    **dict.fromkeys(
        (
            "Binding", "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectReview",
            "SelfSubjectRulesReview", "SubjectAccessReview", "TokenReview",
        ),
        _take_any,
    ),
}  # fmt: skip
_CHECKS: dict[str, Check] = {
    "Pod": check_pod,
    "Deployment": workloads.check_deployment,
    "ReplicaSet": workloads.check_replica_set,
    "StatefulSet": workloads.check_stateful_set,
    "DaemonSet": workloads.check_daemon_set,
    "Job": workloads.check_job,
    "CronJob": workloads.check_cron_job,
    "HorizontalPodAutoscaler": workloads.check_autoscaler,
    "PodDisruptionBudget": workloads.check_budget,
    "Service": network.check_service,
    "Ingress": network.check_ingress,
    "IngressClass": network.check_ingress_class,
    "NetworkPolicy": network.check_network_policy,
    "Endpoints": network.check_endpoints,
    "EndpointSlice": network.check_slice,
    "ConfigMap": data.check_config_map,
    "Secret": data.check_secret,
    "LimitRange": data.check_limits,
    "ResourceQuota": data.check_quota,
    "Lease": data.check_lease,
    "Event": data.check_event,
    "Role": access.check_role,
    "ClusterRole": access.check_role,
    "RoleBinding": access.check_binding,
    "ClusterRoleBinding": access.check_binding,
    "PersistentVolume": storage.check_volume,
    "PersistentVolumeClaim": storage.check_claim,
    "StorageClass": storage.check_storage_class,
    "CSIDriver": storage.check_driver,
    "PriorityClass": storage.check_priority_class,
    "RuntimeClass": storage.check_runtime_class,
    "MutatingWebhookConfiguration": admission.check_webhooks,
    "ValidatingWebhookConfiguration": admission.check_webhooks,
    "ValidatingAdmissionPolicy": admission.check_validating_policy,
    "MutatingAdmissionPolicy": admission.check_mutating_policy,
    "ValidatingAdmissionPolicyBinding": admission.check_policy_binding,
    "MutatingAdmissionPolicyBinding": admission.check_policy_binding,
    "CustomResourceDefinition": check_definition,
}
