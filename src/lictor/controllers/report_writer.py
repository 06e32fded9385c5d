"""Creates, updates and deletes reports, also with concurrent writers."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from lictor.core.errors import ConflictError, NotFoundError
from lictor.core.raw import JsonObject
from lictor.core.report.resource_report import (
    LEFT_OUT,
    ReportSubject,
    build_report,
    read_entries,
    sort_entries,
    summarize,
)
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource

SCAN_HASH = "lictor.io/scan-hash"
# The former name, read for one release: otherwise an upgrade would evaluate every object again.
FORMER_SCAN_HASH = "lictor.io/judged"
MIXED = "lictor.io/mixed"
_TRIES = 5


class EntryOwnership(Protocol):
    """Which entries belong to the scanner, and which to existing policies."""

    def is_scanned(self, entry: JsonObject) -> bool:
        """Whether the scanner creates entries of this policy and rule."""
        ...

    def is_alive(self, entry: JsonObject) -> bool:
        """Is there still such a policy, with such a rule?"""
        ...


class ReportWriter:
    """The only writer of reports.

    A report can have the scanner's entries beside those of admissions (caller, mutations). Most
    have only the scanner's, and are written without reading; mixed ones are read first.
    """

    def __init__(self, client: Client, entitlement: EntryOwnership, *, openreports: bool) -> None:
        self._client = client
        self._entitlement = entitlement
        self._openreports = openreports
        self._mixed: set[str] = set()
        # Those that became mixed since the reports were last read.
        self._lately: set[str] = set()

    def kind_for(self, namespace: str) -> Resource:
        """The kind of report for a namespace, or for cluster-scoped objects."""
        if self._openreports:
            return kinds.OPEN_REPORT if namespace else kinds.CLUSTER_OPEN_REPORT
        return kinds.POLICY_REPORT if namespace else kinds.CLUSTER_POLICY_REPORT

    def is_scanned(self, entry: JsonObject) -> bool:
        """Is it the scanner who makes such entries?"""
        return self._entitlement.is_scanned(entry)

    def mark_mixed(self, uids: set[str]) -> None:
        """The reports with more than a scan's entries: all have been read."""
        self._mixed = uids | self._lately
        self._lately = set()

    def forget(self, uid: str) -> None:
        """The object is gone, and its report goes with it."""
        self._mixed.discard(uid)
        self._lately.discard(uid)

    async def write(
        self, subject: ReportSubject, entries: Iterable[JsonObject], *, scan_hash: str, exists: bool
    ) -> None:
        """Replace the results of the last scan."""
        if subject.uid in self._mixed:
            await self._merge(subject, entries, scan_hash=scan_hash, scanned=True)
            return
        report = build_report(
            subject, entries, openreports=self._openreports, annotations={SCAN_HASH: scan_hash}
        )
        resource = self.kind_for(subject.namespace)
        if exists:
            try:
                await self._client.patch(resource, subject.uid, report, namespace=subject.namespace)
            except NotFoundError:
                exists = False
        if not exists:
            try:
                await self._client.create(resource, report)
            except ConflictError:
                # Another replica, or an admission, has created it.
                await self._merge(subject, entries, scan_hash=scan_hash, scanned=True)

    async def add(self, subject: ReportSubject, entries: Iterable[JsonObject]) -> None:
        """Replace the results that did not come from a scan."""
        self._mixed.add(subject.uid)
        self._lately.add(subject.uid)
        await self._merge(subject, entries, scan_hash="", scanned=False)

    async def amend(
        self,
        subject: ReportSubject,
        entries: Iterable[JsonObject],
        replaces: Callable[[JsonObject], bool],
        *,
        scan_hash: str,
    ) -> int | None:
        """Replace those entries only; returns the number of the scanner's entries then.

        None if there is no report, or an incomplete one: it must be written anew.
        """
        fresh = list(entries)
        resource = self.kind_for(subject.namespace)
        for attempt in range(_TRIES):
            found = await self._client.find(resource, subject.uid, subject.namespace)
            notes = ((found or {}).get("metadata") or {}).get("annotations") or {}
            if found is None or LEFT_OUT in notes:
                return None
            if notes.get(MIXED):
                self._mixed.add(subject.uid)
            old = (entry for entry in read_entries(found) if not replaces(entry))
            kept = [entry for entry in old if self._entitlement.is_alive(entry)]
            merged = sort_entries([*kept, *fresh])
            try:
                await self._put(subject, found, merged, scan_hash)
            except ConflictError:
                await asyncio.sleep(0.05 * (attempt + 1))
                continue
            return len(fresh) + sum(map(self._entitlement.is_scanned, kept))
        raise ConflictError(f"the report of {subject.kind} {subject.name} is written by others")

    async def remove(self, subject: ReportSubject) -> None:
        """Remove the results of the scan, and the report where it is empty then."""
        if subject.uid in self._mixed:
            await self._merge(subject, (), scan_hash="", scanned=True)
        else:
            await self._client.delete(
                self.kind_for(subject.namespace), subject.uid, subject.namespace
            )

    async def prune(self, report: JsonObject, *, is_followed: bool) -> None:
        """Remove entries of deleted policies; the whole report if it becomes empty.

        For an object whose kind is no longer scanned, the scan's entries are removed too.
        """
        rights = self._entitlement
        kept = [
            entry
            for entry in read_entries(report)
            if rights.is_alive(entry) and (is_followed or not rights.is_scanned(entry))
        ]
        if len(kept) == len(report.get("results") or ()):
            return
        metadata = report["metadata"]
        resource = self.kind_for(metadata.get("namespace") or "")
        guard = {"resourceVersion": metadata["resourceVersion"]}
        try:
            if kept:
                changed = {**report, "results": kept, "summary": summarize(kept)}
                await self._client.replace(resource, changed)
            else:
                await self._client.delete(
                    resource,
                    metadata["name"],
                    metadata.get("namespace") or "",
                    preconditions=guard,
                )
        except (ConflictError, NotFoundError):
            return  # written concurrently, with the current policies

    async def _merge(
        self,
        subject: ReportSubject,
        entries: Iterable[JsonObject],
        *,
        scan_hash: str,
        scanned: bool,
    ) -> None:
        fresh = list(entries)
        resource = self.kind_for(subject.namespace)
        for attempt in range(_TRIES):
            found = await self._client.find(resource, subject.uid, subject.namespace)
            if ((found or {}).get("metadata") or {}).get("annotations", {}).get(MIXED):
                self._mixed.add(subject.uid)
            merged = self._combine(found, fresh, scanned=scanned)
            try:
                await self._put(subject, found, merged, scan_hash)
            except ConflictError:
                await asyncio.sleep(0.05 * (attempt + 1))
                continue
            return
        raise ConflictError(f"the report of {subject.kind} {subject.name} is written by others")

    def _combine(
        self, found: JsonObject | None, fresh: list[JsonObject], *, scanned: bool
    ) -> list[JsonObject]:
        old = read_entries(found)
        told = {_key(entry) for entry in fresh}
        kept = [
            entry
            for entry in old
            if _key(entry) not in told
            and self._entitlement.is_alive(entry)
            and not (scanned and self._entitlement.is_scanned(entry))
        ]
        return sort_entries([*kept, *fresh])

    async def _put(
        self,
        subject: ReportSubject,
        found: JsonObject | None,
        entries: list[JsonObject],
        scan_hash: str,
    ) -> None:
        resource = self.kind_for(subject.namespace)
        if not entries:
            if found is not None:
                await self._client.delete(resource, subject.uid, subject.namespace)
            return
        notes = dict(((found or {}).get("metadata") or {}).get("annotations") or {})
        notes.pop(MIXED, None)
        former = notes.pop(FORMER_SCAN_HASH, "")
        if subject.uid in self._mixed:
            notes[MIXED] = "true"
        if known := scan_hash or notes.get(SCAN_HASH) or former:
            notes[SCAN_HASH] = known
        report = build_report(subject, entries, openreports=self._openreports, annotations=notes)
        if found is None:
            await self._client.create(resource, report)
            return
        report["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        await self._client.replace(resource, report)


def _key(entry: JsonObject) -> tuple[str, str, str]:
    return entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
