"""The objects that run one policy server: ConfigMap, Deployment, Service, PodDisruptionBudget.

Names, labels, paths and variables are those of Kubewarden, so that its images run unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

import orjson

from lictor.addons.kubewarden.family.policy_server import (
    CONFIG_VERSION,
    KUBEWARDEN,
    PART_OF,
    POLICIES_FILE,
    SERVER_LABEL,
    SOURCES_FILE,
    PolicyServer,
)
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.resource import Resource

DISRUPTION_BUDGET = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
REPLICA_SET = Resource("apps", "v1", "replicasets", "ReplicaSet")

# Of the policies in a ConfigMap, which is also in quotes there.
_MOST_BYTES = 768 * 1024
_MOST_OF_A_NAMESPACE = 96 * 1024
SERVICE_PORT = 443
# Readers of YAML stop at some depth; ours at 200.
_DEEPEST = 150
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LEGACY_PORT = 8443
_METRICS_PORT = 8080
_CONFIG = "/config"
_SOURCES = "/sources"
_CERTIFICATES = "/pki"
_STORE = "/tmp"  # noqa: S108  (inside the container, where Kubewarden has it)
_STORE_VOLUME = "policy-store"
_VERIFICATION = "/verification"
_TRUST = "/sigstore-trust-config"
_DOCKER = "/home/kubewarden/.docker"
_CONTAINER_RIGHTS: JsonObject = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}
_POD_RIGHTS: JsonObject = {"seccompProfile": {"type": "RuntimeDefault"}}


class _MountedFiles(NamedTuple):
    """A volume of files that Pods read, and the variables that name them."""

    name: str
    path: str
    source: JsonObject
    variables: Mapping[str, str]


def label_common(server: PolicyServer) -> dict[str, str]:
    """The labels of everything that belongs to a server."""
    return {
        "app.kubernetes.io/component": "policy-server",
        "app.kubernetes.io/instance": server.full_name,
        "app.kubernetes.io/managed-by": "kubewarden-controller",
        PART_OF: KUBEWARDEN,
        SERVER_LABEL: server.name,
    }


def build_config_map(
    server: PolicyServer, namespace: str, entries: Mapping[str, JsonObject]
) -> JsonObject:
    """The policies of a server by unique name, and the sources that it trusts."""
    sources = {
        "insecure_sources": list(server.spec.insecure_sources),
        "source_authorities": {
            host: [{"type": "Data", "data": each} for each in certificates]
            for host, certificates in server.spec.source_authorities.items()
        },
    }
    data = {
        POLICIES_FILE: _write_yaml(entries),
        SOURCES_FILE: orjson.dumps(sources, option=orjson.OPT_SORT_KEYS).decode(),
    }
    return {"metadata": _describe(server, namespace), "data": data}


def fit_entries(entries: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """The entries that fit: those of the cluster, then those of namespaces, in their order.

    An API server refuses a ConfigMap of more than a mebibyte, and with it the policies of all.
    """
    kept: dict[str, JsonObject] = {}
    used: Counter[str] = Counter()
    # Those of the cluster first, and else as they are.
    for name, entry in sorted(entries.items(), key=lambda each: bool(_read_namespace(each[1]))):
        if not can_be_written(entry):
            continue
        namespace, size = _read_namespace(entry), len(_write_yaml({name: entry}).encode())
        most = _MOST_OF_A_NAMESPACE if namespace else _MOST_BYTES
        if used[namespace] + size <= most and used.total() + size <= _MOST_BYTES:
            used[namespace] += size
            kept[name] = entry
    return kept


def _read_namespace(entry: JsonObject) -> str:
    return str(entry["namespacedName"]["Namespace"])


def can_be_written(entry: JsonObject) -> bool:
    """Whether servers can read the entry; one that they cannot would keep them from all others."""
    level: list[Json] = [entry]
    for _ in range(_DEEPEST):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [
            value for each in inner for value in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def _write_yaml(entries: Mapping[str, JsonObject]) -> str:
    """JSON, but for characters that may not stand in YAML as they are."""
    text = orjson.dumps(entries, option=orjson.OPT_SORT_KEYS).decode()
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def find_version(server: PolicyServer, config: JsonObject) -> str:
    """What Pods are started with: while it stays, they need not be started again.

    Lictor's own look at their policies all the time; Kubewarden's only when they start.
    """
    data = {
        name: text
        for name, text in config["data"].items()
        if name != POLICIES_FILE or not server.runs_lictor
    }
    return sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def build_service(server: PolicyServer, namespace: str) -> JsonObject:
    """The Service that webhooks name."""
    target = server.spec.webhook_port
    ports = [
        {"name": "policy-server", "port": SERVICE_PORT},
        {"name": "policy-server-legacy", "port": _LEGACY_PORT},
    ]
    written = [{**port, "protocol": "TCP", "targetPort": target} for port in ports]
    if server.spec.metrics_port is not None:
        port = {"name": "metrics", "port": server.spec.metrics_port, "protocol": "TCP"}
        written.append({**port, "targetPort": _METRICS_PORT})
    return {
        "metadata": _describe(server, namespace, {"app": _name_app(server)}),
        "spec": {"ports": written, "selector": {"app": _name_app(server)}},
    }


def build_budget(server: PolicyServer, namespace: str) -> JsonObject | None:
    """How many Pods must stay while nodes are drained; None if the server does not set it."""
    spec = server.spec
    if spec.min_available is not None:
        limit: JsonObject = {"minAvailable": spec.min_available}
    elif spec.max_unavailable is not None:
        limit = {"maxUnavailable": spec.max_unavailable}
    else:
        return None
    common = label_common(server)
    chosen = {name: common[name] for name in ("app.kubernetes.io/instance", PART_OF, SERVER_LABEL)}
    return {
        "metadata": _describe(server, namespace),
        "spec": {**limit, "selector": {"matchLabels": chosen}},
    }


def build_deployment(server: PolicyServer, namespace: str, version: str) -> JsonObject:
    """The Pods of a server; another version rolls them out anew."""
    spec, labels = server.spec, label_common(server)
    metadata = _describe(server, namespace, spec.labels)
    metadata["annotations"] = {**spec.annotations, CONFIG_VERSION: version}
    template = {
        **spec.labels,
        "app": _name_app(server),
        CONFIG_VERSION: version,
        **labels,
    }
    return {
        "metadata": metadata,
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": {"app": _name_app(server)}},
            "strategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": template, "annotations": dict(spec.annotations)},
                "spec": _build_pod(server),
            },
        },
    }


def _describe(
    server: PolicyServer, namespace: str, labels: Mapping[str, str] | None = None
) -> JsonObject:
    return {
        "name": server.full_name,
        "namespace": namespace,
        "labels": {**(labels or {}), **label_common(server)},
        "ownerReferences": [build_owner(server)],
    }


def build_owner(server: PolicyServer) -> JsonObject:
    """The server as the owner of its objects: they go when it goes."""
    return {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "PolicyServer",
        "name": server.name,
        "uid": server.uid,
    }


def _name_app(server: PolicyServer) -> str:
    return f"kubewarden-{server.full_name}"


def _build_pod(server: PolicyServer) -> JsonObject:
    spec = server.spec
    pod: JsonObject = {
        "containers": [_build_container(server)],
        "securityContext": spec.security_contexts.pod or _POD_RIGHTS,
        "volumes": [
            {"name": _STORE_VOLUME, "emptyDir": {}},
            *({"name": each.name, **each.source} for each in _list_files(server)),
        ],
    }
    for name, value in (
        ("serviceAccountName", spec.service_account_name),
        ("tolerations", list(spec.tolerations)),
        ("affinity", spec.affinity),
        ("priorityClassName", spec.priority_class_name),
    ):
        if value:
            pod[name] = value
    return pod


def _build_container(server: PolicyServer) -> JsonObject:
    spec, files = server.spec, _list_files(server)
    mounts = [{"name": each.name, "mountPath": each.path, "readOnly": True} for each in files]
    container: JsonObject = {
        "name": server.full_name,
        "image": spec.image,
        "env": [*_list_variables(server, files), *spec.env],
        "volumeMounts": [*mounts, {"name": _STORE_VOLUME, "mountPath": _STORE}],
        "readinessProbe": {
            "httpGet": {
                "path": "/readiness",
                "port": spec.readiness_probe_port,
                "scheme": "HTTP",
            }
        },
        "resources": {
            name: value
            for name, value in (("limits", spec.limits), ("requests", spec.requests))
            if value
        },
        "securityContext": spec.security_contexts.container or _CONTAINER_RIGHTS,
    }
    # Kubewarden's image runs one program, ours has many.
    own = {"command": ["lictor"], "args": ["policy-server"]}
    return {**container, **own} if server.runs_lictor else container


def _list_variables(server: PolicyServer, files: Iterable[_MountedFiles]) -> list[JsonObject]:
    spec = server.spec
    variables = {
        "CERT_FILE": f"{_CERTIFICATES}/tls.crt",
        "KEY_FILE": f"{_CERTIFICATES}/tls.key",
        "PORT": str(spec.webhook_port),
        "READINESS_PROBE_PORT": str(spec.readiness_probe_port),
        "POLICIES_DOWNLOAD_DIR": _STORE,
        "POLICIES": f"{_CONFIG}/{POLICIES_FILE}",
        "SIGSTORE_CACHE_DIR": f"{_STORE}/sigstore-data",
        # One broken policy makes its own requests fail, and no others.
        "CONTINUE_ON_ERRORS": "true",
    }
    for each in files:
        variables |= each.variables
    return [{"name": f"KUBEWARDEN_{name}", "value": value} for name, value in variables.items()]


def _list_files(server: PolicyServer) -> list[_MountedFiles]:
    """What the Pods read, besides the folder that they write to."""
    spec = server.spec
    secret = {"secret": {"secretName": server.full_name}}
    found = [
        _MountedFiles("certs", _CERTIFICATES, secret, {}),
        _mount_config("policies", _CONFIG, server.full_name, POLICIES_FILE),
    ]
    if name := spec.verification_config:
        key, file, variable = "verification-config", "verification.yml", "VERIFICATION_CONFIG_PATH"
        found.append(_mount_config("verification", _VERIFICATION, name, key, file, variable))
    if name := spec.sigstore_trust_config:
        key, variable = "sigstore-trust-config", "SIGSTORE_TRUST_CONFIG_PATH"
        found.append(_mount_config(key, _TRUST, name, key, f"{key}.json", variable))
    if spec.image_pull_secret:
        items = [{"key": ".dockerconfigjson", "path": "config.json"}]
        source = {"secret": {"secretName": spec.image_pull_secret, "items": items}}
        variables = {"DOCKER_CONFIG_JSON_PATH": _DOCKER}
        found.append(_MountedFiles("imagepullsecret", _DOCKER, source, variables))
    if spec.insecure_sources or spec.source_authorities:
        name, variable = server.full_name, "SOURCES_PATH"
        found.append(_mount_config("sources", _SOURCES, name, SOURCES_FILE, variable=variable))
    return found


def _mount_config(
    name: str, path: str, config_map: str, key: str, file: str = "", variable: str = ""
) -> _MountedFiles:
    """One entry of a ConfigMap, as a file with the name of the entry unless another is given."""
    items = [{"key": key, "path": file or key}]
    source = {"configMap": {"name": config_map, "items": items}}
    variables = {variable: f"{path}/{file or key}"} if variable else {}
    return _MountedFiles(name, path, source, variables)
