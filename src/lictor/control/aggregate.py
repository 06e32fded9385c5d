"""Results that admissions sent become part of the reports of the objects they are about."""

import logging
import time
from collections.abc import Callable
from datetime import datetime

from lictor.cluster import resource as kinds
from lictor.cluster.cache import Cache
from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.control.report_writer import ReportWriter
from lictor.errors import ApiError, NotFoundError
from lictor.lang.resource_names import ResourceNames
from lictor.raw import JsonObject
from lictor.report.ephemeral_report import read_ephemeral
from lictor.report.resource_report import Subject

log = logging.getLogger(__name__)

# An object that was admitted but never came to be: so long its results wait for it.
_PATIENCE = 60.0


class Aggregator:
    """Takes EphemeralReports away, one after the other, and writes what they say."""

    def __init__(
        self,
        client: Client,
        caches: tuple[Cache, ...],
        writer: ReportWriter,
        *,
        owns: Callable[[str], bool],
        names: Callable[[], ResourceNames],
    ) -> None:
        self._client = client
        self._caches = caches
        self._writer = writer
        self._owns = owns
        self._names = names

    async def reconcile(self) -> None:
        """Whatever lies there now."""
        for cache in self._caches:
            for report in cache.list():
                subject, entries = read_ephemeral(report)
                if self._owns(subject.uid):
                    await self._take(cache.resource, report, subject, entries)

    async def _take(
        self, resource: Resource, report: JsonObject, subject: Subject, entries: list[JsonObject]
    ) -> None:
        if subject.uid and await self._is_there(subject):
            await self._writer.add(subject, entries)
        elif time.time() - _read_time(report) < _PATIENCE:
            return
        metadata = report["metadata"]
        await self._client.delete(
            resource,
            metadata["name"],
            metadata.get("namespace") or "",
            preconditions={"uid": metadata["uid"]},
        )

    async def _is_there(self, subject: Subject) -> bool:
        group, _, version = subject.api_version.rpartition("/")
        found = self._names().of_kind(group, version, subject.kind)
        resource = Resource(
            group, version, found.resource, subject.kind, namespaced=bool(subject.namespace)
        )
        try:
            there = await self._client.get(resource, subject.name, subject.namespace)
        except NotFoundError:
            return False
        except ApiError as error:
            if error.status == 403:
                log.warning("report not written: not allowed to read", extra={"kind": subject.kind})
                return False
            raise
        return str(there["metadata"].get("uid")) == subject.uid


def watch_ephemeral(client: Client) -> tuple[Cache, Cache]:
    """The caches that an Aggregator reads."""
    return (
        Cache(client, kinds.EPHEMERAL_REPORT),
        Cache(client, kinds.CLUSTER_EPHEMERAL_REPORT),
    )


def _read_time(report: JsonObject) -> float:
    text = str(report["metadata"].get("creationTimestamp") or "")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
