"""An API server in memory: objects with versions, conflicts and selectors by label; no watch."""

import copy
import uuid

from lictor.core.errors import ConflictError, NotFoundError


class SmallApi:
    """Speaks as `lictor.kubernetes.client.Client` does."""

    def __init__(self):
        self.objects = {}
        self.version = 0
        self.writes = []

    def seed(self, resource, body):
        """Put an object as it is, whatever is there."""
        metadata = body["metadata"]
        return self._store(resource, self._key(resource, metadata), body)

    def read(self, resource, name, namespace=""):
        return self.objects[resource.plural, namespace, name]

    async def find(self, resource, name, namespace=""):
        return copy.deepcopy(self.objects.get((resource.plural, namespace, name)))

    async def get(self, resource, name, namespace=""):
        found = await self.find(resource, name, namespace)
        if found is None:
            raise NotFoundError(f"{resource.plural} {name}", status=404)
        return found

    async def list(self, resource, namespace="", *, labels="", fields=""):
        key, _, value = labels.partition("=")
        return [
            copy.deepcopy(item)
            for (plural, place, _), item in sorted(self.objects.items())
            if plural == resource.plural
            and namespace in ("", place)
            and (not labels or (item["metadata"].get("labels") or {}).get(key) == value)
        ]

    async def create(self, resource, body, namespace=""):
        key = self._key(resource, body["metadata"])
        if key in self.objects:
            raise ConflictError("exists", status=409)
        self.writes.append(("create", *key))
        return copy.deepcopy(self._store(resource, key, body))

    async def replace(self, resource, body, *, subresource=""):
        key = self._key(resource, body["metadata"])
        if key not in self.objects:
            raise NotFoundError("gone", status=404)
        self._check(key, body["metadata"])
        self.writes.append(("replace", *key))
        return copy.deepcopy(self._store(resource, key, body))

    async def patch(self, resource, name, patch, *, namespace="", kind="", subresource=""):
        key = (resource.plural, namespace, name)
        if key not in self.objects:
            raise NotFoundError("gone", status=404)
        self._check(key, patch.get("metadata") or {})
        self.writes.append(("patch", *key))
        return copy.deepcopy(self._store(resource, key, _merge(self.objects[key], patch)))

    async def delete(self, resource, name, namespace=""):
        self.writes.append(("delete", resource.plural, namespace, name))
        if self.objects.pop((resource.plural, namespace, name), None) is None:
            raise NotFoundError("gone", status=404)

    def _key(self, resource, metadata):
        return resource.plural, metadata.get("namespace", ""), metadata["name"]

    def _check(self, key, metadata):
        known = self.objects[key]["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", known) != known:
            raise ConflictError("changed", status=409)

    def _store(self, resource, key, body):
        self.version += 1
        body = copy.deepcopy(body)
        body["metadata"].setdefault("uid", str(uuid.UUID(int=self.version)))
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = body
        return body


def _merge(target, patch):
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged
