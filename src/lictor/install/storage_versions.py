"""In which versions does etcd hold objects of our kinds, and how do they all get into the newest?

A definition must name every version in which objects may be stored. Other releases have had other
versions: their objects are written once more, in the version that is stored now.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.raw import JsonObject
from lictor.install.installation import describe_object
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource

_CRD = kinds.CUSTOM_RESOURCE_DEFINITION
# API servers hear of a changed definition a little after it was written.
_SPREAD = 3.0
# How many objects that cannot be written are named.
_MOST_NAMED = 5


class StaleDefinition(msgspec.Struct, frozen=True):
    """A definition, and the other versions in which objects may still be stored."""

    manifest: JsonObject
    versions: tuple[str, ...]
    # It has been applied with versions that are not its own, until no object needs them.
    is_widened: bool
    # The API server has to hear that it stores in another version from now on.
    is_moving: bool


async def apply_definition(
    client: Client, manifest: JsonObject, live: JsonObject | None
) -> StaleDefinition | None:
    """Apply a definition; what is given back must be handed to `store_anew` afterwards."""
    stale = find_stale(manifest, live)
    if live is None or not stale:
        await client.apply(_CRD, manifest)
        return None
    widened = add_versions(manifest, live, stale)
    await client.apply(_CRD, widened)
    is_moving = find_storage_version(live) != find_storage_version(manifest)
    return StaleDefinition(manifest, tuple(stale), widened != manifest, is_moving)


async def store_anew(client: Client, stale: Sequence[StaleDefinition]) -> AsyncIterator[str]:
    """Store all objects in the version of their definition; yields a line for each kind."""
    if any(each.is_moving for each in stale):
        await asyncio.sleep(_SPREAD)
    for each in stale:
        stored = _find_stored(each.manifest)
        count, failures = await _write_again(client, stored)
        name = describe_object(_CRD, each.manifest["metadata"]["name"])
        old = ", ".join(each.versions)
        if failures:
            yield f"{name}: warning: objects are still stored in {old}: {'; '.join(failures)}"
            continue
        await _forget_versions(client, each.manifest, stored.version)
        if each.is_widened:
            await client.apply(_CRD, each.manifest)
        yield f"{name}: {count} objects stored in {stored.version}, none in {old}"


def find_stale(manifest: JsonObject, live: JsonObject | None) -> list[str]:
    """Versions other than the manifest's own in which objects may be stored."""
    listed = ((live or {}).get("status") or {}).get("storedVersions") or ()
    return [version for version in listed if version != find_storage_version(manifest)]


def find_storage_version(definition: JsonObject) -> str:
    """The version in which objects are written."""
    return next(str(each["name"]) for each in definition["spec"]["versions"] if each["storage"])


def add_versions(manifest: JsonObject, live: JsonObject, wanted: list[str]) -> JsonObject:
    """The manifest with versions that it does not have, as the cluster has them."""
    versions = manifest["spec"]["versions"]
    known = {each["name"] for each in versions}
    added = [
        {**each, "storage": False}
        for each in live["spec"]["versions"]
        if each["name"] in wanted and each["name"] not in known
    ]
    if not added:
        return manifest
    return {**manifest, "spec": {**manifest["spec"], "versions": [*versions, *added]}}


def _find_stored(manifest: JsonObject) -> Resource:
    spec = manifest["spec"]
    return Resource(
        spec["group"],
        find_storage_version(manifest),
        spec["names"]["plural"],
        spec["names"]["kind"],
        namespaced=spec["scope"] == "Namespaced",
    )


async def _write_again(client: Client, resource: Resource) -> tuple[int, list[str]]:
    """Write every object as it is: the API server stores it in the version of now."""
    count, failures = 0, []
    try:
        pages = [page async for page in client.list_pages(resource, metadata_only=True)]
    except NotFoundError:
        return 0, []
    for item in (item for page in pages for item in page.get("items") or ()):
        metadata = item["metadata"]
        try:
            await client.patch(
                resource, metadata["name"], {}, namespace=metadata.get("namespace") or ""
            )
            count += 1
        except NotFoundError:
            continue
        except ApiError as error:
            failures.append(f"{describe_object(resource, metadata['name'])}: {error}")
    more = len(failures) - _MOST_NAMED
    return count, [*failures[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


async def _forget_versions(client: Client, manifest: JsonObject, version: str) -> None:
    """Nothing is stored in the other versions any more."""
    name = manifest["metadata"]["name"]
    await client.patch(_CRD, name, {"status": {"storedVersions": [version]}}, subresource="status")
