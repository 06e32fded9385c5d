"""The page in the cluster: its rights, which are to read reports and to ask who may; its Pod."""

from lictor.core.families.registry import Role, registry
from lictor.core.raw import Json, JsonObject
from lictor.install.installation import (
    Installation,
    build_cluster_object,
    build_object,
    match_labels,
)
from lictor.install.placeholders import (
    ConditionalPart,
    ExtendedList,
    LabelSet,
    OptionalValueAt,
    ValueAt,
)
from lictor.install.rights import build_binding, build_rule
from lictor.install.workloads import METRICS_FROM, build_variable

COMPONENT = "web"
_RBAC = "rbac.authorization.k8s.io"
_HTTPS = 8443
_METRICS = 8000
_NOBODY = 65534
_READ = "get list watch"
_CHANGE = "get update patch"
_NOTIFICATIONS = "web.notifications.configMapName"
_SECRETS = "web.notifications.secretNames"
_TLS = "web.tlsSecretName"
_TLS_FOLDER = "/etc/lictor/tls"
_SETTINGS_FOLDER = "/etc/lictor/notifications"


def build_web_page(installation: Installation) -> list[Json]:
    """All objects of the page, in an order in which they can be applied; with placeholders."""
    made = [
        *_build_rights(installation),
        _build_service(installation),
        _build_network_policy(installation),
        _build_deployment(installation),
    ]
    return [ConditionalPart(("web.enabled",), each) for each in made]


# --- rights


def _build_rights(installation: Installation) -> list[JsonObject]:
    name = installation.names.web
    role = f"{installation.prefix}:{COMPONENT}"
    account = build_object(installation, "v1/ServiceAccount", name, COMPONENT)
    return [
        # The Pod that needs the token says so.
        {**account, "automountServiceAccountToken": False},
        build_cluster_object(
            installation, f"{_RBAC}/v1/ClusterRole", role, COMPONENT, rules=_list_rules()
        ),
        build_binding(installation, role, "ClusterRole", role, name, COMPONENT),
        build_object(
            installation,
            f"{_RBAC}/v1/Role",
            role,
            COMPONENT,
            rules=_list_namespace_rules(installation),
        ),
        build_binding(installation, role, "Role", role, name, COMPONENT),
    ]


def _list_rules() -> list[JsonObject]:
    """Reports and what explains them; and two questions: who is it, and what may they see?"""
    kinds: dict[str, list[str]] = {}
    for kind in registry().with_role(Role.POLICY, Role.DELETION, Role.EXCEPTION):
        kinds.setdefault(kind.group, []).append(kind.plural)
    return [
        build_rule("wgpolicyk8s.io", "policyreports clusterpolicyreports", _READ),
        build_rule("openreports.io", "reports clusterreports", _READ),
        build_rule("core", "namespaces", _READ),
        *(build_rule(group, " ".join(plurals), _READ) for group, plurals in kinds.items()),
        build_rule("authentication.k8s.io", "tokenreviews", "create"),
        build_rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    ]


def _list_namespace_rules(installation: Installation) -> list[Json]:
    """Its boards; and for notifications where it remembers, who leads, and their secrets."""
    names = installation.names
    notifying = [
        build_rule("core", "configmaps", "create"),
        build_rule("core", "configmaps", _CHANGE, names.web_memory),
        build_rule("coordination.k8s.io", "leases", "create"),
        # No others: controllers beside the page lead by Leases as well.
        build_rule("coordination.k8s.io", "leases", _CHANGE, [names.web_lease]),
    ]
    secrets = build_rule("core", "secrets", "get")
    return [
        build_rule("core", "configmaps", _READ, [names.boards_config_map]),
        *(ConditionalPart((_NOTIFICATIONS,), rule) for rule in notifying),
        # Without names it would be all of them.
        ConditionalPart((_SECRETS,), {**secrets, "resourceNames": ValueAt(_SECRETS)}),
    ]


# --- what runs


def _build_deployment(installation: Installation) -> JsonObject:
    template = {
        "metadata": {"labels": LabelSet(COMPONENT)},
        "spec": _build_pod(installation),
    }
    spec = {
        # Sessions are in memory: with several, people would have to sign in again and again.
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": match_labels(installation, COMPONENT)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        },
        "template": template,
    }
    name = installation.names.web
    return build_object(installation, "apps/v1/Deployment", name, COMPONENT, spec=spec)


