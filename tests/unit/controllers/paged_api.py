"""A cluster of any size that stores nothing: objects are made when a page is asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from hashlib import blake2b
from typing import Any

from lictor.core.errors import ConflictError, NotFoundError
from lictor.kubernetes.client import WatchEvent
from lictor.kubernetes.resource import Resource

Object = dict[str, Any]


def make_pod(index: int) -> Object:
    """The same Pod for the same number; every third one has no limit of memory."""
    limits = {"limits": {"memory": "64Mi"}} if index % 3 else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{index}",
            "namespace": f"ns-{index % 50}",
            "uid": make_uid(index),
            "resourceVersion": "1",
            "labels": {"app": f"app-{index % 7}"},
        },
        "spec": {
            "containers": [
                {"name": f"c{number}", "image": f"registry/app:{index % 9}", "resources": limits}
                for number in range(1 + index % 2)
            ]
        },
        "status": {"phase": "Running"},
    }


def make_uid(index: int) -> str:
    """Looks like a UID, and is spread like one."""
    text = blake2b(str(index).encode(), digest_size=16).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class PagedApi:
    """Stands in for a Client: one kind with many objects, and the marks of their reports.

    Of a report only its mark is kept, so that the memory that is measured is the scanner's.
    """

    def __init__(
        self,
        resource: Resource,
        count: int,
        make: Callable[[int], Object] = make_pod,
        *,
        remember: bool = True,
    ) -> None:
        self._resource = resource
        self._count = count
        self._make = make
        self._remember = remember
        self.changes: asyncio.Queue[WatchEvent | Exception] = asyncio.Queue()
        self.reports: dict[str, Object] = {}
        self.created = 0
        self.patched = 0
        self.pages = 0
        self.largest_page = 0
        # Called before each write; may raise.
        self.before_write: Callable[[], None] = lambda: None

    async def list_pages(
        self, resource: Resource, namespace: str = "", *, page: int = 500, **_: object
    ) -> AsyncIterator[Object]:
        if resource != self._resource:
            items = list(self.reports.values()) if resource.namespaced else []
            yield {"metadata": {"resourceVersion": "1"}, "items": items}
            return
        self.largest_page = max(self.largest_page, page)
        for start in range(0, self._count, page):
            self.pages += 1
            end = min(start + page, self._count)
            items = [self._make(index) for index in range(start, end)]
            rest = {"remainingItemCount": self._count - end} if end < self._count else {}
            yield {"metadata": {"resourceVersion": "1", **rest}, "items": items}
            await asyncio.sleep(0)

    async def watch(self, *_: object, **__: object) -> AsyncIterator[WatchEvent]:
        while True:
            change = await self.changes.get()
            if isinstance(change, Exception):
                raise change
            yield change

    async def find(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        return self.reports.get(name)

    async def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        self.before_write()
        name = body["metadata"]["name"]
        if name in self.reports:
            raise ConflictError("exists", status=409)
        self.created += 1
        self._store(name, body)
        return body

    async def patch(
        self, resource: Resource, name: str, patch: Object, *, namespace: str = ""
    ) -> Object:
        self.before_write()
        if self._remember and name not in self.reports:
            raise NotFoundError("gone", status=404)
        self.patched += 1
        self._store(name, patch)
        return patch

    async def replace(self, resource: Resource, body: Object) -> Object:
        self.before_write()
        self.patched += 1
        self._store(body["metadata"]["name"], body)
        return body

    async def delete(self, resource: Resource, name: str, namespace: str = "", **_: object) -> bool:
        return self.reports.pop(name, None) is not None

    def _store(self, name: str, body: Object) -> None:
        if self._remember:
            metadata = {**body["metadata"], "resourceVersion": "1"}
            self.reports[name] = {**body, "metadata": metadata}
