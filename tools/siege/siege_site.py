"""The cluster under attack: lictor within memory limits, one namespace of the attacker's, others'."""

import base64
import json
import secrets
import ssl
from dataclasses import dataclass, field
from typing import Any

import httpx2
import subresources
import yaml
from control_plane.embedded import EmbeddedCluster
from control_plane.install import ADMISSION, Installation, Replica, install_lictor
from control_plane.local import LocalCluster
from control_plane.plane import ControlPlane
from load import until
from memory_limit import MemoryGroup

Object = dict[str, Any]
NAMESPACES = ("red", "orange", "blue", "green")
VAULTS = ("blue", "green", "kube-system", "lictor")
FLAGS = ("--enablePolicyException=true", "--exceptionNamespace=exceptions")
CONTROLLERS = ("background-controller", "reports-controller", "cleanup-controller")
# As in the manifests of `lictor install`.
_SERVE_MEMORY = 512 << 20
_CONTROL_MEMORY = 256 << 20
_WRITE = ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"]
_AGGREGATED = "rbac.kyverno.io/aggregate-to-{}-controller"


class Limited(LocalCluster):
    """A cluster whose lictors have as much memory as their containers would."""

    def lictor_prefix(self, words: tuple[str, ...]) -> tuple[str, ...]:
        limit = _SERVE_MEMORY if words[0] == "serve" else _CONTROL_MEMORY
        # Where native code breaks, the log tells in which function.
        traced = ("env", "PYTHONFAULTHANDLER=1")
        group = MemoryGroup(f"{len(self._lictors)}", limit)
        self.__dict__.setdefault("groups", []).append(group)
        return (*group.wrap(self._network.prefix), *traced)

    def stop(self) -> None:
        super().stop()
        for group in self.__dict__.pop("groups", ()):
            group.remove()


class LimitedEmbedded(Limited, EmbeddedCluster):
    """The cluster inside lictor."""


class LimitedPlane(Limited, ControlPlane):
    """A real control plane."""


@dataclass
class Site:
    """The cluster, lictor in it, and words that nobody in `red` may ever see."""

    cluster: LocalCluster
    lictor: Installation
    markers: dict[str, str] = field(default_factory=dict)

    def connect_attacker(self, name: str = "attacker") -> httpx2.Client:
        """Someone who may do everything in `red` or `orange`, or what `clerk` may; nothing elsewhere."""
        words = ("create", "token", name, "-n", "hidden", "--duration=24h")
        token = self.cluster.kubectl(*words).stdout.strip()
        config = yaml.safe_load(self.cluster.kubeconfig.read_text(encoding="utf-8"))
        encoded = config["clusters"][0]["cluster"]["certificate-authority-data"]
        context = ssl.create_default_context(cadata=base64.b64decode(encoded).decode())
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.Client(
            base_url=self.cluster.url, verify=context, headers=headers, timeout=30, trust_env=False
        )

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return (*self.lictor.replicas, *self.lictor.controllers)


def build_site(cluster: LocalCluster) -> Site:
    """Install lictor, make the namespaces, and wait until what protects `green` is enforced."""
    lictor = install_lictor(cluster, flags=FLAGS)
    site = Site(cluster, lictor)
    for name in (*NAMESPACES, "hidden", "exceptions", subresources.NAMESPACE):
        cluster.kubectl("create", "namespace", name)
    for namespace in VAULTS:
        site.markers[namespace] = f"marker{secrets.token_hex(12)}"
    cluster.kubectl("annotate", "namespace", "hidden", f"word={site.markers['blue']}")
    items = [*_rights(), *_vaults(site), *subresources.list_targets(), *GUARDS]
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    for component in CONTROLLERS:
        lictor.start_controller(component)
    until(lambda: _is_guarded(cluster), "policies in green that are enforced")
    return site


