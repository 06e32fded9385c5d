"""An API server in memory that also tells of changes, and refuses what it is told to refuse."""

import asyncio
import copy

from small_api import SmallApi

from lictor.core.errors import ApiError, ConflictError, NotFoundError
from lictor.kubernetes.client import WatchEvent


class LiveApi(SmallApi):
    """Lists in one page, watches from now on."""

    field_manager = "lictor"

    def __init__(self):
        super().__init__()
        self.watchers = []
        # Verb and resource that are answered with 403.
        self.forbidden = set()

    def _refuse(self, verb, resource):
        if (verb, resource.plural) in self.forbidden:
            raise ApiError(f"cannot {verb} {resource.plural}", status=403)

    async def list_pages(self, resource, namespace="", *, labels="", fields="", page=0):
        self._refuse("list", resource)
        items = [
            {"apiVersion": resource.api_version, "kind": resource.kind, **item}
            for item in await self.list(resource, namespace)
            if _fits(item, labels)
        ]
        yield {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    async def watch(self, resource, *, since, namespace="", labels="", fields=""):
        self._refuse("watch", resource)
        events = asyncio.Queue()
        entry = (resource.plural, labels, events)
        self.watchers.append(entry)
        try:
            while True:
                yield await events.get()
        finally:
            self.watchers.remove(entry)

    async def create(self, resource, body, namespace=""):
        self._refuse("create", resource)
        return await super().create(resource, body, namespace)

    async def request(self, method, path, *, params):
        plural = path.rpartition("/")[2]
        labels = params.get("labelSelector", "")
        items = [v for (p, _, _), v in self.objects.items() if p == plural and _fits(v, labels)]
        return {"metadata": {}, "items": items[:1]}

    async def delete(self, resource, name, namespace="", *, propagation="", preconditions=None):
        key = (resource.plural, namespace, name)
        known = self.objects.get(key)
        if known is None:
            return False
        wanted = (preconditions or {}).get("uid")
        if wanted and known["metadata"]["uid"] != wanted:
            raise ConflictError("another uid", status=409)
        self.writes.append(("delete", *key))
        del self.objects[key]
        self._announce(resource, "DELETED", known, known)
        return True

    async def replace(self, resource, body, *, subresource=""):
        key = self._key(resource, body["metadata"])
        known = self.objects.get(key)
        if known is None:
            raise NotFoundError("gone", status=404)
        self._check(key, body["metadata"])
        if _bare(known) == _bare(body):
            return copy.deepcopy(known)  # as the real one: what changes nothing is no write
        self.writes.append(("replace", *key))
        return copy.deepcopy(self._store(resource, key, body))

    def edit(self, resource, name, namespace="", **fields):
        """Someone changes an object."""
        key = (resource.plural, namespace, name)
        self._store(resource, key, {**self.objects[key], **fields})

    def _store(self, resource, key, body):
        before = self.objects.get(key)
        stored = super()._store(resource, key, body)
        self._announce(resource, "MODIFIED" if before else "ADDED", before, stored)
        return stored

    def _announce(self, resource, kind, before, item):
        names = {"apiVersion": resource.api_version, "kind": resource.kind}
        for plural, labels, events in self.watchers:
            if plural != resource.plural:
                continue
            # As the real one: what no longer fits the selector is gone for this watch.
            told = kind
            if not _fits(item, labels):
                if before is None or not _fits(before, labels):
                    continue
                told = "DELETED"
                version = item["metadata"]["resourceVersion"]
                item = {**before, "metadata": {**before["metadata"], "resourceVersion": version}}
            elif kind == "MODIFIED" and before is not None and not _fits(before, labels):
                told = "ADDED"
            events.put_nowait(WatchEvent(told, {**names, **copy.deepcopy(item)}))


def _bare(item):
    kept = {k: v for k, v in item["metadata"].items() if k not in ("resourceVersion", "uid")}
    return {**{k: v for k, v in item.items() if k not in ("apiVersion", "kind")}, "metadata": kept}


def _fits(item, labels):
    known = item["metadata"].get("labels") or {}
    for part in filter(None, labels.split(",")):
        key, has_value, value = part.partition("=")
        if key not in known or (has_value and known[key] != value):
            return False
    return True
