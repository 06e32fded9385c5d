"""Manifests into a cluster, without losing what others have set there."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from lictor.core.errors import UsageError
from lictor.core.raw import JsonObject
from lictor.install.differences import (
    InstallationDifference,
    describe_change,
    describe_difference,
    find_differences,
    keep_fields,
    print_path,
)
from lictor.install.installation import (
    RESOURCES,
    Installation,
    delete_all,
    describe_object,
    find_resource,
    is_ours,
    list_chosen_settings,
    list_ours,
)
from lictor.install.settings_map import SETTINGS
from lictor.install.storage_versions import StaleDefinition, apply_definition, store_anew
from lictor.install.taking_over import (
    KEEPER,
    build_mark,
    build_replacement,
    can_replace,
    describe_images,
    join_rules,
    wait_for_rollout,
    wait_for_webhooks,
)
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client, PatchType
from lictor.kubernetes.resource import Resource

# The kinds and the rights are those of the release: it does not work with others.
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
    def replaces(self) -> str:
        """What runs in a Deployment of someone else that becomes ours; nothing where it is ours."""
        is_workload = self.resource == kinds.DEPLOYMENT
        if not is_workload or self.live is None or is_ours(self.live):
            return ""
        return describe_images(self.live)

    @property
    def is_theirs(self) -> bool:
        """Settings that someone else has made: they are never overwritten as a whole."""
        is_settings = self.resource == kinds.CONFIG_MAP
        return is_settings and self.live is not None and not is_ours(self.live)

    @property
    def has_joint_rules(self) -> bool:
        """Is it a role of someone else's Pods, which run until all of them are replaced?"""
        is_foreign = self.live is not None and not is_ours(self.live)
        return is_foreign and bool(self.manifest.get("rules"))

    @property
    def is_left(self) -> bool:
        """An administrator can install us into an existing Namespace."""
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

    Raises UsageError where Deployments of someone else have our names and look after other Pods
    than ours would: these cannot be replaced in place.
    """
    steps = [await _plan_step(client, installation, each, named) for each in manifests]
    foreign = [step.name for step in steps if not _is_replaceable(step)]
    if foreign:
        raise UsageError(
            f"{', '.join(foreign)} in namespace {installation.namespace}: not made by lictor, and "
            "with another selector than it would have. Delete what runs under this name first; the "
            "custom resource definitions, and with them the policies, can stay"
        )
    return steps


def _is_replaceable(step: InstallStep) -> bool:
    if step.resource != kinds.DEPLOYMENT or step.live is None or is_ours(step.live):
        return True
    return can_replace(step.manifest, step.live)


async def _plan_step(
    client: Client, installation: Installation, manifest: JsonObject, named: frozenset[str]
) -> InstallStep:
    resource = find_resource(manifest)
    metadata = manifest["metadata"]
    live = await client.find(resource, metadata["name"], metadata.get("namespace") or "")
    if live is None:
        return InstallStep(manifest)
    found = find_differences(manifest, live)
    step = InstallStep(manifest, live)
    if step.is_left:
        return step
    if resource in _FOLLOW_RELEASE:
        return InstallStep(manifest, live, tuple(found))
    if step.replaces:
        return _plan_replacement(step, installation, named)
    kept = [each for each in found if _is_kept(step, each, installation, named)]
    changed = [each for each in found if each not in kept]
    return InstallStep(manifest, live, tuple(changed), tuple(kept))


def _plan_replacement(
    step: InstallStep, installation: Installation, named: frozenset[str]
) -> InstallStep:
    """The manifest of a Deployment that takes the place of another one, as it will be written."""
    if step.live is None or not can_replace(step.manifest, step.live):
        return step
    keeps_replicas = _name_replicas(step, installation) not in named
    return InstallStep(
        build_replacement(step.manifest, step.live, replicas=keeps_replicas), step.live
    )


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
        return path[-1].removeprefix("f:") not in list_chosen_settings(installation)
    if step.live is not None and not is_ours(step.live):
        return False
    if path == _REPLICAS:
        return _name_replicas(step, installation) not in named
    return bool(difference.manager) and _OPTIONS.get(path[-1]) not in named


def _name_replicas(step: InstallStep, installation: Installation) -> str:
    admission = installation.names.controller("admission")
    is_admission = step.manifest["metadata"]["name"] == admission
    return "replicas" if is_admission else "controller_replicas"


async def describe_plan(
    client: Client, installation: Installation, steps: list[InstallStep]
) -> AsyncIterator[str]:
    """What applying would create, change, keep and delete; nothing if there is no difference."""
    for step in steps:
        for line in _describe_step(step):
            yield line
    kept = {(each.manifest["kind"], each.manifest["metadata"]["name"]) for each in steps}
    for resource, name, _ in await list_ours(client, installation, kept):
        yield f"{describe_object(resource, name)} would be deleted"


def _describe_step(step: InstallStep) -> Iterator[str]:
    if step.live is None:
        yield f"{step.name} would be made"
    elif step.replaces:
        yield f"{step.name} runs {step.replaces}, and would be replaced, Pod by Pod"
        spec = step.manifest["spec"]
        yield f"  {spec['replicas']} replicas"
        for container in spec["template"]["spec"]["containers"]:
            yield f"  {' '.join(container['args'])}"
    for difference in step.changed:
        is_schema = step.resource in _FOLLOW_RELEASE
        what = print_path(difference.path) if is_schema else describe_change(difference)
        yield f"{step.name} would change: {what}"
    for difference in step.kept:
        yield f"{step.name} would stay as it is in:"
        yield from (f"  {line}" for line in describe_difference(difference))


# --- making it happen


async def install(
    client: Client, installation: Installation, steps: list[InstallStep], *, overwrite: bool = False
) -> AsyncIterator[str]:
    """Apply manifests in their order, and remove what another way of installing left behind.

    Yields what was done. Fields of other managers stay, unless `overwrite`. Objects without a
    namespace, except the kinds, are owned by our Namespace: deleting it removes the rights, and
    with them the webhooks, while policies are kept.
    """
    owner: JsonObject | None = None
    definitions = [s for s in steps if s.resource == kinds.CUSTOM_RESOURCE_DEFINITION]
    for step in steps:
        if step.resource == kinds.CUSTOM_RESOURCE_DEFINITION:
            # All of them with the first: what is stored in older versions is looked after once.
            async for line in _apply_definitions(client, definitions):
                yield line
            definitions = []
        elif step.is_left:
            owner = step.live
            yield f"{step.name} left as it is"
        elif step.replaces:
            async for line in _replace(client, installation, step):
                yield line
        else:
            made = await _apply_step(client, installation, step, owner, overwrite=overwrite)
            owner = made if step.resource == kinds.NAMESPACE else owner
            for line in _describe_applied(step, overwrite=overwrite):
                yield line
    kept = {(each.manifest["kind"], each.manifest["metadata"]["name"]) for each in steps}
    async for line in delete_all(client, await list_ours(client, installation, kept)):
        yield line
    await _part_rules(client, steps, owner)


async def _part_rules(
    client: Client, steps: Iterable[InstallStep], owner: JsonObject | None
) -> None:
    """The roles are used by lictor only from now on."""
    for step in steps:
        if step.has_joint_rules:
            await client.apply(step.resource, _add_owner(step.resource, step.manifest, owner))


def _describe_applied(step: InstallStep, *, overwrite: bool) -> Iterator[str]:
    yield f"{step.name} applied"
    # Differences of whole schemas and lists of rules are not readable.
    if step.resource not in _FOLLOW_RELEASE:
        overwritten = step.kept if overwrite and not step.is_theirs else ()
        for difference in (*step.changed, *overwritten):
            yield f"  {describe_change(difference)}"


async def _apply_definitions(client: Client, steps: Iterable[InstallStep]) -> AsyncIterator[str]:
    """The kinds; objects that are stored in older versions are stored again."""
    stale: list[StaleDefinition] = []
    for step in steps:
        found = await apply_definition(client, step.manifest, step.live)
        stale += [found] if found is not None else []
        yield f"{step.name} applied"
    async for line in store_anew(client, stale):
        yield line


async def _replace(
    client: Client, installation: Installation, step: InstallStep
) -> AsyncIterator[str]:
    """Replace a Deployment by another one; its Pods are replaced one after the other.

    The webhook server comes first, and nothing else goes before all of its Pods are there: it
    answers what the others answered.
    """
    if step.live is None:
        return
    metadata = step.manifest["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    await client.replace(kinds.DEPLOYMENT, step.manifest)
    await client.request(
        "PATCH",
        kinds.DEPLOYMENT.path(namespace, name),
        body=build_mark(step.manifest, step.live),
        params={"fieldManager": KEEPER, "force": "true"},
        content_type=PatchType.APPLY,
    )
    yield f"{step.name} replaced (it ran {step.replaces})"
    if name == installation.names.controller("admission"):
        yield f"{step.name}: waiting until its Pods have taken over"
        await wait_for_rollout(client, name, namespace)
        if warning := await wait_for_webhooks(client, installation):
            yield warning


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
    if step.has_joint_rules:
        manifest = join_rules(manifest, step.live)
    return await client.apply(step.resource, _add_owner(step.resource, manifest, owner))


def _build_patch(installation: Installation, step: InstallStep, *, overwrite: bool) -> JsonObject:
    """The settings to write into a ConfigMap that is there; others in it stay."""
    ours = step.manifest["data"]
    chosen = list_chosen_settings(installation)
    overwrite = overwrite and not step.is_theirs
    data = {name: ours[name] for name in ours if overwrite or name in chosen}
    if step.manifest["metadata"]["name"] == installation.names.config_map:
        data.update(dict.fromkeys((chosen & SETTINGS) - ours.keys()))
    # One of someone else's stays theirs: it is not deleted with lictor.
    labels = {} if step.is_theirs else step.manifest["metadata"]["labels"]
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
