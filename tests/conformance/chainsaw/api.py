"""The API server as chainsaw sees it: objects by kind and name, each refusal with its message."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

Object = dict[str, Any]
_BUSY = (429, 503)
_MERGE = {"Content-Type": "application/merge-patch+json"}


class ApiError(Exception):
    """The server refused, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotFoundError(ApiError):
    """There is no such object."""


@dataclass(frozen=True)
class Resource:
    """Where the objects of a kind are."""

    root: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Key:
    """One object, or all of a kind where the name is empty."""

    version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name or "*"
        return f"{self.kind} {where}"


def key_of(body: Object) -> Key:
    """The key of an object as it is written."""
    metadata = body.get("metadata") or {}
    return Key(
        str(body.get("apiVersion") or ""),
        str(body.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )


class Api:
    """Reads and writes objects of any kind; safe to share between threads."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, Resource]] = {}
        self._lock = threading.Lock()

    def find_resource(self, version: str, kind: str) -> Resource:
        """Where objects of this kind are; asks the server anew for a kind not seen before."""
        known = self._known.get(version)
        if known is None or kind not in known:
            known = self._discover(version)
            with self._lock:
                self._known[version] = known
        if kind not in known:
            raise ApiError(0, f'no matches for kind "{kind}" in version "{version}"')
        return known[kind]

    def _discover(self, version: str) -> dict[str, Resource]:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = self.call("GET", root)["resources"]
        except NotFoundError:
            return {}
        return {
            each["kind"]: Resource(root, each["name"], each["namespaced"], frozenset(each["verbs"]))
            for each in listed
            if "/" not in each["name"]
        }

    def list_kinds(self, version: str) -> list[str]:
        """The kinds of a group and version whose objects can be listed and deleted."""
        found = self._discover(version)
        return [kind for kind, each in found.items() if {"list", "delete"} <= each.verbs]

    def is_namespaced(self, body: Object) -> bool:
        key = key_of(body)
        return self.find_resource(key.version, key.kind).namespaced

    def get(self, key: Key) -> Object:
        return self.call("GET", self._path(key))

    def list(self, key: Key, labels: Mapping[str, str] | None = None) -> list[Object]:
        """All objects of the key's kind, in its namespace where it has one."""
        selector = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
        query = f"?labelSelector={quote(selector)}" if selector else ""
        items = self.call("GET", self._path(key) + query)["items"]
        return [{"apiVersion": key.version, "kind": key.kind, **item} for item in items]

    def create(self, body: Object) -> Object:
        key = key_of(body)
        collection = Key(key.version, key.kind, key.namespace, "")
        return self.call("POST", self._path(collection), body)

    def update(self, body: Object) -> Object:
        return self.call("PUT", self._path(key_of(body)), body)

    def merge(self, body: Object) -> Object:
        return self.call("PATCH", self._path(key_of(body)), body, headers=_MERGE)

    def delete(self, key: Key, *, propagation: str = "Background") -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        self.call("DELETE", self._path(key), options)

    def wait_gone(self, key: Key, deadline: float) -> None:
        """Return when there is no such object. Raises TimeoutError after the deadline."""
        while True:
            try:
                self.get(key)
            except NotFoundError:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{key} is still there")
            time.sleep(0.05)

    def _path(self, key: Key) -> str:
        resource = self.find_resource(key.version, key.kind)
        inside = f"/namespaces/{key.namespace}" if resource.namespaced and key.namespace else ""
        name = f"/{quote(key.name, safe='')}" if key.name else ""
        return f"{resource.root}{inside}/{resource.plural}{name}"

    def call(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """One request; waits and asks again where the server says that it is busy."""
        content = None if body is None else json.dumps(body)
        sent = {"Content-Type": "application/json", **(headers or {})}
        for pause in (0.2, 0.5, 1.0, None):
            try:
                answer = self._client.request(verb, path, content=content, headers=sent)
            except httpx2.HTTPError as error:
                raise ApiError(0, f"{type(error).__name__}: {error}") from error
            if answer.status_code not in _BUSY or "Retry-After" not in answer.headers or not pause:
                break
            time.sleep(pause)
        return _read_answer(answer)


def _read_answer(answer: httpx2.Response) -> Any:
    try:
        body = answer.json()
    except ValueError:
        body = {"message": answer.text.strip() or f"status {answer.status_code}"}
    if answer.is_success:
        return body
    error = NotFoundError if answer.status_code == 404 else ApiError
    raise error(answer.status_code, str(body.get("message") or answer.status_code))
