"""Results of admissions and background rules become part of the reports of their objects."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeAlias

import msgspec

from lictor.controllers.report_writer import ReportWriter
from lictor.core.errors import ApiError, NotFoundError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.registry import registry
from lictor.core.model.program import Phase
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import ReportSubject, build_entry, read_ephemeral
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.ephemeral_reports import EphemeralReports, read_form
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import Resource
from lictor.policies.store import PolicyStore

_DISABLED = "reports.kyverno.io/disabled"


class BackgroundReports:
    """Takes results of generate and mutate-existing rules."""

    def __init__(self, client: Client, flags: Flags, store: PolicyStore) -> None:
        self._reports = EphemeralReports(client, limit=flags.max_background_reports)
        self._form = read_form(flags)
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send what comes in until cancelled."""
        await self._reports.run()

    def add(self, request: Request, results: tuple[Result, ...]) -> None:
        """Take the results about one trigger."""
        stamp = int(time.time())
        entries = [
            build_entry(result, background=self._is_background(result.policy), timestamp=stamp)
            for result in results
            if self._form.wants(result) and _DISABLED not in result.policy.labels
        ]
        subject = ReportSubject.of(request.resource)
        if entries and subject.uid:
            task = asyncio.create_task(self._reports.add(subject, "", entries))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _is_background(self, policy: PolicyRef) -> bool:
        if registry().of(policy).phases == (Phase.GENERATE,):
            return False
        wanted = (p for p in self._store.policies if p.key == policy.key)
        return any(p.background for p in wanted if p.resource.kind == policy.kind)


log = logging.getLogger(__name__)

# How long results wait for an object that was admitted and is not stored yet.
_PATIENCE = 60.0
_WORKERS = 8
_REFUSALS = frozenset((400, 403, 404, 413, 422))

_Source: TypeAlias = tuple[Resource, JsonObject]


class _ObjectResults(msgspec.Struct):
    """All results about one object; later ones replace earlier ones."""

    subject: ReportSubject
    sources: list[_Source]
    entries: dict[tuple[str, str, str], JsonObject]


class Aggregator:
    """Moves the results of EphemeralReports into reports."""

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
        """Process all EphemeralReports; one write for each object."""
        waiting = iter(self._collect())
        workers = (self._work(waiting) for _ in range(_WORKERS))
        for failure in await asyncio.gather(*workers, return_exceptions=True):
            if failure is not None:
                raise failure

    def _collect(self) -> list[_ObjectResults]:
        pending_by_object: dict[tuple[str, str, str, str], _ObjectResults] = {}
        for resource, report in self._list():
            subject, entries = read_ephemeral(report)
            # Sent before the object had a UID: the replica that owns the object processes it.
            if subject.uid and not self._owns(subject.uid):
                continue
            key = subject.uid, subject.kind, subject.namespace, subject.name
            pending = pending_by_object.setdefault(key, _ObjectResults(subject, [], {}))
            pending.sources.append((resource, report))
            for entry in entries:
                about = entry.get("source", ""), entry["policy"], entry.get("rule", "")
                pending.entries[about] = entry
        return list(pending_by_object.values())

    def _list(self) -> list[_Source]:
        found = [(cache.resource, report) for cache in self._caches for report in cache.list()]
        return sorted(found, key=lambda source: _read_version(source[1]))

    async def _work(self, waiting: Iterator[_ObjectResults]) -> None:
        for pending in waiting:
            await self._take(pending)

    async def _take(self, pending: _ObjectResults) -> None:
        found = await self._find(pending.subject)
        if found is not None:
            if not self._owns(found.uid):
                return
            await self._add(found, list(pending.entries.values()))
        elif any(time.time() - _read_time(report) < _PATIENCE for _, report in pending.sources):
            return
        for resource, report in pending.sources:
            metadata = report["metadata"]
            await self._client.delete(
                resource,
                metadata["name"],
                metadata.get("namespace") or "",
                preconditions={"uid": metadata["uid"]},
            )

    async def _add(self, subject: ReportSubject, entries: list[JsonObject]) -> None:
        try:
            await self._writer.add(subject, entries)
        except ApiError as error:
            if error.status not in _REFUSALS:
                raise
            # Its namespace may be being deleted: a retry would be refused again.
            log.info("report refused", extra={"uid": subject.uid, "why": str(error)[:200]})

    async def _find(self, subject: ReportSubject) -> ReportSubject | None:
        """The stored object; None where it, or one of its UID, does not exist."""
        group, _, version = subject.api_version.rpartition("/")
        kind = self._names().of_kind(group, version, subject.kind)
        resource = Resource(
            group, version, kind.resource, subject.kind, namespaced=bool(subject.namespace)
        )
        try:
            there = await self._client.get(resource, subject.name, subject.namespace)
        except NotFoundError:
            return None
        except ApiError as error:
            if error.status == 403:
                log.warning("report not written: not allowed to read", extra={"kind": subject.kind})
                return None
            raise
        found = ReportSubject.of({**there, "apiVersion": subject.api_version, "kind": subject.kind})
        return found if not subject.uid or found.uid == subject.uid else None


def watch_ephemeral(client: Client) -> tuple[Cache, Cache]:
    """The caches that an Aggregator reads."""
    return (
        Cache(client, kinds.EPHEMERAL_REPORT),
        Cache(client, kinds.CLUSTER_EPHEMERAL_REPORT),
    )


def _read_version(report: JsonObject) -> int:
    try:
        return int(report["metadata"].get("resourceVersion") or 0)
    except ValueError:
        return 0


def _read_time(report: JsonObject) -> float:
    text = str(report["metadata"].get("creationTimestamp") or "")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
