"""What is there before anyone has created anything: namespaces, roles, the API's own Service."""

from collections.abc import Iterator
from typing import Final

from lictor.addons.apiserver.controllers.role_aggregation import gather_rules
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.loopback_client import SYSTEM, LoopbackClient
from lictor.addons.apiserver.store import Store
from lictor.core.raw import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS: Final = {f"{_GROUP}/autoupdate": "true"}
_CONTROLLER: Final = "system:controller:"
# A role, and under it its rules: `verbs | groups | resources`, or `verbs @ paths`. The core group
# is written `core`; READ, WRITE and EVENTS stand for what nearly all have in common.
_ROLES: Final = """
cluster-admin
  * | * | *
  * @ *
system:discovery
  get @ /livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*
system:monitoring
  get @ /metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*
  get | core | nodes/metrics
system:basic-user
  create | authorization.k8s.io | selfsubjectaccessreviews selfsubjectrulesreviews
  create | authentication.k8s.io | selfsubjectreviews
system:public-info-viewer
  get @ /livez /readyz /healthz /version /version/
system:service-account-issuer-discovery
  get @ /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks
system:auth-delegator
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
system:aggregate-to-admin
  create | authorization.k8s.io | localsubjectaccessreviews
  READ WRITE | rbac.authorization.k8s.io | roles rolebindings
system:aggregate-to-edit
  READ | core | pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy
  impersonate | core | serviceaccounts
  WRITE | core | pods pods/attach pods/proxy pods/exec pods/portforward
  create | core | pods/eviction
  WRITE | core | replicationcontrollers replicationcontrollers/scale serviceaccounts services
  WRITE | core | services/proxy persistentvolumeclaims configmaps secrets events
  create | core | serviceaccounts/token
  WRITE | apps | statefulsets statefulsets/scale daemonsets deployments deployments/scale
  WRITE | apps | deployments/rollback replicasets replicasets/scale
  WRITE | autoscaling | horizontalpodautoscalers
  WRITE | batch | jobs cronjobs
  WRITE | policy | poddisruptionbudgets
  WRITE | networking.k8s.io | networkpolicies ingresses
  READ WRITE | coordination.k8s.io | leases
  WRITE | resource.k8s.io | resourceclaims resourceclaimtemplates
system:aggregate-to-view
  READ | core | pods replicationcontrollers replicationcontrollers/scale serviceaccounts services
  READ | core | services/status endpoints persistentvolumeclaims persistentvolumeclaims/status
  READ | core | configmaps limitranges resourcequotas bindings events pods/status
  READ | core | resourcequotas/status namespaces/status replicationcontrollers/status pods/log
  READ | core | namespaces
  READ | discovery.k8s.io | endpointslices
  READ | apps | controllerrevisions statefulsets statefulsets/status statefulsets/scale
  READ | apps | daemonsets daemonsets/status deployments deployments/status deployments/scale
  READ | apps | replicasets replicasets/status replicasets/scale
  READ | autoscaling | horizontalpodautoscalers horizontalpodautoscalers/status
  READ | batch | jobs cronjobs cronjobs/status jobs/status
  READ | policy | poddisruptionbudgets poddisruptionbudgets/status
  READ | networking.k8s.io | networkpolicies ingresses ingresses/status
  READ | resource.k8s.io | resourceclaims resourceclaims/status resourceclaimtemplates
system:controller:clusterrole-aggregation-controller
  escalate get list watch update patch | rbac.authorization.k8s.io | clusterroles
system:controller:cronjob-controller
  READ update | batch | cronjobs
  READ create update delete patch | batch | jobs
  update | batch | cronjobs/status cronjobs/finalizers
  list watch delete | core | pods
  EVENTS
system:controller:daemon-set-controller
  READ | apps | daemonsets
  update | apps | daemonsets/status daemonsets/finalizers
  list watch | core | nodes
  list watch create delete patch | core | pods
  create | core | pods/binding
  READ create delete update patch | apps | controllerrevisions
  EVENTS
system:controller:deployment-controller
  READ update | apps | deployments
  update | apps | deployments/status deployments/finalizers
  READ create update patch delete | apps | replicasets
  READ update | core | pods
  EVENTS
system:controller:endpoint-controller
  READ | core | services pods
  READ create update delete | core | endpoints
  create | core | endpoints/restricted
  EVENTS
system:controller:endpointslice-controller
  READ | core | services pods nodes
  update | core | services/finalizers
  READ create update delete | discovery.k8s.io | endpointslices
  EVENTS
system:controller:generic-garbage-collector
  READ patch update delete | * | *
  EVENTS
system:controller:job-controller
  READ update patch | batch | jobs
  update | batch | jobs/status jobs/finalizers
  list watch create delete patch | core | pods
  EVENTS
system:controller:namespace-controller
  READ delete | core | namespaces
  update | core | namespaces/finalize namespaces/status
  READ delete deletecollection | * | *
system:controller:replicaset-controller
  READ update | apps | replicasets
  update | apps | replicasets/status replicasets/finalizers
  list watch patch create delete | core | pods
  EVENTS
system:controller:root-ca-cert-publisher
  create update | core | configmaps
  EVENTS
system:controller:service-account-controller
  create | core | serviceaccounts
  EVENTS
system:controller:statefulset-controller
  list watch | core | pods
  READ | apps | statefulsets
  update | apps | statefulsets/status statefulsets/finalizers
  get create delete update patch | core | pods
  READ create update patch delete | apps | controllerrevisions
  get create list watch update delete | core | persistentvolumeclaims
  EVENTS
system:controller:validatingadmissionpolicy-status-controller
  READ | admissionregistration.k8s.io | validatingadmissionpolicies
  get patch update | admissionregistration.k8s.io | validatingadmissionpolicies/status
  EVENTS
"""
_WORDS: Final = {
    "READ": ("get", "list", "watch"),
    "WRITE": ("create", "delete", "deletecollection", "patch", "update"),
}
_EVENTS: Final = "create update patch | core events.k8s.io | events"
# Whole roles, and the label of the parts that they are made of; each is a part of the one before.
_AGGREGATED: Final = ("admin", "edit", "view")
_BINDINGS: Final = {
    "cluster-admin": ("system:masters",),
    "system:monitoring": ("system:monitoring",),
    "system:discovery": ("system:authenticated",),
    "system:basic-user": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def list_bootstrap_roles() -> tuple[JsonObject, ...]:
    """All ClusterRoles, complete."""
    parts = [_make_role(name, rules) for name, rules in _read_roles()]
    # `view` is a part of `edit`, and `edit` of `admin`.
    for name in reversed(_AGGREGATED):
        role = _make_aggregated(name)
        parts.append({**role, "rules": gather_rules(role, parts) or []})
    return tuple(sorted(parts, key=lambda role: str(role["metadata"]["name"])))


def list_bootstrap_bindings() -> tuple[JsonObject, ...]:
    """All ClusterRoleBindings."""
    groups = [_make_binding(role, _name_groups(whom)) for role, whom in _BINDINGS.items()]
    accounts = [
        _make_binding(name, [_name_account(name.removeprefix(_CONTROLLER))])
        for name, _ in _read_roles()
        if name.startswith(_CONTROLLER)
    ]
    return (*groups, *accounts)


def _read_roles() -> Iterator[tuple[str, list[JsonObject]]]:
    name, rules = "", list[JsonObject]()
    for line in _ROLES.strip().splitlines():
        if line.startswith(" "):
            rules.append(_read_rule(_EVENTS if line.strip() == "EVENTS" else line))
            continue
        if name:
            yield name, rules
        name, rules = line, []
    yield name, rules


def _read_rule(line: str) -> JsonObject:
    if "@" in line:
        verbs, _, paths = line.partition("@")
        return {"nonResourceURLs": sorted(paths.split()), "verbs": verbs.split()}
    verbs, groups, resources = line.split("|")
    return {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": sorted(resources.split()),
        "verbs": [verb for word in verbs.split() for verb in _WORDS.get(word, (word,))],
    }


def _make_role(name: str, rules: list[JsonObject]) -> JsonObject:
    labels = dict(_LABELS)
    part = name.removeprefix("system:aggregate-to-")
    if part in _AGGREGATED:
        labels[f"{_GROUP}/aggregate-to-{part}"] = "true"
    return _make("ClusterRole", name, labels) | {"rules": rules}


def _make_aggregated(name: str) -> JsonObject:
    labels = dict(_LABELS)
    position = _AGGREGATED.index(name)
    if position:
        labels[f"{_GROUP}/aggregate-to-{_AGGREGATED[position - 1]}"] = "true"
    selector = {"matchLabels": {f"{_GROUP}/aggregate-to-{name}": "true"}}
    return _make("ClusterRole", name, labels) | {
        "aggregationRule": {"clusterRoleSelectors": [selector]}
    }


def _make_binding(role: str, subjects: list[JsonObject]) -> JsonObject:
    return _make("ClusterRoleBinding", role, dict(_LABELS)) | {
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def _make(kind: str, name: str, labels: JsonObject) -> JsonObject:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels, "annotations": dict(_ANNOTATIONS)},
    }


