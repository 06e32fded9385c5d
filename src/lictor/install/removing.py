"""An installation out of a cluster, also when nothing of it runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.install.crds import CrdKind, list_crd_kinds
from lictor.install.installation import (
    MANAGED,
    Installation,
    check_installation,
    delete_all,
    describe_object,
    is_ours,
    list_ours,
)
from lictor.install.rights import list_secret_names
from lictor.install.values import CONTROLLERS
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource

_POD = Resource("", "v1", "pods", "Pod")
_WEBHOOKS = (kinds.VALIDATING_WEBHOOK, kinds.MUTATING_WEBHOOK)
_ADMISSION = "admissionregistration.k8s.io"
_NATIVE = tuple(
    Resource(_ADMISSION, version, plural, kind, namespaced=False)
    for sort, versions in (
        ("Validating", ("v1",)),
        # v1 since Kubernetes 1.36; a version that is not served has no objects.
        ("Mutating", ("v1", "v1beta1", "v1alpha1")),
    )
    for version in versions
    for plural, kind in (
        (f"{sort.lower()}admissionpolicybindings", f"{sort}AdmissionPolicyBinding"),
        (f"{sort.lower()}admissionpolicies", f"{sort}AdmissionPolicy"),
    )
)
# How long the Pods of an installation have to end.
_PATIENCE = 60.0
_PAUSE = 0.5
# How long API servers may take to hear that a webhook is gone.
_FORGETTING = 15.0
# Kinds whose objects the controllers write, and write anew.
_MADE_BY_US = frozenset(("UpdateRequest", "EphemeralReport", "PolicyReport", "Report"))
# Kubernetes puts this ConfigMap into every namespace.
_ROOT_AUTHORITY = "kube-root-ca.crt"


async def count_objects(client: Client) -> dict[str, int]:
    """How many objects would go with our kinds, by the name of the kind."""
    counts: dict[str, int] = {}
    for kind in list_crd_kinds():
        resource = _serve(kind)
        try:
            async for page in client.list_pages(resource, metadata_only=True):
                name = f"{resource.plural}.{resource.group}"
                counts[name] = counts.get(name, 0) + len(page.get("items") or ())
        except NotFoundError:
            continue
    return {name: count for name, count in counts.items() if count}


async def list_remaining(client: Client, installation: Installation) -> AsyncIterator[str]:
    """What is still there after an installation went: policies, reports, settings of others."""
    for name, count in (await count_objects(client)).items():
        yield f"{count} {name}"
    names = installation.names
    for name in (names.config_map, names.metrics_config_map):
        if await client.find(kinds.CONFIG_MAP, name, installation.namespace) is not None:
            yield f"{describe_object(kinds.CONFIG_MAP, name)}, which lictor has not made"


def _serve(kind: CrdKind) -> Resource:
    version = next(each.name for each in kind.versions if each.storage)
    return Resource(kind.group, version, kind.plural, kind.name, kind.namespaced)


async def uninstall(
    client: Client, installation: Installation, *, delete_crds: bool = False
) -> AsyncIterator[str]:
    """Remove an installation; yields a line for each object. Works when nothing of it runs.

    First the webhooks, which the API server would call for all later steps; then the right to
    create webhooks, and those that were created meanwhile: after that the API server calls no
    webhook, and a controller that still runs cannot change that.
    """
    check_installation(installation)
    steps = (
        _delete_webhooks(client, installation),
        release_policies(client),
        _take_right(client, installation),
        _delete_webhooks(client, installation),
        _delete_deployments(client, installation),
        _await_pods(client, installation),
        # A controller that was writing when the right was removed has ended by now.
        _delete_webhooks(client, installation),
        _delete_native_policies(client),
        _delete_made(client, installation),
        *([_delete_definitions(client)] if delete_crds else []),
        _delete_namespace(client, installation),
    )
    for step in steps:
        async for line in step:
            yield line


async def _delete_deployments(client: Client, installation: Installation) -> AsyncIterator[str]:
    ours = await list_ours(client, installation)
    async for line in delete_all(client, [each for each in ours if each[0] == kinds.DEPLOYMENT]):
        yield line


async def _delete_webhooks(client: Client, installation: Installation) -> AsyncIterator[str]:
    """All that begin and end as ours do, so that those of an older or newer release go too."""
    start, _, end = installation.names.webhook("*").partition("*")
    for resource in _WEBHOOKS:
        configurations = await client.list(resource)
        names = [found["metadata"]["name"] for found in configurations]
        owned = {
            found["metadata"]["name"]
            for found in configurations
            if _is_owned_by(found, installation.names.owner_role)
        }
        ours = [
            name
            for name in names
            if name in owned or (name.startswith(start) and name.endswith(end))
        ]
        async for line in delete_all(client, [(resource, name, "") for name in ours]):
            yield line


def _is_owned_by(found: JsonObject, role: str) -> bool:
    """Was it created for a policy that has a separate webhook?"""
    owners = found["metadata"].get("ownerReferences") or ()
    return any(each["kind"] == "ClusterRole" and each["name"] == role for each in owners)


async def release_policies(client: Client) -> AsyncIterator[str]:
    """No controller is left that would remove finalizers of policies and policy servers."""
    for kind in registry().kinds:
        if not kind.finalizer:
            continue
        resource = kinds.find_resource(kind)
        try:
            found = await client.list(resource)
        except NotFoundError:
            continue
        for each in found:
            metadata = each["metadata"]
            held = metadata.get("finalizers") or []
            if kind.finalizer not in held:
                continue
            left = [name for name in held if name != kind.finalizer]
            namespace = str(metadata.get("namespace") or "")
            patch = {"metadata": {"finalizers": left}}
            await client.patch(resource, metadata["name"], patch, namespace=namespace)
            yield f"{describe_object(resource, metadata['name'])} released"


async def _take_right(client: Client, installation: Installation) -> AsyncIterator[str]:
    """The right to create webhooks. For a moment the API server calls those just deleted."""
    binding = (kinds.CLUSTER_ROLE_BINDING, installation.names.owner_role, "")
    until = time.monotonic() + _FORGETTING
    while True:
        try:
            async for line in delete_all(client, [binding]):
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
        async for line in delete_all(client, ours):
            yield line


def _is_generated(found: JsonObject) -> bool:
    owners = found["metadata"].get("ownerReferences") or ()
    own = {kind.group for kind in list_crd_kinds()}
    return any(owner["apiVersion"].partition("/")[0] in own for owner in owners)


async def _list_if_served(client: Client, resource: Resource) -> list[JsonObject]:
    try:
        return await client.list(resource, labels=f"{MANAGED}=kyverno")
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
    ours = await list_ours(client, installation)
    servers = [each async for each in _list_server_objects(client, place)]
    async for line in delete_all(client, [*ours, *secrets, *leases, *servers]):
        yield line


async def _list_server_objects(
    client: Client, place: str
) -> AsyncIterator[tuple[Resource, str, str]]:
    """What runs policy servers; the PolicyServers themselves are people's own."""
    for server in registry().with_role(Role.SERVER):
        if server.authority_secret:
            yield kinds.SECRET, server.authority_secret, place
        if not server.parts_label:
            continue
        for resource in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.CONFIG_MAP, kinds.SECRET):
            for found in await client.list(resource, place, labels=server.parts_label):
                yield resource, found["metadata"]["name"], place