def _vaults(site: Site) -> list[Object]:
    """Objects that hold the markers, as Secrets and as ConfigMaps."""
    made: list[Object] = []
    for namespace, word in site.markers.items():
        metadata = {"name": "vault", "namespace": namespace, "labels": {"shared": "true"}}
        made.append({"kind": "Secret", "metadata": metadata, "stringData": {"word": word}})
        made.append({"kind": "ConfigMap", "metadata": metadata, "data": {"word": word}})
    mine = {"name": "vault", "namespace": "red", "labels": {"shared": "true"}}
    made.append({"kind": "ConfigMap", "metadata": mine, "data": {"word": "tomato"}})
    return [{"apiVersion": "v1", **each} for each in made]


def _rights() -> list[Object]:
    """Everything in `red` for the attacker; generous rights for lictor, so that only it stands between."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    core = ["configmaps", "secrets", "namespaces", "pods", "serviceaccounts"]
    written = {"apiGroups": [""], "resources": core, "verbs": _WRITE}
    read = {"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    exceptions = {"apiGroups": ["kyverno.io"], "resources": ["policyexceptions"], "verbs": _WRITE}
    bindings = {
        "apiGroups": ["rbac.authorization.k8s.io", "kyverno.io"],
        "resources": ["clusterrolebindings", "rolebindings", "clusterpolicies"],
        "verbs": _WRITE,
    }
    return [
        *_tenant("attacker", "red", everything),
        *_tenant("crowd", "orange", everything),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "clerk", "namespace": "hidden"},
        },
        *subresources.list_rights(
            {"kind": "ServiceAccount", "name": "clerk", "namespace": "hidden"}
        ),
        _cluster_role("background", [written, exceptions, bindings]),
        _cluster_role("cleanup", [written]),
        _cluster_role("admission", [read, written]),
        _cluster_role("reports", [read]),
    ]


def _tenant(name: str, namespace: str, rule: Object) -> list[Object]:
    # Elsewhere, as policies of `red` may well delete all ServiceAccounts of `red`.
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "hidden"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    rbac = "rbac.authorization.k8s.io/v1"
    mine, bound = {"name": name, "namespace": namespace}, {"roleRef": role, "subjects": [subject]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**mine, "namespace": "hidden"}},
        {"apiVersion": rbac, "kind": "Role", "metadata": mine, "rules": [rule]},
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": mine, **bound},
    ]


def _cluster_role(component: str, rules: list[Object]) -> Object:
    metadata = {"name": f"siege:{component}", "labels": {_AGGREGATED.format(component): "true"}}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**kind, "metadata": metadata, "rules": rules}


# --- what protects `green`, and shows that it does


def _guard(name: str, body: Object, *, namespace: str = "") -> Object:
    resources: Object = {"kinds": ["ConfigMap"]}
    if not namespace:
        resources["namespaces"] = ["green"]
    rule = {"name": name, "match": {"any": [{"resources": resources}]}, **body}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"failurePolicy": "Fail", "background": False, "rules": [rule]},
    }


def _refuse(message: str, **data: str) -> Object:
    return {"validate": {"failureAction": "Enforce", "message": message, "pattern": {"data": data}}}


GUARDS: tuple[Object, ...] = (
    _guard("guard", _refuse("no passwords", **{"X(password)": "x"})),
    _guard("local", _refuse("no keys", **{"X(key)": "x"}), namespace="green"),
    _guard(
        "stamp", {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"stamped": "yes"}}}}}
    ),
    {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "guard-cel"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "green"}},
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
            },
            "validations": [
                {"expression": "!('token' in object.?data.orValue({}))", "message": "no tokens"}
            ],
        },
    },
)


def _is_guarded(cluster: LocalCluster) -> bool:
    path = "/api/v1/namespaces/green/configmaps?dryRun=All"
    with cluster.connect() as client:
        for word, said in (
            ("password", "no passwords"),
            ("key", "no keys"),
            ("token", "no tokens"),
        ):
            body = {"metadata": {"name": "probe"}, "data": {word: "1"}}
            if said not in client.post(path, json=body).text:
                return False
        body = {"metadata": {"name": "probe"}, "data": {"fine": "1"}}
        return "stamped" in client.post(path, json=body).text


def find_admission(site: Site) -> Replica:
    """The webhook server."""
    return next(each for each in site.replicas if each.component == ADMISSION)
