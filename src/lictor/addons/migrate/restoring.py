"""Kyverno's objects into a file, and from the file back into the cluster, in place of lictor's."""

from collections.abc import AsyncIterator, Iterable

from lictor.addons.migrate.inventory import OBJECTS, KyvernoInventory, sort_objects
from lictor.core.errors import UsageError
from lictor.core.raw import JsonObject
from lictor.install.installation import (
    Installation,
    delete_all,
    describe_object,
    is_ours,
    list_ours,
)
from lictor.install.storage_versions import StaleDefinition, apply_definition, store_anew
from lictor.install.taking_over import can_replace, join_rules, wait_for_rollout
from lictor.install.values import CONTROLLERS
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names, is_own_object
from lictor.kubernetes.resource import Resource

# What the API server writes itself.
_VOLATILE = frozenset((
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation",
    "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
))  # fmt: skip
# Addresses of a Service stay what they are for as long as it is there.
_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
_RESOURCES = {(each.api_version, each.kind): each for each in OBJECTS}
# These would not be brought back as they were: they are the record of something that has run.
_NOT_SAVED = ("Job",)
# In this order: what something needs comes before it, the Deployments last.
_ORDER = (
    "Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding",
    "ConfigMap", "Service",
)  # fmt: skip


# --- into a file


def collect_saved(inventory: KyvernoInventory) -> list[JsonObject]:
    """What an installation can be made of again: no policies, no reports, no Secrets."""
    found = (
        *inventory.definitions,
        *inventory.others,
        *inventory.config_maps.values(),
        *inventory.deployments.values(),
    )
    if any(map(is_ours, inventory.deployments.values())):
        raise UsageError("lictor has taken Kyverno's place already: there is nothing to save")
    return [_strip(each) for each in found if each["kind"] not in _NOT_SAVED]


def _strip(document: JsonObject) -> JsonObject:
    """The object without what the API server has added."""
    metadata = {k: v for k, v in document["metadata"].items() if k not in _VOLATILE}
    stripped = {**document, "metadata": metadata}
    if document["kind"] != "CustomResourceDefinition":
        stripped.pop("status", None)
    if document["kind"] == "Service":
        spec = document["spec"]
        stripped["spec"] = {k: v for k, v in spec.items() if k not in _ADDRESSES}
    return stripped


# --- and back


async def restore_objects(
    client: Client, names: Names, saved: list[JsonObject]
) -> AsyncIterator[str]:
    """Put everything back as it was. ConfigMaps that are there stay as they are.

    First what Pods need, then the webhook server, and when its Pods have taken over, the others;
    last goes what only lictor had. Until then the roles give the rights of both. Kyverno's
    controllers then write its webhooks, which have the names of lictor's.
    """
    check_saved(saved, names)
    workloads = _sort_workloads(saved, names)
    await _check_workloads(client, workloads)
    async for line in _restore_definitions(client, saved):
        yield line
    others = [each for each in saved if each["kind"] not in ("Deployment", _CRD.kind)]
    for each in sorted(others, key=_rank):
        yield await _restore(client, each, for_both=True)
    for each in workloads:
        line = await _restore(client, each)
        yield line
        if each["metadata"]["name"] == names.controller("admission"):
            yield f"{line.partition(' ')[0]}: waiting until its Pods have taken over"
            await wait_for_rollout(client, each["metadata"]["name"], names.namespace)
    for each in others:
        if each.get("rules"):
            await _restore(client, each)
    async for line in _delete_rest(client, names, saved):
        yield line


_CRD = kinds.CUSTOM_RESOURCE_DEFINITION


