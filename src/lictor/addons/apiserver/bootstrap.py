"""What is there before anyone has created anything: namespaces, roles, the API's own Service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lictor.addons.apiserver.controllers.kind_controllers import gather_rules
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.loopback_client import SYSTEM, LoopbackClient
from lictor.addons.apiserver.store import Store
from lictor.core.raw import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS: Final = {f"{_GROUP}/autoupdate": "true"}
_CONTROLLER: Final = "system:controller:"
_ROLES: Final = Path(__file__).with_name("bootstrap_roles.txt")
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
    for line in _ROLES.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
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
