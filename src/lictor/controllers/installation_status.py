"""The state of the installation, read from the cluster, not from running processes."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import orjson

from lictor.controllers.scan.progress import NOTE
from lictor.controllers.scan.replicas import MEMBER_LABEL
from lictor.controllers.webhook_configuration.heartbeat import STAMP
from lictor.core.errors import NotFoundError
from lictor.core.raw import JsonObject
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import Resource
from lictor.policies.store import list_policy_resources

_CONTROLLERS = ("", "background", "cleanup", "reports")
_MANAGED = ("webhook.kyverno.io/managed-by=kyverno", "app.kubernetes.io/part-of=kubewarden")
_DEAD_AFTER = 5
_REPORTS = (kinds.POLICY_REPORT, kinds.CLUSTER_POLICY_REPORT)
_OPEN_REPORTS = (kinds.OPEN_REPORT, kinds.CLUSTER_OPEN_REPORT)


class PolicyState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One policy; `why` is the reason why it is not ready."""

    kind: str
    name: str
    namespace: str = ""
    ready: bool = False
    why: str = ""


class WebhookState(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook configuration of lictor."""

    kind: str
    name: str
    webhooks: int


class LeaderState(msgspec.Struct, frozen=True, rename="camel"):
    """The leader of a controller, and the age of its last renewal."""

    controller: str
    holder: str
    renewed_seconds_ago: float


class ScanState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The scan state of one replica."""

    member: str
    renewed_seconds_ago: float = 0.0
    kinds: int = 0
    running: int = 0
    done: int = 0
    waiting: int = 0
    seen: int = 0
    judged: int = 0
    written: int = 0
    refused: int = 0
    finished_at: str = ""


class FailureCount(msgspec.Struct, frozen=True, rename="camel"):
    """A namespace or a policy with failures."""

    name: str
    failures: int


class ReportState(msgspec.Struct, frozen=True, rename="camel"):
    """The totals of the reports."""

    reports: int
    results: dict[str, int]
    worst_namespaces: tuple[FailureCount, ...]
    worst_policies: tuple[FailureCount, ...]


class InstallationStatus(msgspec.Struct, frozen=True, rename="camel"):
    """All that `lictor status` shows."""

    policies: tuple[PolicyState, ...]
    webhooks: tuple[WebhookState, ...]
    leaders: tuple[LeaderState, ...]
    # When a webhook answered last; empty if unknown.
    heartbeat: str
    # Length of each queue, by its name.
    queues: dict[str, int]
    scans: tuple[ScanState, ...]
    # None if the reports were not read.
    reports: ReportState | None = None

    @property
    def is_well(self) -> bool:
        """Whether every policy is ready, there is a leader, and there are webhooks."""
        return (
            all(policy.ready for policy in self.policies)
            and any(leader.controller == "admission" for leader in self.leaders)
            and bool(self.webhooks)
        )


async def read_installation(client: Client, names: Names, *, top: int = 5) -> InstallationStatus:
    """Read everything; with `top` 0 without the reports, which may be many."""
    leases = await client.list(kinds.LEASE, names.namespace)
    health = [lease for lease in leases if lease["metadata"]["name"] == names.health_lease]
    return InstallationStatus(
        policies=tuple([policy async for policy in _list_policies(client)]),
        webhooks=tuple([webhook async for webhook in _list_webhooks(client)]),
        leaders=tuple(_find_leaders(leases, names)),
        heartbeat=str(_notes(health[0]).get(STAMP) or "") if health else "",
        queues=await _count_queues(client),
        scans=tuple(_read_scans(leases)),
        reports=await _read_reports(client, top) if top > 0 else None,
    )


# --- policies and webhooks


async def _list_policies(client: Client) -> AsyncIterator[PolicyState]:
    for resource in list_policy_resources():
        with suppress(NotFoundError):
            for document in await client.list(resource):
                yield read_policy_state(resource, document)


def read_policy_state(resource: Resource, document: JsonObject) -> PolicyState:
    """The state from a policy's status."""
    metadata, status = document["metadata"], document.get("status") or {}
    held = status.get("conditionStatus") or {}
    conditions = (*(status.get("conditions") or ()), *(held.get("conditions") or ()))
    broken = [each for each in conditions if each.get("status") != "True"]
    said = held.get("ready")
    ready = bool(said) if said is not None else bool(conditions) and not broken
    said_why = (str(each.get("message") or each.get("reason") or "") for each in broken)
    why = "; ".join(dict.fromkeys(said_why))
    return PolicyState(
        resource.kind,
        metadata["name"],
        metadata.get("namespace") or "",
        ready,
        "" if ready else why or "not checked yet",
    )


async def _list_webhooks(client: Client) -> AsyncIterator[WebhookState]:
    for resource in (kinds.VALIDATING_WEBHOOK, kinds.MUTATING_WEBHOOK):
        for labels in _MANAGED:
            for document in await client.list(resource, labels=labels):
                count = len(document.get("webhooks") or ())
                yield WebhookState(resource.kind, document["metadata"]["name"], count)


# --- leases


def _find_leaders(leases: Iterable[JsonObject], names: Names) -> Iterable[LeaderState]:
    known = {lease["metadata"]["name"]: lease for lease in leases}
    for controller in _CONTROLLERS:
        spec = (known.get(names.lease(controller)) or {}).get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder:
            ago = _measure(str(spec.get("renewTime") or ""))
            yield LeaderState(controller or "admission", holder, ago)


def _read_scans(leases: Iterable[JsonObject]) -> Iterable[ScanState]:
    for lease in leases:
        spec = lease.get("spec") or {}
        # A replica that was killed leaves its Lease.
        lifetime = _DEAD_AFTER * float(spec.get("leaseDurationSeconds") or 0)
        ago = _measure(str(spec.get("renewTime") or ""))
        if MEMBER_LABEL not in (lease["metadata"].get("labels") or {}) or 0 < lifetime < ago:
            continue
        who = {
            "member": str(spec.get("holderIdentity") or ""),
            "renewedSecondsAgo": ago,
        }
        try:
            told = orjson.loads(_notes(lease).get(NOTE) or "{}")
            yield msgspec.convert({**told, **who}, ScanState)
        except (orjson.JSONDecodeError, msgspec.ValidationError, TypeError):
            yield msgspec.convert(who, ScanState)


def _notes(document: JsonObject) -> JsonObject:
    return document["metadata"].get("annotations") or {}


def _measure(stamp: str) -> float:
    try:
        return round((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds(), 1)
    except (ValueError, TypeError):
        return -1.0


# --- queues and reports


async def _count_queues(client: Client) -> dict[str, int]:
    both = (kinds.EPHEMERAL_REPORT, kinds.CLUSTER_EPHEMERAL_REPORT)
    counts = {"ephemeralReports": 0, "updateRequests": 0, "failedUpdateRequests": 0}
    for resource in both:
        with suppress(NotFoundError):
            async for page in client.list_pages(resource, metadata_only=True):
                counts["ephemeralReports"] += len(page.get("items") or ())
    with suppress(NotFoundError):
        async for page in client.list_pages(kinds.UPDATE_REQUEST):
            for item in page.get("items") or ():
                counts["updateRequests"] += 1
                failed = (item.get("status") or {}).get("state") == "Failed"
                counts["failedUpdateRequests"] += failed
    return counts


async def _read_reports(client: Client, top: int) -> ReportState:
    tally = _Tally()
    for resource in (*_REPORTS, *_OPEN_REPORTS):
        with suppress(NotFoundError):
            async for page in client.list_pages(resource, page=100):
                for report in page.get("items") or ():
                    tally.add(report)
    return ReportState(
        tally.reports,
        dict(tally.results),
        tuple(FailureCount(name, count) for name, count in _sort(tally.namespaces)[:top]),
        tuple(FailureCount(name, count) for name, count in _sort(tally.policies)[:top]),
    )


def _sort(counts: "Counter[str]") -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


class _Tally:
    """Sums over all reports."""

    def __init__(self) -> None:
        self.reports = 0
        self.results: Counter[str] = Counter(dict.fromkeys(("pass", "fail", "warn", "error"), 0))
        self.namespaces: Counter[str] = Counter()
        self.policies: Counter[str] = Counter()

    def add(self, report: JsonObject) -> None:
        self.reports += 1
        place = report["metadata"].get("namespace") or "(none)"
        for result in report.get("results") or ():
            answer = str(result.get("result") or "")
            self.results[answer] += 1
            if answer in ("fail", "error"):
                self.namespaces[place] += 1
                self.policies[str(result.get("policy") or "")] += 1
