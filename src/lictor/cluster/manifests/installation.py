"""What an installer may choose, the names and labels that follow, and objects with these."""

import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

from lictor.cluster import resource as kinds
from lictor.cluster.client import Client
from lictor.cluster.names import Names
from lictor.cluster.resource import Resource
from lictor.errors import UsageError
from lictor.raw import Json, JsonObject

CONTROLLERS = ("admission", "background", "reports", "cleanup")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# What a Service may be called limits how our longest name may begin.
_LONGEST_PREFIX = 63 - len("-background-controller-metrics")
# Namespaces that others need: ours is deleted when lictor goes.
_SHARED_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Installation(msgspec.Struct, frozen=True):
    """One lictor in one cluster."""

    image: str
    version: str
    prefix: str = "lictor"
    namespace: str = "lictor"
    replicas: int = 3
    # Of each other controller; they elect a leader, and share the scanning.
    controller_replicas: int = 1
    all_in_one: bool = False
    open_reports: bool = False
    # The kinds may have been installed before, by someone who may do that.
    skip_crds: bool = False
    image_pull_secrets: tuple[str, ...] = ()
    # Flags of the controllers, and entries of the ConfigMap, beside or instead of the usual ones.
    flags: Mapping[str, str] = msgspec.field(default_factory=dict)
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def names(self) -> Names:
        return Names(prefix=self.prefix, namespace=self.namespace)


def check_installation(installation: Installation) -> None:
    """Refuse what the API server, or good sense, would refuse later."""
    for what, name in (("prefix", installation.prefix), ("namespace", installation.namespace)):
        if not _DNS_LABEL.fullmatch(name) or len(name) > 63:
            raise UsageError(
                f"{what} {name!r}: write lower case letters, digits and hyphens, at most 63"
            )
    if len(installation.prefix) > _LONGEST_PREFIX:
        raise UsageError(f"prefix {installation.prefix!r}: at most {_LONGEST_PREFIX} characters")
    if installation.namespace in _SHARED_NAMESPACES:
        raise UsageError(f"namespace {installation.namespace}: choose one that is lictor's own")
    if installation.replicas < 1 or installation.controller_replicas < 1:
        raise UsageError("at least one replica is needed")


# --- labels


def match_labels(installation: Installation, component: str) -> dict[str, str]:
    """The labels that selectors use; they must stay the same from release to release."""
    return {
        "app.kubernetes.io/part-of": installation.prefix,
        "app.kubernetes.io/instance": installation.prefix,
        "app.kubernetes.io/component": component,
    }


def build_labels(installation: Installation, component: str) -> dict[str, str]:
    """All labels of an object that belongs to a component."""
    return {
        **match_labels(installation, component),
        "app.kubernetes.io/name": f"{installation.prefix}-{component}",
        "app.kubernetes.io/version": installation.version,
        "app.kubernetes.io/managed-by": "lictor",
    }


def build_object(
    installation: Installation, kind: str, name: str, component: str, **parts: Json
) -> JsonObject:
    """An object in our namespace. `kind` is `group/version/Kind`, or `version/Kind`."""
    made = build_cluster_object(installation, kind, name, component, **parts)
    made["metadata"]["namespace"] = installation.namespace
    return made


def build_cluster_object(
    installation: Installation, kind: str, name: str, component: str, **parts: Json
) -> JsonObject:
    """An object that is in no namespace."""
    api_version, _, short = kind.rpartition("/")
    return {
        "apiVersion": api_version,
        "kind": short,
        "metadata": {"name": name, "labels": build_labels(installation, component)},
        **parts,
    }


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
