"""What is there before anyone has created anything: namespaces, roles, the API's own Service."""

from collections.abc import Iterator

from lictor.apiserver.access.bootstrap_roles import list_bootstrap_bindings, list_bootstrap_roles
from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.apiserver.loopback_client import SYSTEM, LoopbackClient
from lictor.apiserver.store import Store
from lictor.raw import JsonObject

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SERVICE_ADDRESS = "10.96.0.1"
# Under which clients in a Pod would find the server, if there were Pods.
_SERVICE_PORT = 443


async def create_bootstrap_objects(
    api: LoopbackClient, store: Store, catalogue: KindCatalogue, port: int
) -> None:
    """Create what is missing."""
    for document in _list_furniture(port):
        kind = catalogue.find_kind(document["apiVersion"], document["kind"])
        metadata = document["metadata"]
        namespace = metadata.get("namespace") or ""
        if kind is not None and store.get(kind, namespace, metadata["name"]) is None:
            await api.create(SYSTEM, kind, document, namespace=namespace)


def _list_furniture(port: int) -> Iterator[JsonObject]:
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
