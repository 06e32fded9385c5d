"""A watched copy of one kind of object, kept in step through disconnects and restarts."""

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
# A server that is back should not be evaluated by old policies for long.
_LONGEST_PAUSE = 4.0
# How often a kind that the API server does not serve (yet) is asked for again.
_ABSENT_PAUSE = 3.0
_PAGE = 500
_FORBIDDEN = (401, 403)


class ChangeType(StrEnum):
    """What happened to an object."""

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
    """The object without the book-keeping of field owners, often half of its size."""
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return item


class Cache:
    """Objects of one kind by namespace and name. `run` keeps it in step until cancelled.

    A kind that the API server does not serve counts as empty, and is asked for again and again.
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
        # How many objects are read at once, and how often a kind that is not served is asked for.
        self.page = _PAGE
        self.absent_pause = _ABSENT_PAUSE
        # For how long at least nothing is asked of a server that said no to who we are.
        self.refused_pause = 0.0
        self._items: dict[Key, JsonObject] = {}
        self._listeners: list[Listener] = []
        self._synced = asyncio.Event()
        self._settled = asyncio.Event()
        self._since = ""
        self._pause = _FIRST_PAUSE
        # Why the objects cannot be read or followed at the moment; empty where they can.
        self.trouble = ""
        # The status with which the API server refused; 0 where it did not, or was away.
        self.refused = 0
        # How often everything was read, and how often the API server refused or was away.
        self.reads = 0
        self.faults = 0
        self._hurried = asyncio.Event()

    @property
    def is_synced(self) -> bool:
        """True once everything has been read for the first time."""
        return self._synced.is_set()

    async def wait(self) -> None:
        """Until everything has been read for the first time."""
        await self._synced.wait()

    async def wait_settled(self) -> None:
        """The same, or until the API server says that we may not read it: see `trouble`."""
        await self._settled.wait()

    def get(self, name: str, namespace: str = "") -> JsonObject | None:
        return self._items.get((namespace, name))

    def list(self, namespace: str | None = None) -> list[JsonObject]:
        """All objects, or those of one namespace, in the order of their names."""
        keys = sorted(key for key in self._items if namespace is None or key[0] == namespace)
        return [self._items[key] for key in keys]

    def __len__(self) -> int:
        return len(self._items)

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every change from now on; it must not block."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """List, watch, and begin again where that breaks. Ends only when cancelled."""
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
        """Does the API server not serve such objects?"""
        return self.refused == 404

    def _note_trouble(self, error: ApiError) -> None:
        self.trouble, self.refused = str(error), error.status
        self.faults += 1
        if error.status in _FORBIDDEN:
            self._settled.set()

    async def _rest(self) -> None:
        """Pause before trying again, longer each time until something is heard."""
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
        """Whatever was in the way may be gone: try again now, not after the pause."""
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
            # A server on its way out ends each watch at once, without an error.
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
            self._tell(Change(ChangeType.ADDED, item))
        elif before["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
            self._tell(Change(ChangeType.MODIFIED, item, before))

    def _remove(self, key: Key, item: JsonObject) -> None:
        if self._items.pop(key, None) is not None:
            self._tell(Change(ChangeType.DELETED, item))

    def _tell(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                # A listener's bug must not leave everyone with old objects.
                log.exception("listener failed", extra={"resource": self.resource.plural})


def _key_of(item: JsonObject) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
