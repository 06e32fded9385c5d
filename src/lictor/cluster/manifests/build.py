"""An installation -> all its manifests, in an order in which they can be applied."""

import json
from collections.abc import Mapping
from difflib import get_close_matches

from lictor.cluster.manifests.crds import build_crds
from lictor.cluster.manifests.installation import (
    CONTROLLERS,
    Installation,
    build_cluster_object,
    build_object,
    check_installation,
)
from lictor.cluster.manifests.rights import build_rights
from lictor.cluster.manifests.workloads import build_workloads
from lictor.errors import UsageError
from lictor.raw import JsonObject

# --- what is never judged: nodes' own traffic, what the cluster needs to decide at all, copies

_UNJUDGED = (
    "[Event,*,*]",
    "[*/*,kube-system,*]",
    "[*/*,kube-public,*]",
    "[*/*,kube-node-lease,*]",
    "[Node,*,*]",
    "[Node/?*,*,*]",
    "[APIService,*,*]",
    "[APIService/?*,*,*]",
    "[TokenReview,*,*]",
    "[SubjectAccessReview,*,*]",
    "[SelfSubjectAccessReview,*,*]",
    "[Binding,*,*]",
    "[Pod/binding,*,*]",
    "[ReplicaSet,*,*]",
    "[ReplicaSet/?*,*,*]",
    "[EphemeralReport,*,*]",
    "[ClusterEphemeralReport,*,*]",
)
_SETTINGS = frozenset({
    "resourceFilters", "defaultRegistry", "enableDefaultRegistryMutation", "excludeGroups",
    "excludeUsernames", "excludeRoles", "excludeClusterRoles", "generateSuccessEvents",
    "successEventActions", "webhooks", "webhookAnnotations", "webhookLabels", "matchConditions",
    "updateRequestThreshold", "maxContextSize",
})  # fmt: skip
_BUCKETS = "0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30"
# Labels that would make a series for each namespace.
_QUIET_LABELS = {
    "policy_execution_duration_seconds": ("resource_namespace", "resource_request_operation"),
    "validating_policy_execution_duration_seconds": (
        "resource_namespace",
        "resource_request_operation",
    ),
    "image_validating_policy_execution_duration_seconds": (
        "resource_namespace",
        "resource_request_operation",
    ),
    "mutating_policy_execution_duration_seconds": (
        "resource_namespace",
        "resource_request_operation",
    ),
    "generating_policy_execution_duration_seconds": (
        "resource_namespace",
        "resource_request_operation",
    ),
    "admission_review_duration_seconds": ("resource_namespace",),
    "policy_rule_info_total": ("resource_namespace", "policy_namespace"),
    "policy_results_total": ("resource_namespace", "policy_namespace"),
    "admission_requests_total": ("resource_namespace",),
    "cleanup_controller_deletedobjects_total": ("resource_namespace", "policy_namespace"),
}


def build_config_maps(installation: Installation) -> list[JsonObject]:
    """The settings, and what is measured."""
    names = installation.names
    return [
        build_object(
            installation,
            "v1/ConfigMap",
            names.config_map,
            "config",
            data=_build_settings(installation),
        ),
        build_object(
            installation,
            "v1/ConfigMap",
            names.metrics_config_map,
            "config",
            data=_build_metrics_settings(),
        ),
    ]


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse entries that nobody reads."""
    for name in settings:
        if name not in _SETTINGS:
            close = get_close_matches(name, _SETTINGS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"unknown setting {name}{hint}")


def _build_settings(installation: Installation) -> dict[str, str]:
    usual = {
        "defaultRegistry": "docker.io",
        "enableDefaultRegistryMutation": "true",
        "excludeGroups": "system:nodes",
        "generateSuccessEvents": "false",
        "resourceFilters": " ".join(_list_filters(installation)),
        "updateRequestThreshold": "1000",
        "webhooks": _write(_build_selector(["kube-system", installation.namespace])),
        # The admission enforcer of AKS would change our webhooks again and again.
        "webhookAnnotations": _write({"admissions.enforcer/disabled": "true"}),
    }
    chosen = {**usual, **installation.settings}
    return {name: value for name, value in chosen.items() if value}


def _build_selector(namespaces: list[str]) -> JsonObject:
    excluded = [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}
        for namespace in namespaces
    ]
    return {"namespaceSelector": {"matchExpressions": excluded}}


def _list_filters(installation: Installation) -> list[str]:
    """What no policy concerns, our own objects first."""
    roles = [f"{installation.prefix}:{controller}-controller" for controller in CONTROLLERS]
    return [
        f"[*/*,{installation.namespace},*]",
        *_UNJUDGED,
        *(f"[ClusterRole,*,{role}{end}]" for role in roles for end in ("", ":core")),
        *(f"[ClusterRoleBinding,*,{role}{end}]" for role in roles for end in ("", ":view")),
    ]


def _build_metrics_settings() -> dict[str, str]:
    exposure = {
        f"kyverno_{name}": {"disabledLabelDimensions": list(labels)}
        for name, labels in _QUIET_LABELS.items()
    }
    return {
        "namespaces": _write({"exclude": [], "include": []}),
        "bucketBoundaries": _BUCKETS,
        "metricsExposure": _write(exposure),
    }


def _write(value: JsonObject) -> str:
    return json.dumps(value, separators=(",", ":"))


_POD_SECURITY = "pod-security.kubernetes.io"


def build_manifests(installation: Installation) -> list[JsonObject]:
    """Everything that an installation is made of.

    Webhook configurations and certificates are not among it: the controllers make them when they
    can answer, so that a cluster is never told to ask someone who is not there.
    """
    check_installation(installation)
    check_settings(installation.settings)
    crds = [] if installation.skip_crds else build_crds(open_reports=installation.open_reports)
    return [
        build_namespace(installation),
        *crds,
        *build_rights(installation),
        *build_config_maps(installation),
        *build_workloads(installation),
    ]


def build_namespace(installation: Installation) -> JsonObject:
    """The Namespace, in which only Pods as careful as ours may run."""
    namespace = build_cluster_object(
        installation, "v1/Namespace", installation.namespace, "namespace"
    )
    for mode in ("enforce", "warn"):
        namespace["metadata"]["labels"][f"{_POD_SECURITY}/{mode}"] = "restricted"
    return namespace
