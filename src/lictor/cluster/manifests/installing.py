"""Manifests into a cluster, and all that an installation left there out of it again."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable
from http import HTTPStatus
from typing import TypeAlias

from lictor.cluster import resource as kinds
from lictor.cluster.client import Client
from lictor.cluster.manifests.installation import (
    CONTROLLERS,
    Installation,
    check_installation,
)
from lictor.cluster.manifests.kinds import KINDS
from lictor.cluster.manifests.rights import list_secret_names
from lictor.cluster.resource import Resource
from lictor.errors import ApiError, NotFoundError, UsageError
from lictor.raw import JsonObject

# What kind, its name, and its namespace where it has one.
_Address: TypeAlias = tuple[Resource, str, str]

# In the order in which they can go: what uses something goes before it.
_RESOURCES = {
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
_POD = Resource("", "v1", "pods", "Pod")
_WEBHOOKS = (kinds.VALIDATING_WEBHOOK, kinds.MUTATING_WEBHOOK)
_ADMISSION = "admissionregistration.k8s.io"
_NATIVE = tuple(
    Resource(_ADMISSION, version, plural, kind, namespaced=False)
    for version, plural, kind in (
        ("v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        ("v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("v1beta1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        ("v1beta1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        ("v1alpha1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        ("v1alpha1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    )
)
_OWN_GROUPS = frozenset(kind.group for kind in KINDS)
# How long the Pods of an installation have to end.
_PATIENCE = 60.0
_PAUSE = 0.5
# How long API servers may take to hear that a webhook is gone.
_FORGETTING = 15.0
_MANAGED = "app.kubernetes.io/managed-by"


# --- into the cluster


async def install(
    client: Client, installation: Installation, manifests: list[JsonObject]
) -> AsyncIterator[str]:
    """Apply manifests in their order, and remove what another way of installing left behind.

    Tells what was done. What has no namespace is owned by ours, but for the kinds: deleting the
    Namespace alone removes the rights, and with them the webhooks, while nobody's policies are
    lost.
    """
    owner = await client.find(kinds.NAMESPACE, installation.namespace)
    for manifest in manifests:
        resource, name = find_resource(manifest), manifest["metadata"]["name"]
        if resource == kinds.NAMESPACE:
            if owner is not None and not _is_ours(owner):
                yield f"{_describe(resource, name)} left as it is"
                continue
            owner = await client.apply(resource, manifest)
        else:
            await client.apply(resource, _add_owner(resource, manifest, owner))
        yield f"{_describe(resource, name)} applied"
    kept = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    async for line in _delete_all(client, await _list_ours(client, installation, kept)):
        yield line


async def wait_for_kinds(client: Client, manifests: Iterable[JsonObject]) -> None:
    """Until the API server serves the kinds."""
    until = time.monotonic() + _PATIENCE
    for manifest in manifests:
        if manifest["kind"] != kinds.CUSTOM_RESOURCE_DEFINITION.kind:
            continue
        name = manifest["metadata"]["name"]
        while not _is_established(await client.get(kinds.CUSTOM_RESOURCE_DEFINITION, name)):
            if time.monotonic() > until:
                raise UsageError(f"the API server does not serve {name}")
            await asyncio.sleep(_PAUSE)


def find_resource(manifest: JsonObject) -> Resource:
    """How the API server serves the kind of one of our manifests."""
    return _RESOURCES[manifest["apiVersion"], manifest["kind"]]


def _add_owner(resource: Resource, manifest: JsonObject, owner: JsonObject | None) -> JsonObject:
    if resource not in (kinds.CLUSTER_ROLE, kinds.CLUSTER_ROLE_BINDING) or owner is None:
        return manifest
    reference = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def _is_ours(found: JsonObject) -> bool:
    labels = found["metadata"].get("labels") or {}
    return bool(labels.get(_MANAGED) == "lictor")


def _is_established(definition: JsonObject) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in conditions
    )


# --- out of the cluster


async def uninstall(
    client: Client, installation: Installation, *, keep_crds: bool = False
) -> AsyncIterator[str]:
    """Remove an installation; tells each object that went. Works when nothing of it runs.

    First the webhooks, as the API server might ask them about all that follows; then the right to
    make webhooks, and those that were made meanwhile: from then on the API server asks nobody, and
    whoever still runs cannot change that.
    """
    check_installation(installation)
    steps = (
        _delete_webhooks(client, installation),
        _take_right(client, installation),
        _delete_webhooks(client, installation),
        _delete_deployments(client, installation),
        _await_pods(client, installation),
        # Whoever was writing when the right was taken away has ended by now.
        _delete_webhooks(client, installation),
        _delete_native_policies(client),
        _delete_made(client, installation),
        _delete_definitions(client, keep=keep_crds),
        _delete_namespace(client, installation),
    )
    for step in steps:
        async for line in step:
            yield line


async def _list_ours(
    client: Client, installation: Installation, kept: Collection[tuple[str, str]] = ()
) -> list[_Address]:
    """Everything that carries our labels, whichever release made it, but for what is kept."""
    labels = f"{_MANAGED}=lictor,app.kubernetes.io/instance={installation.prefix}"
    found: list[_Address] = []
    for resource in _RESOURCES.values():
        if resource in (kinds.NAMESPACE, kinds.CUSTOM_RESOURCE_DEFINITION):
            continue
        place = installation.namespace if resource.namespaced else ""
        for item in await client.list(resource, place, labels=labels):
            name = item["metadata"]["name"]
            if (resource.kind, name) not in kept:
                found.append((resource, name, place))
    return found


async def _delete_all(client: Client, objects: Iterable[_Address]) -> AsyncIterator[str]:
    for resource, name, namespace in objects:
        if await client.delete(resource, name, namespace, propagation="Background"):
            yield f"{_describe(resource, name)} deleted"


async def _delete_deployments(client: Client, installation: Installation) -> AsyncIterator[str]:
    ours = await _list_ours(client, installation)
    async for line in _delete_all(client, [each for each in ours if each[0] == kinds.DEPLOYMENT]):
        yield line


async def _delete_webhooks(client: Client, installation: Installation) -> AsyncIterator[str]:
    """All that begin and end as ours do, so that those of an older or newer release go too."""
    start, _, end = installation.names.webhook("*").partition("*")
    for resource in _WEBHOOKS:
        names = [found["metadata"]["name"] for found in await client.list(resource)]
        ours = [name for name in names if name.startswith(start) and name.endswith(end)]
        async for line in _delete_all(client, [(resource, name, "") for name in ours]):
            yield line


async def _take_right(client: Client, installation: Installation) -> AsyncIterator[str]:
    """The right to make webhooks. For a moment the API server asks those that have just gone."""
    binding = (kinds.CLUSTER_ROLE_BINDING, installation.names.owner_role, "")
    until = time.monotonic() + _FORGETTING
    while True:
        try:
            async for line in _delete_all(client, [binding]):
                yield line
        except ApiError as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > until:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return


async def _await_pods(client: Client, installation: Installation) -> AsyncIterator[str]:
    """Until our Pods have ended; a cluster where nothing runs has none."""
    parts = ",".join(f"{controller}-controller" for controller in CONTROLLERS)
    labels = (
        f"app.kubernetes.io/instance={installation.prefix},app.kubernetes.io/component in ({parts})"
    )
    until = time.monotonic() + _PATIENCE
    while pods := await client.list(_POD, installation.namespace, labels=labels):
        if time.monotonic() > until:
            yield f"warning: {len(pods)} pods have not ended"
            return
        await asyncio.sleep(_PAUSE)


async def _delete_native_policies(client: Client) -> AsyncIterator[str]:
    """The API server's own policies that were made from ours would go on refusing."""
    for resource in _NATIVE:
        found = await _list_if_served(client, resource)
        ours = [(resource, each["metadata"]["name"], "") for each in found if _is_generated(each)]
        async for line in _delete_all(client, ours):
            yield line


