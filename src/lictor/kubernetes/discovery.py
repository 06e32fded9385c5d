"""The resources that the API server serves, and those that a kind selector matches."""

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource


class ServedKinds:
    """All collections, in the API server's order; read again after `keep` seconds.

    A group that has never answered is omitted: its objects cannot be listed or deleted.
    """

    def __init__(self, client: Client, *, keep: float = 30.0) -> None:
        self._discovery = Discovery(client)
        self._keep = keep
        self._known: tuple[Collection, ...] = ()
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def read(self, *, fresh: bool = False) -> "tuple[Collection, ...]":
        """The served collections."""
        async with self._lock:
            if fresh or time.monotonic() >= self._until:
                await self._discovery.refresh()
                self._known = tuple(self._discovery.list_collections())
                self._until = time.monotonic() + self._keep
            return self._known


_AT_ONCE = 8
# For an unknown kind the server is queried again, but not each time.
_LEAST_PAUSE = 2.0
_MAX_FOUND = 4096


class ServedResource(msgspec.Struct, frozen=True, order=True):
    """A resource or a subresource, as in paths."""

    group: str
    version: str
    resource: str
    subresource: str
    kind: str
    namespaced: bool
    # Its verbs: list, watch, delete ...
    verbs: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Such as `pods` or `pods/exec`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Collection(msgspec.Struct, frozen=True):
    """The objects of one kind in one version, and their verbs."""

    resource: Resource
    verbs: frozenset[str]
    # Whether this is the preferred version.
    preferred: bool = True


class Discovery:
    """The API server's resources. Read on demand, cached until marked stale."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # By group version, so that one that does not answer keeps its last state.
        self._lists: dict[str, tuple[ServedResource, ...]] = {}
        self._resources: tuple[ServedResource, ...] = ()
        self._found: dict[str, tuple[ServedResource, ...]] = {}
        self._failed: tuple[str, ...] = ()
        self._stale = True
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    @property
    def resources(self) -> tuple[ServedResource, ...]:
        """All resources, in order; the same tuple until something changes."""
        return self._resources

    @property
    def failed(self) -> tuple[str, ...]:
        """Group versions that are listed but did not answer."""
        return self._failed

    def follow(self, *caches: Cache) -> None:
        """Mark stale on changes of these (CustomResourceDefinitions)."""
        for cache in caches:
            cache.listen(lambda _: self.mark_stale())

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when something may have changed; it must not block."""
        self._listeners.append(listener)

    def mark_stale(self) -> None:
        """The next `ensure` queries the API server again."""
        self._stale = True
        for listener in self._listeners:
            listener()

    async def ensure(self) -> None:
        """Query the API server if something has changed since the last time."""
        if self._stale:
            await self.refresh()

    async def refresh(self) -> None:
        """Query the API server now."""
        async with self._lock:
            # Changes while the lists are read make them stale again.
            self._stale = False
            try:
                await self._read()
            except BaseException:
                self._stale = True
                raise
            self._read_at = time.monotonic()

    def list_collections(self) -> list[Collection]:
        """Everything but subresources, in the API server's order of groups and versions."""
        found: list[Collection] = []
        seen: set[tuple[str, str]] = set()
        # The API server lists the versions of a group in its order of preference.
        for each in (served for kept in self._lists.values() for served in kept):
            if not each.subresource:
                key = (each.group, each.resource)
                made = Resource(each.group, each.version, each.resource, each.kind, each.namespaced)
                found.append(Collection(made, frozenset(each.verbs), key not in seen))
                seen.add(key)
        return found

    def list_kinds(self) -> list[Resource]:
        """Every kind that can be listed and watched, in its preferred version."""
        return [
            each.resource
            for each in self.list_collections()
            if each.preferred and {"list", "watch"} <= each.verbs
        ]

    async def search(self, selector: str) -> tuple[ServedResource, ...]:
        """Like `find`, but queries once more if nothing is found."""
        await self.ensure()
        found = self.find(selector)
        if not found and time.monotonic() - self._read_at >= _LEAST_PAUSE:
            await self.refresh()
            found = self.find(selector)
        return found

    def find(self, selector: str) -> tuple[ServedResource, ...]:
        """The resources that a text such as `apps/*/Deployment` or `Pod/exec` matches."""
        found = self._found.get(selector)
        if found is None:
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            found = find_resources(self._resources, parse_kind_selector(selector))
            self._found[selector] = found
        return found

    async def _read(self) -> None:
        versions = ["v1", *await self._list_group_versions()]
        gate = asyncio.Semaphore(_AT_ONCE)
        answers = await asyncio.gather(*(self._read_list(each, gate) for each in versions))
        told = dict(zip(versions, answers, strict=True))
        self._failed = tuple(sorted(each for each, answer in told.items() if answer is None))
        lists = {
            version: self._lists.get(version, ()) if answer is None else answer
            for version, answer in told.items()
        }
        if lists != self._lists:
            self._lists = lists
            self._resources = tuple(sorted({each for kept in lists.values() for each in kept}))
            self._found.clear()

    async def _list_group_versions(self) -> list[str]:
        groups = await self._client.request("GET", "/apis")
        return [
            version["groupVersion"]
            for group in groups.get("groups") or ()
            for version in group.get("versions") or ()
        ]

    async def _read_list(
        self, group_version: str, gate: asyncio.Semaphore
    ) -> tuple[ServedResource, ...] | None:
        root = "/apis" if "/" in group_version else "/api"
        async with gate:
            try:
                answer = await self._client.request("GET", f"{root}/{group_version}")
            except NotFoundError:
                return ()
            except ApiError as error:
                # An aggregated API whose server is away (503) must not hide all others.
                if error.status >= 500:
                    return None
                raise
        return tuple(_read_resources(group_version, answer.get("resources") or ()))


def _read_resources(
    group_version: str, resources: Iterable[JsonObject]
) -> Iterable[ServedResource]:
    group, _, version = group_version.rpartition("/")
    for each in resources:
        resource, _, subresource = str(each.get("name", "")).partition("/")
        yield ServedResource(
            group,
            version,
            resource,
            subresource,
            str(each.get("kind", "")),
            bool(each.get("namespaced")),
            tuple(sorted(each.get("verbs") or ())),
        )


def find_resources(
    resources: Iterable[ServedResource], selector: KindSelector
) -> tuple[ServedResource, ...]:
    """Those that a selector matches, by the kind of the resource, not of its subresource."""
    fits_group = compile_wildcard(selector.group)
    fits_version = compile_wildcard(selector.version)
    fits_kind = compile_wildcard(selector.kind)
    fits_subresource = compile_wildcard(selector.subresource)
    chosen = [each for each in resources if fits_group(each.group) and fits_version(each.version)]
    parents = {
        (each.group, each.version, each.resource)
        for each in chosen
        if not each.subresource and fits_kind(each.kind)
    }
    everything = selector.kind == "*" and selector.subresource == "*"
    return tuple(
        each
        for each in chosen
        if (each.group, each.version, each.resource) in parents
        and (
            (not each.subresource and (everything or not selector.subresource))
            or (each.subresource and selector.subresource and fits_subresource(each.subresource))
        )
    )
