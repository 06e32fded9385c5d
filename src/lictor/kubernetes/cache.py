"""A watched copy of one kind of object, kept up to date through disconnects and restarts."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from lictor.core.errors import ApiError, GoneError, NotFoundError
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, str]

_FIRST_PAUSE = 0.5
# After the server returns, old policies must not be used for long.
_LONGEST_PAUSE = 4.0
# How often to retry a kind that the API server does not serve (yet).
_ABSENT_PAUSE = 3.0
_PAGE = 500
_FORBIDDEN = (401, 403)


class ChangeType(StrEnum):
    """The type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(msgspec.Struct, frozen=True):
    """One object before and after."""

    type: ChangeType
    object: JsonObject
    before: JsonObject | None = None


Listener: TypeAlias = Callable[[Change], None]
Keep: TypeAlias = Callable[[JsonObject], JsonObject]


def drop_managed_fields(item: JsonObject) -> JsonObject:
    """The object without managed fields, often half of its size."""
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return item


class Cache:
    """Objects of one kind by namespace and name. `run` keeps it up to date until cancelled.

    A kind that the API server does not serve counts as empty, and is retried.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        keep: Keep = drop_managed_fields,
    ) -> None:
        self.resource = resource
        self._client = client
        self.namespace = namespace
        self._labels = labels
        self._fields = fields
        self.keep = keep
        # The page size, and the retry interval for a kind that is not served.
        self.page = _PAGE
        self.absent_pause = _ABSENT_PAUSE
        # The minimum pause after an authentication failure.
        self.refused_pause = 0.0
        self._items: dict[Key, JsonObject] = {}
        self._listeners: list[Listener] = []
        self._synced = asyncio.Event()
        self._settled = asyncio.Event()
        self._since = ""
        self._pause = _FIRST_PAUSE
        # Why the objects cannot be listed or watched now; empty if they can.
        self.trouble = ""
        # The HTTP status of the API server's refusal; 0 if there was none, or no response.
        self.refused = 0
        # The number of full lists, and of failures.
        self.reads = 0
        self.faults = 0
        self._hurried = asyncio.Event()

    @property
    def is_synced(self) -> bool:
        """True after the first complete list."""
        return self._synced.is_set()

    async def wait(self) -> None:
        """Wait for the first complete list."""
        await self._synced.wait()

    async def wait_settled(self) -> None:
        """The same, or until the API server denies access: see `trouble`."""
        await self._settled.wait()

    def get(self, name: str, namespace: str = "") -> JsonObject | None:
        return self._items.get((namespace, name))

    def list(self, namespace: str | None = None) -> list[JsonObject]:
        """All objects, or those of one namespace, sorted by name."""
        keys = sorted(key for key in self._items if namespace is None or key[0] == namespace)
        return [self._items[key] for key in keys]

    def __len__(self) -> int:
        return len(self._items)

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every later change; it must not block."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """List and watch, and restart after failures. Ends only when cancelled."""
        while True:
            try:
                if not self._since:
                    await self._read_all()
                await self._follow()
            except GoneError:
                self._since = ""
                await self._rest()
            except NotFoundError as error:
                self._replace_all(())
                self._since = ""
                self._note_trouble(error)
                await self._pause_for(self.absent_pause)
            except ApiError as error:
                self._note_trouble(error)
                log.warning(
                    "watch interrupted",
                    extra={"resource": self.resource.plural, "why": str(error)[:200]},
                )
                self._since = self._since if error.status == 0 else ""
                if error.status in _FORBIDDEN and self.refused_pause:
                    await self._pause_for(self.refused_pause)
                else:
                    await self._rest()

    @property
    def is_absent(self) -> bool:
        """Whether the API server does not serve this kind."""
        return self.refused == 404

    def _note_trouble(self, error: ApiError) -> None:
        self.trouble, self.refused = str(error), error.status
        self.faults += 1
        if error.status in _FORBIDDEN:
            self._settled.set()

    async def _rest(self) -> None:
        """Pause before a retry, longer each time until there is a response."""
        await self._pause_for(self._pause * random.uniform(0.5, 1.0))  # noqa: S311
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    async def _pause_for(self, seconds: float) -> None:
        self._hurried.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        except TimeoutError:
            return

    def hurry(self) -> None:
        """Retry now instead of after the pause: the cause may be gone."""
        self._hurried.set()

    async def _read_all(self) -> None:
        items: list[JsonObject] = []
        version = ""
        async for page in self._client.list_pages(
            self.resource,
            self.namespace,
            labels=self._labels,
            fields=self._fields,
            page=self.page,
        ):
            items += [self.keep(item) for item in page.get("items") or ()]
            version = page["metadata"].get("resourceVersion") or version
        self._replace_all(items)
        self._since = version
        self.trouble, self.refused = "", 0
        self.reads += 1

    async def _follow(self) -> None:
        started = time.monotonic()
        async for event in self._client.watch(
            self.resource,
            since=self._since,
            namespace=self.namespace,
            labels=self._labels,
            fields=self._fields,
        ):
            self._pause = _FIRST_PAUSE
            self.trouble, self.refused = "", 0
            self._since = event.object["metadata"].get("resourceVersion") or self._since
            if event.type == "DELETED":
                self._remove(_key_of(event.object), event.object)
            elif event.type != "BOOKMARK":
                self._put(self.keep(event.object))
        if time.monotonic() - started < 1.0:
            # A server that is shutting down ends each watch at once, without an error.
            await self._rest()

    def _replace_all(self, items: Iterable[JsonObject]) -> None:
        fresh = {_key_of(item): item for item in items}
        for key in [key for key in self._items if key not in fresh]:
            self._remove(key, self._items[key])
        for item in fresh.values():
            self._put(item)
        self._synced.set()
        self._settled.set()

    def _put(self, item: JsonObject) -> None:
        key = _key_of(item)
        before = self._items.get(key)
        self._items[key] = item
        if before is None:
            self._notify(Change(ChangeType.ADDED, item))
        elif before["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
            self._notify(Change(ChangeType.MODIFIED, item, before))

    def _remove(self, key: Key, item: JsonObject) -> None:
        if self._items.pop(key, None) is not None:
            self._notify(Change(ChangeType.DELETED, item))

    def _notify(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                # A listener's bug must not stop updates for the other listeners.
                log.exception("listener failed", extra={"resource": self.resource.plural})


def _key_of(item: JsonObject) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