async def _delete_definitions(client: Client) -> AsyncIterator[str]:
    names = [f"{kind.plural}.{kind.group}" for kind in list_crd_kinds()]
    objects = [(kinds.CUSTOM_RESOURCE_DEFINITION, name, "") for name in names]
    async for line in delete_all(client, objects):
        yield line


async def _delete_namespace(client: Client, installation: Installation) -> AsyncIterator[str]:
    """Only if it is ours, and if it contains no objects of other owners."""
    found = await client.find(kinds.NAMESPACE, installation.namespace)
    if found is None or not is_ours(found) or _is_going(found):
        return
    if held := [line async for line in _list_held(client, installation.namespace)]:
        yield f"{_describe_namespace(installation)} left as it is: it holds {', '.join(held)}"
        return
    objects = [(kinds.NAMESPACE, installation.namespace, "")]
    async for line in delete_all(client, objects):
        yield line


def _describe_namespace(installation: Installation) -> str:
    return describe_object(kinds.NAMESPACE, installation.namespace)


async def _list_held(client: Client, namespace: str) -> AsyncIterator[str]:
    """What users have created in the namespace: policies, exceptions, settings."""
    written = [
        _serve(kind)
        for kind in list_crd_kinds()
        if kind.namespaced and kind.name not in _MADE_BY_US
    ]
    for resource in (*written, kinds.CONFIG_MAP, kinds.SECRET):
        try:
            found = await client.list(resource, namespace)
        except NotFoundError:
            continue
        for each in found:
            if each["metadata"]["name"] != _ROOT_AUTHORITY and not _is_going(each):
                yield describe_object(resource, each["metadata"]["name"])


def _is_going(found: JsonObject) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))