def check_saved(saved: Iterable[JsonObject], names: Names) -> None:
    """Raises UsageError if a file contains an object that `--save` does not write: no other
    object is replaced.
    """
    for each in saved:
        metadata = each["metadata"]
        resource = _CRD if each["kind"] == _CRD.kind else _find_resource(each)
        name, namespace = metadata["name"], str(metadata.get("namespace") or "")
        is_own = is_own_object(names, resource, namespace, name)
        if not resource.namespaced and resource.kind not in (_CRD.kind, "Namespace"):
            is_own |= name.startswith(f"{names.prefix}-")
        if not is_own or each["kind"] in _NOT_SAVED or not sort_objects([each], names).is_known:
            named = describe_object(resource, name)
            raise UsageError(f"{named}: migrate --save writes no such object: nothing was changed")
        if not all(_is_own_account(subject, names) for subject in each.get("subjects") or ()):
            named = (
                f"{describe_object(resource, name)}: gives rights to others than service accounts"
            )
            raise UsageError(f"{named} in namespace {names.namespace}: nothing was changed")


def _is_own_account(subject: JsonObject, names: Names) -> bool:
    return subject.get("kind") == "ServiceAccount" and subject.get("namespace") == names.namespace


def _rank(document: JsonObject) -> int:
    kind = document["kind"]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _sort_workloads(saved: Iterable[JsonObject], names: Names) -> list[JsonObject]:
    """The Deployments, the webhook server first."""
    order = {names.controller(each): number for number, each in enumerate(CONTROLLERS)}
    found = [each for each in saved if each["kind"] == "Deployment"]
    if names.controller("admission") not in {each["metadata"]["name"] for each in found}:
        where = f"{names.controller('admission')} in namespace {names.namespace}"
        raise UsageError(f"there is no Deployment {where} in the file: nothing was changed")
    return sorted(found, key=lambda each: order.get(each["metadata"]["name"], len(order)))


async def _check_workloads(client: Client, workloads: Iterable[JsonObject]) -> None:
    for each in workloads:
        metadata = each["metadata"]
        live = await client.find(kinds.DEPLOYMENT, metadata["name"], metadata["namespace"])
        if live is not None and not can_replace(each, live):
            name = describe_object(kinds.DEPLOYMENT, metadata["name"])
            raise UsageError(f"{name} has another selector in the cluster: nothing was changed")


async def _restore_definitions(client: Client, saved: Iterable[JsonObject]) -> AsyncIterator[str]:
    stale: list[StaleDefinition] = []
    for each in saved:
        if each["kind"] != _CRD.kind:
            continue
        manifest = {name: value for name, value in each.items() if name != "status"}
        live = await client.find(_CRD, manifest["metadata"]["name"])
        found = await apply_definition(client, manifest, live)
        stale += [found] if found is not None else []
        yield f"{describe_object(_CRD, manifest['metadata']['name'])} restored"
    async for line in store_anew(client, stale):
        yield line


async def _restore(client: Client, document: JsonObject, *, for_both: bool = False) -> str:
    """One object as in the file, regardless of the current state.

    `for_both`: a role goes on giving the rights that it gives now.
    """
    resource = _find_resource(document)
    metadata = document["metadata"]
    name = describe_object(resource, metadata["name"])
    live = await client.find(resource, metadata["name"], metadata.get("namespace") or "")
    if live is None:
        await client.create(resource, document)
        return f"{name} made"
    if document["kind"] in ("ConfigMap", "Namespace"):
        return f"{name} left as it is"
    version = {"resourceVersion": live["metadata"]["resourceVersion"]}
    whole = join_rules(document, live) if for_both else document
    body = {**whole, "metadata": {**metadata, **version}}
    if document["kind"] == "Service":
        kept = {field: live["spec"][field] for field in _ADDRESSES if field in live["spec"]}
        body["spec"] = {**document["spec"], **kept}
    await client.replace(resource, body)
    return f"{name} restored"


def _find_resource(document: JsonObject) -> Resource:
    resource = _RESOURCES.get((document["apiVersion"], document["kind"]))
    if resource is None:
        raise UsageError(f"{document['kind']} {document['metadata']['name']}: not saved by lictor")
    return resource


async def _delete_rest(
    client: Client, names: Names, saved: Iterable[JsonObject]
) -> AsyncIterator[str]:
    """What lictor has made beside what was there."""
    installation = Installation(
        image="", version="", prefix=names.prefix, namespace=names.namespace
    )
    kept = {(each["kind"], each["metadata"]["name"]) for each in saved}
    rest = await list_ours(client, installation, kept)
    async for line in delete_all(client, rest):
        yield line
