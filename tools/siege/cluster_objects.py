"""All objects of a cluster, whatever kinds it has."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpx2

Object = dict[str, Any]
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class Collection:
    """A kind as the API server serves it."""

    root: str
    name: str
    namespaced: bool

    def path(self, namespace: str) -> str:
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{self.root}{inside}/{self.name}"


@dataclass(frozen=True)
class Address:
    """Where one object is."""

    collection: Collection
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.collection.name} {self.namespace}/{self.name}".replace(" /", " ")

    @property
    def path(self) -> str:
        return f"{self.collection.path(self.namespace)}/{self.name}"


@lru_cache(maxsize=4)
def list_collections(client: httpx2.Client) -> tuple[Collection, ...]:
    """Every kind that can be listed, in its preferred version."""
    groups = client.get("/apis").json()["groups"]
    roots = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    return tuple(
        Collection(root, each["name"], each["namespaced"])
        for root in roots
        for each in client.get(root).json()["resources"]
        if "list" in each["verbs"] and "/" not in each["name"]
    )


def list_objects(
    client: httpx2.Client, collection: Collection, namespace: str, *, whole: bool
) -> Iterator[tuple[Address, Object]]:
    """Those of a namespace, or all; with their metadata alone where that is enough."""
    headers = {} if whole else {"Accept": _METADATA}
    answer = client.get(collection.path(namespace), headers=headers)
    if answer.status_code not in (404, 405):
        # What could not be listed is not gone.
        answer.raise_for_status()
    for body in answer.json().get("items") or () if answer.is_success else ():
        metadata = body["metadata"]
        yield Address(collection, metadata.get("namespace", ""), metadata["name"]), body


def read_object(client: httpx2.Client, address: Address) -> Object | None:
    """One object as a whole; None where it is gone."""
    answer = client.get(address.path)
    if not answer.is_success:
        return None
    found: Object = answer.json()
    return found