def _is_generated(found: JsonObject) -> bool:
    owners = found["metadata"].get("ownerReferences") or ()
    return any(owner["apiVersion"].partition("/")[0] in _OWN_GROUPS for owner in owners)


async def _list_if_served(client: Client, resource: Resource) -> list[JsonObject]:
    try:
        return await client.list(resource, labels=f"{_MANAGED}=kyverno")
    except NotFoundError:
        return []


async def _delete_made(client: Client, installation: Installation) -> AsyncIterator[str]:
    """Our objects, and what the controllers made beside them."""
    place = installation.namespace
    secrets = [(kinds.SECRET, name, place) for name in list_secret_names(installation)]
    leases = [
        (kinds.LEASE, lease["metadata"]["name"], place)
        for lease in await client.list(kinds.LEASE, place)
        if lease["metadata"]["name"].startswith(installation.prefix)
    ]
    ours = await _list_ours(client, installation)
    async for line in _delete_all(client, [*ours, *secrets, *leases]):
        yield line


async def _delete_definitions(client: Client, *, keep: bool) -> AsyncIterator[str]:
    names = [] if keep else [f"{kind.plural}.{kind.group}" for kind in KINDS]
    objects = [(kinds.CUSTOM_RESOURCE_DEFINITION, name, "") for name in names]
    async for line in _delete_all(client, objects):
        yield line


async def _delete_namespace(client: Client, installation: Installation) -> AsyncIterator[str]:
    """Only where it is ours: someone may have installed into a Namespace of their own."""
    found = await client.find(kinds.NAMESPACE, installation.namespace)
    if found is not None and _is_ours(found):
        objects = [(kinds.NAMESPACE, installation.namespace, "")]
        async for line in _delete_all(client, objects):
            yield line


def _describe(resource: Resource, name: str) -> str:
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.kind.lower()}{group}/{name}"
