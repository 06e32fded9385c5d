"""The manifests of a Job that compares Kyverno with lictor inside the cluster."""

import msgspec

from lictor.core.raw import JsonObject
from lictor.kubernetes.names import Names

NAME = "lictor-compare"
_NOBODY = 65534
_PORT = 9443
_RBAC = "rbac.authorization.k8s.io"
_CONFIGURATIONS = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
_POLICY_GROUPS = ["kyverno.io", "policies.kyverno.io"]
_READ = ["get", "list", "watch"]


class CompareJob(msgspec.Struct, frozen=True):
    """Which Kyverno is compared, with which image, and for how long."""

    kyverno: Names
    image: str
    duration: str
    configuration: str
    namespace: str = "lictor"


def build_compare_job(job: CompareJob) -> list[JsonObject]:
    """Everything that the Job needs; deleting the Namespace removes all but the two roles."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": job.namespace}},
        _build(job, "v1", "ServiceAccount"),
        *_build_rights(job),
        _build(job, "v1", "Service", spec=_build_service()),
        _build(job, "batch/v1", "Job", spec=_build_job(job)),
    ]


def _build(job: CompareJob, version: str, kind: str, **parts: JsonObject) -> JsonObject:
    metadata = {"name": NAME, "namespace": job.namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def _build_rights(job: CompareJob) -> list[JsonObject]:
    """Rights to read what policies look up, to call Kyverno, and to write one pair of webhooks."""
    admission = "admissionregistration.k8s.io"
    cluster_rules = [
        _rule(_POLICY_GROUPS, ["*"], _READ),
        _rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], _READ),
        _rule([_RBAC], ["roles", "rolebindings", "clusterroles", "clusterrolebindings"], _READ),
        _rule([admission], _CONFIGURATIONS, [*_READ, "create"]),
        {
            **_rule([admission], _CONFIGURATIONS, ["patch", "delete"]),
            "resourceNames": [job.configuration],
        },
    ]
    service = f"https:{job.kyverno.service}:443"
    ask = {**_rule([""], ["services/proxy"], ["create"]), "resourceNames": [service]}
    read = [_rule([""], ["configmaps"], _READ), _rule(["apps"], ["deployments"], _READ)]
    namespaced = {"name": NAME, "namespace": job.kyverno.namespace}
    cluster_wide = {"name": NAME}
    return [
        _build_role("ClusterRole", cluster_wide, cluster_rules),
        _bind(job, "ClusterRoleBinding", cluster_wide, "ClusterRole", NAME),
        _bind(job, "ClusterRoleBinding", {"name": f"{NAME}-view"}, "ClusterRole", "view"),
        _build_role("Role", namespaced, [ask, *read]),
        _bind(job, "RoleBinding", namespaced, "Role", NAME),
    ]


def _build_role(kind: str, metadata: JsonObject, rules: list[JsonObject]) -> JsonObject:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> JsonObject:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _bind(
    job: CompareJob, kind: str, metadata: JsonObject, role_kind: str, role: str
) -> JsonObject:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": job.namespace}],
    }


def _build_service() -> JsonObject:
    port = {"name": "https", "port": 443, "targetPort": _PORT, "protocol": "TCP"}
    return {"selector": {"app.kubernetes.io/name": NAME}, "ports": [port]}


def _build_job(job: CompareJob) -> JsonObject:
    pod = {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_build_container(job)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }
    labels = {"app.kubernetes.io/name": NAME}
    return {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}}


def _build_container(job: CompareJob) -> JsonObject:
    names = job.kyverno
    arguments = [
        "migrate",
        "--compare",
        f"--for={job.duration}",
        f"--namespace={names.namespace}",
        f"--prefix={names.prefix}",
        f"--reached-by={job.namespace}/{NAME}",
    ]
    return {
        "name": "compare",
        "image": job.image,
        "command": ["lictor"],
        "args": arguments,
        "env": [{"name": "XDG_CACHE_HOME", "value": "/tmp"}],  # noqa: S108
        "ports": [{"name": "https", "containerPort": _PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "192Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }
