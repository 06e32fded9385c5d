"""Which objects in a cluster belong to an installation, and how are they told and deleted?"""

from collections.abc import AsyncIterator, Collection, Iterable
from typing import TypeAlias

from lictor.cluster import resource as kinds
from lictor.cluster.client import Client
from lictor.cluster.manifests.installation import Installation
from lictor.cluster.resource import Resource
from lictor.raw import JsonObject

# What kind, its name, and its namespace where it has one.
Address: TypeAlias = tuple[Resource, str, str]

# In the order in which they can go: what uses something goes before it.
RESOURCES = {
    (each.api_version, each.kind): each
    for each in (
        kinds.DEPLOYMENT,
        kinds.SERVICE,
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        kinds.CONFIG_MAP,
        kinds.CLUSTER_ROLE_BINDING,
        kinds.ROLE_BINDING,
        kinds.CLUSTER_ROLE,
        kinds.ROLE,
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        kinds.CUSTOM_RESOURCE_DEFINITION,
        kinds.NAMESPACE,
    )
}
MANAGED = "app.kubernetes.io/managed-by"


def find_resource(manifest: JsonObject) -> Resource:
    """How the API server serves the kind of one of our manifests."""
    return RESOURCES[manifest["apiVersion"], manifest["kind"]]


def describe_object(resource: Resource, name: str) -> str:
    """An object as kubectl names it."""
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.kind.lower()}{group}/{name}"


def is_ours(found: JsonObject) -> bool:
    """Did an installation of lictor make this object?"""
    labels = found["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED) == "lictor")


async def list_ours(
    client: Client, installation: Installation, kept: Collection[tuple[str, str]] = ()
) -> list[Address]:
    """Everything that carries our labels, whichever release made it, but for what is kept."""
    labels = f"{MANAGED}=lictor,app.kubernetes.io/instance={installation.prefix}"
    found: list[Address] = []
    for resource in RESOURCES.values():
        if resource in (kinds.NAMESPACE, kinds.CUSTOM_RESOURCE_DEFINITION):
            continue
        place = installation.namespace if resource.namespaced else ""
        for item in await client.list(resource, place, labels=labels):
            name = item["metadata"]["name"]
            if (resource.kind, name) not in kept:
                found.append((resource, name, place))
    return found


async def delete_all(client: Client, objects: Iterable[Address]) -> AsyncIterator[str]:
    """Delete objects; tells those that were there."""
    for resource, name, namespace in objects:
        if await client.delete(resource, name, namespace, propagation="Background"):
            yield f"{describe_object(resource, name)} deleted"
