"""Manifests into a cluster, without losing what others have set there."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

import msgspec

from lictor.cluster import resource as kinds
from lictor.cluster.client import Client
from lictor.cluster.manifests.differences import (
    InstallationDifference,
    describe_change,
    find_differences,
    keep_fields,
)
from lictor.cluster.manifests.installation import (
    RESOURCES,
    Installation,
    delete_all,
    describe_object,
    find_resource,
    is_ours,
    list_ours,
)
from lictor.cluster.resource import Resource
from lictor.errors import UsageError
from lictor.raw import JsonObject

# The kinds and the rights are what a release says: it would not work with others.
_FOLLOW_RELEASE = frozenset(
    each
    for each in RESOURCES.values()
    if each == kinds.CUSTOM_RESOURCE_DEFINITION or each.group == kinds.ROLE.group
)
_REPLICAS = ("f:spec", "f:replicas")
# Which option of `install` decides about a field, by the last step of its path.
_OPTIONS = {
    "f:image": "image",
    "f:args": "flags",
    "f:imagePullSecrets": "image_pull_secrets",
}
# How long the API server may take to serve the kinds.
_PATIENCE = 60.0
_PAUSE = 0.5


class InstallStep(msgspec.Struct, frozen=True):
    """One manifest, the object of its name in the cluster, and how they differ."""

    manifest: JsonObject
    live: JsonObject | None = None
    changed: tuple[InstallationDifference, ...] = ()
    # Set by others, or settings that are there: these stay, unless the installer wants otherwise.
    kept: tuple[InstallationDifference, ...] = ()

    @property
    def resource(self) -> Resource:
        return find_resource(self.manifest)

    @property
    def name(self) -> str:
        return describe_object(self.resource, self.manifest["metadata"]["name"])

    @property
    def is_left(self) -> bool:
        """Someone may have us installed into a Namespace of their own."""
        is_namespace = self.resource == kinds.NAMESPACE
        return is_namespace and self.live is not None and not is_ours(self.live)


# --- what would happen


async def plan_installation(
    client: Client,
    installation: Installation,
    manifests: Iterable[JsonObject],
    named: frozenset[str] = frozenset(),
) -> list[InstallStep]:
    """Compare all manifests with the cluster. `named` are the options that were given.

    Raises UsageError where Deployments of someone else run under our names: two programs in one Pod
    would both fail.
    """
    steps = [await _plan_step(client, installation, each, named) for each in manifests]
    foreign = [s.name for s in steps if s.resource == kinds.DEPLOYMENT and _is_foreign(s)]
    if foreign:
        raise UsageError(
            f"{', '.join(foreign)} in namespace {installation.namespace}: not made by lictor. "
            "Delete what runs under this name first; the custom resource definitions, and with "
            "them the policies, can stay"
        )
    return steps


def _is_foreign(step: InstallStep) -> bool:
    return step.live is not None and not is_ours(step.live)


async def _plan_step(
    client: Client, installation: Installation, manifest: JsonObject, named: frozenset[str]
) -> InstallStep:
    resource = find_resource(manifest)
    if resource in _FOLLOW_RELEASE:
        return InstallStep(manifest)
    metadata = manifest["metadata"]
    live = await client.find(resource, metadata["name"], metadata.get("namespace") or "")
    if live is None:
        return InstallStep(manifest)
    found = find_differences(manifest, live)
    step = InstallStep(manifest, live)
    if step.is_left:
        return step
    kept = [each for each in found if _is_kept(step, each, installation, named)]
    changed = [each for each in found if each not in kept]
    return InstallStep(manifest, live, tuple(changed), tuple(kept))


def _is_kept(
    step: InstallStep,
    difference: InstallationDifference,
    installation: Installation,
    named: frozenset[str],
) -> bool:
    """Does the field stay as it is in the cluster?"""
    path = difference.path
    if step.resource == kinds.CONFIG_MAP and path[0] == "f:data":
        # An entry that is missing may have been removed, which is a setting too.
        return path[-1].removeprefix("f:") not in installation.settings
    if _is_foreign(step):
        return False
    if path == _REPLICAS:
        return _name_replicas(step, installation) not in named
    return bool(difference.manager) and _OPTIONS.get(path[-1]) not in named


def _name_replicas(step: InstallStep, installation: Installation) -> str:
    admission = installation.names.controller("admission")
    is_admission = step.manifest["metadata"]["name"] == admission
    return "replicas" if is_admission else "controller_replicas"


# --- making it happen


async def install(
    client: Client, installation: Installation, steps: list[InstallStep], *, overwrite: bool = False
) -> AsyncIterator[str]:
    """Apply manifests in their order, and remove what another way of installing left behind.

    Tells what was done. What others have set stays, unless `overwrite`. What has no namespace is
    owned by ours, but for the kinds: deleting the Namespace alone removes the rights, and with them
    the webhooks, while nobody's policies are lost.
    """
    owner: JsonObject | None = None
    for step in steps:
        if step.is_left:
            owner = step.live
            yield f"{step.name} left as it is"
            continue
        made = await _apply_step(client, installation, step, owner, overwrite=overwrite)
        owner = made if step.resource == kinds.NAMESPACE else owner
        yield f"{step.name} applied"
        for difference in (*step.changed, *(step.kept if overwrite else ())):
            yield f"  {describe_change(difference)}"
    kept = {(each.manifest["kind"], each.manifest["metadata"]["name"]) for each in steps}
    async for line in delete_all(client, await list_ours(client, installation, kept)):
        yield line


async def _apply_step(
    client: Client,
    installation: Installation,
    step: InstallStep,
    owner: JsonObject | None,
    *,
    overwrite: bool,
) -> JsonObject:
    if step.resource == kinds.CONFIG_MAP and step.live is not None:
        patch = _build_patch(installation, step, overwrite=overwrite)
        metadata = step.manifest["metadata"]
        return await client.patch(
            step.resource, metadata["name"], patch, namespace=metadata["namespace"]
        )
    manifest = keep_fields(step.manifest, () if overwrite else step.kept)
    return await client.apply(step.resource, _add_owner(step.resource, manifest, owner))


def _build_patch(installation: Installation, step: InstallStep, *, overwrite: bool) -> JsonObject:
    """The settings to write into a ConfigMap that is there; others in it stay."""
    ours = step.manifest["data"]
    data = {name: ours[name] for name in ours if overwrite or name in installation.settings}
    if step.manifest["metadata"]["name"] == installation.names.config_map:
        removed = (name for name, value in installation.settings.items() if not value)
        data.update(dict.fromkeys(removed))
    # One of someone else's stays theirs: it is not deleted with lictor.
    labels = {} if _is_foreign(step) else step.manifest["metadata"]["labels"]
    return {"metadata": {"labels": labels}, "data": data}


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


def _is_established(definition: JsonObject) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in conditions
    )
