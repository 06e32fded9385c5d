"""Which collections does the API server have, and what can be done with the objects in them?"""

import asyncio
import time
from collections.abc import Iterator

import msgspec

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.errors import ApiError, NotFoundError
from lictor.raw import Json, JsonObject

_AT_ONCE = 8


class Served(msgspec.Struct, frozen=True):
    """A collection in one version, and the verbs that it takes."""

    resource: Resource
    verbs: frozenset[str]
    # This is the version to use where nobody asks for another one.
    preferred: bool = True


class ServedKinds:
    """All collections, in the API server's order of groups; asked for again after `keep` seconds.

    A group that does not answer is left out: what nobody can reach nobody can list or delete.
    """

    def __init__(self, client: Client, *, keep: float = 30.0) -> None:
        self._client = client
        self._keep = keep
        self._known: tuple[Served, ...] = ()
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def read(self, *, fresh: bool = False) -> tuple[Served, ...]:
        """What the API server has."""
        async with self._lock:
            if fresh or time.monotonic() >= self._until:
                self._known = await self._read_all()
                self._until = time.monotonic() + self._keep
            return self._known

    async def _read_all(self) -> tuple[Served, ...]:
        answer = await self._client.request("GET", "/apis")
        groups = [("", ["v1"]), *_list_groups(answer)]
        gate = asyncio.Semaphore(_AT_ONCE)
        lists = await asyncio.gather(
            *(
                self._read_list(group, version, gate)
                for group, versions in groups
                for version in versions
            )
        )
        return tuple(_prefer(served for found in lists for served in found))

    async def _read_list(self, group: str, version: str, gate: asyncio.Semaphore) -> list[Served]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        async with gate:
            try:
                answer = await self._client.request("GET", path)
            except NotFoundError:
                return []
            except ApiError as error:
                # An aggregated API whose server is away must not hide all the others.
                if error.status >= 500:
                    return []
                raise
        return list(_read_resources(group, version, answer))


def _list_groups(answer: Json) -> Iterator[tuple[str, list[str]]]:
    """Groups with their versions, the preferred one first."""
    for group in answer.get("groups") or ():
        versions = [str(each["version"]) for each in group.get("versions") or ()]
        preferred = (group.get("preferredVersion") or {}).get("version")
        yield str(group["name"]), sorted(versions, key=lambda version: version != preferred)


def _read_resources(group: str, version: str, answer: JsonObject) -> Iterator[Served]:
    for each in answer.get("resources") or ():
        name = str(each.get("name") or "")
        if name and "/" not in name:
            resource = Resource(
                group, version, name, str(each.get("kind") or ""), bool(each.get("namespaced"))
            )
            yield Served(resource, frozenset(each.get("verbs") or ()))


def _prefer(found: Iterator[Served]) -> Iterator[Served]:
    """The first version of each collection is the preferred one; a group may lack it there."""
    seen: set[tuple[str, str]] = set()
    for served in found:
        key = (served.resource.group, served.resource.plural)
        yield msgspec.structs.replace(served, preferred=key not in seen)
        seen.add(key)
