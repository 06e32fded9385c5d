"""Intermediate reports of older releases: nobody reads them any more, so they go."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.errors import ApiError, NotFoundError
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

_INTERVAL = 600.0
_AT_ONCE = 8
_KINDS = ("AdmissionReport", "BackgroundScanReport")
# The last versions in which there were such kinds.
_VERSIONS = ("v2", "v1alpha2")


def list_old_kinds() -> Iterable[Resource]:
    """Both kinds, with a namespace and without, in each version."""
    for version in _VERSIONS:
        for kind in _KINDS:
            yield Resource("kyverno.io", version, f"{kind.lower()}s", kind)
            plural = f"cluster{kind.lower()}s"
            yield Resource("kyverno.io", version, plural, f"Cluster{kind}", namespaced=False)


class OldReports:
    """Takes away what an upgrade left behind, where its kinds are still served."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()

    async def run(self) -> None:
        """Look now and then until cancelled; two replicas at once do no harm."""
        while True:
            for resource in list_old_kinds():
                await self._clear(resource)
            await asyncio.sleep(_INTERVAL)

    async def _clear(self, resource: Resource) -> None:
        try:
            async for page in self._client.list_pages(resource, page=100, metadata_only=True):
                items = page.get("items") or ()
                for start in range(0, len(items), _AT_ONCE):
                    chunk = items[start : start + _AT_ONCE]
                    await asyncio.gather(*(self._delete(resource, item) for item in chunk))
        except NotFoundError:
            return
        except ApiError as error:
            if resource.plural not in self._told:
                self._told.add(resource.plural)
                log.warning(
                    "old reports not removed",
                    extra={"resource": resource.plural, "why": str(error)[:200]},
                )

    async def _delete(self, resource: Resource, item: JsonObject) -> None:
        metadata = item["metadata"]
        with suppress(NotFoundError):
            namespace = metadata.get("namespace") or ""
            await self._client.delete(resource, metadata["name"], namespace)