def _name_groups(names: tuple[str, ...]) -> list[JsonObject]:
    return [{"apiGroup": _GROUP, "kind": "Group", "name": name} for name in names]


def _name_account(name: str) -> JsonObject:
    return {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}


NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SERVICE_ADDRESS = "10.96.0.1"
# Under which clients in a Pod would find the server, if there were Pods.
_SERVICE_PORT = 443


async def create_bootstrap_objects(
    api: LoopbackClient, store: Store, catalogue: KindCatalogue, port: int
) -> None:
    """Create what is missing."""
    for document in _list_objects(port):
        kind = catalogue.find_kind(document["apiVersion"], document["kind"])
        metadata = document["metadata"]
        namespace = metadata.get("namespace") or ""
        if kind is not None and store.get(kind, namespace, metadata["name"]) is None:
            await api.create(SYSTEM, kind, document, namespace=namespace)


def _list_objects(port: int) -> Iterator[JsonObject]:
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield from list_bootstrap_roles()
    yield from list_bootstrap_bindings()
    yield _describe_service(port)


def _describe_service(port: int) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": SERVICE_ADDRESS,
            "clusterIPs": [SERVICE_ADDRESS],
            "ports": [
                {"name": "https", "port": _SERVICE_PORT, "protocol": "TCP", "targetPort": port}
            ],
            "type": "ClusterIP",
        },
    }