def _build_pod(installation: Installation) -> JsonObject:
    return {
        "serviceAccountName": installation.names.web,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 15,
        "imagePullSecrets": OptionalValueAt(("web.imagePullSecrets", "global.imagePullSecrets")),
        "priorityClassName": OptionalValueAt(("global.priorityClassName",)),
        "nodeSelector": OptionalValueAt(("global.nodeSelector",)),
        "tolerations": OptionalValueAt(("global.tolerations",)),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_build_container()],
        "volumes": [
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            ConditionalPart((_TLS,), {"name": "tls", "secret": {"secretName": ValueAt(_TLS)}}),
            ConditionalPart(
                (_NOTIFICATIONS,),
                {"name": "notifications", "configMap": {"name": ValueAt(_NOTIFICATIONS)}},
            ),
        ],
    }


def _build_container() -> JsonObject:
    tls = {"name": "tls", "mountPath": _TLS_FOLDER, "readOnly": True}
    settings = {"name": "notifications", "mountPath": _SETTINGS_FOLDER, "readOnly": True}
    return {
        "name": COMPONENT,
        "image": "<<image>>",
        "imagePullPolicy": ValueAt("image.pullPolicy"),
        "command": ["lictor"],
        "args": _build_arguments(),
        "env": [build_variable("POD_NAME", "metadata.name")],
        "ports": [
            {"name": "https", "containerPort": _HTTPS, "protocol": "TCP"},
            {"name": "metrics", "containerPort": _METRICS, "protocol": "TCP"},
        ],
        "startupProbe": _build_probe("liveness", period=2, failures=30),
        "livenessProbe": _build_probe("liveness", period=15, failures=4),
        "readinessProbe": _build_probe("readiness", period=5, failures=3),
        "resources": ValueAt("web.resources"),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            ConditionalPart((_TLS,), tls),
            ConditionalPart((_NOTIFICATIONS,), settings),
        ],
    }


def _build_arguments() -> ExtendedList:
    """The command line of the page: people sign in, on all addresses."""
    settings = f"{_SETTINGS_FOLDER}/notifications.yaml"
    return ExtendedList(
        [
            "web",
            "--login",
            "--address=",
            f"--port={_HTTPS}",
            f"--metrics-port={_METRICS}",
            "--namespace=<<namespace>>",
            "--prefix=<<fullname>>",
            ConditionalPart(("web.hosts",), "--host=<<value web.hosts>>"),
            ConditionalPart((_TLS,), f"--tls-cert={_TLS_FOLDER}/tls.crt"),
            ConditionalPart((_TLS,), f"--tls-key={_TLS_FOLDER}/tls.key"),
            ConditionalPart((_NOTIFICATIONS,), f"--notifications={settings}"),
        ],
        ("web.extraArgs",),
    )


def _build_probe(what: str, *, period: int, failures: int) -> JsonObject:
    return {
        "httpGet": {"path": f"/health/{what}", "port": _HTTPS, "scheme": "HTTPS"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _build_service(installation: Installation) -> JsonObject:
    ports = [
        {
            "name": "https",
            "port": 443,
            "targetPort": _HTTPS,
            "protocol": "TCP",
            "appProtocol": "https",
        },
        {
            "name": "metrics",
            "port": _METRICS,
            "targetPort": _METRICS,
            "protocol": "TCP",
            "appProtocol": "http",
        },
    ]
    selector = match_labels(installation, COMPONENT)
    spec = {"type": "ClusterIP", "selector": selector, "ports": ports}
    return build_object(installation, "v1/Service", installation.names.web, COMPONENT, spec=spec)


def _build_network_policy(installation: Installation) -> JsonObject:
    page, metrics = ([{"port": port, "protocol": "TCP"}] for port in (_HTTPS, _METRICS))
    spec = {
        "podSelector": {"matchLabels": match_labels(installation, COMPONENT)},
        "policyTypes": ["Ingress"],
        # From where browsers and Ingresses come is not known here.
        "ingress": [{"ports": page}, {"from": OptionalValueAt((METRICS_FROM,)), "ports": metrics}],
    }
    name, kind = installation.names.web, "networking.k8s.io/v1/NetworkPolicy"
    return build_object(installation, kind, name, COMPONENT, spec=spec)
