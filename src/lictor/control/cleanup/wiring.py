"""The loops of the cleanup controller, put together."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeAlias

from lictor.cluster.cleanup_policies import CLEANUP_KINDS, ask_for_myself
from lictor.cluster.client import MetadataClient
from lictor.cluster.discovery import ServedKinds
from lictor.cluster.request_filter import build_filter
from lictor.cluster.service_calls import read_http_limits
from lictor.cluster.settings import Settings
from lictor.cluster.work_queue import DueQueue
from lictor.control.cleanup.schedule import CleanupScheduler
from lictor.control.cleanup.sweep import IsProtected, SweepContext
from lictor.control.context import ControllerContext, EmitEvent
from lictor.control.loop import ReconcileLoop
from lictor.control.policy_writes import PolicyWrites
from lictor.control.ttl import ExpiringObject, TtlDeletions, TtlWatches
from lictor.families.registry import Role, registry
from lictor.lang.duration import NANOSECONDS, parse_duration
from lictor.model.metadata import PolicyRecord
from lictor.model.request import Request

_MANAGED_BY = "app.kubernetes.io/managed-by"
_MANAGER = "kyverno"
_LEAST_INTERVAL = 1.0

Now: TypeAlias = Callable[[], datetime]


def _read_clock() -> datetime:
    return datetime.now(UTC)


def build_policies_loop(
    context: ControllerContext, emit: EmitEvent, now: Now = _read_clock
) -> ReconcileLoop:
    """The loop of all cleanup and deleting policies; `emit` takes events."""
    caches = [context.watch(kind) for kind in CLEANUP_KINDS]
    sweep_context = SweepContext(
        context.client,
        ServedKinds(context.client).read,
        context.namespaces,
        context.lookups,
        is_protected=ProtectedObjects(context),
        exceptions=lambda: _list_exceptions(context),
        names=lambda: context.store.names,
        http_limits=read_http_limits(context.flags),
        own=context.names,
    )
    allows = ask_for_myself(context.client)
    return CleanupScheduler(caches, sweep_context, allows, emit, now).loop


def build_ttl_loops(context: ControllerContext) -> list[ReconcileLoop]:
    """The loop that watches objects with a time to live, and the one that deletes them."""
    due: DueQueue[ExpiringObject] = DueQueue()
    seconds = parse_duration(context.flags.ttl_reconciliation_interval) / NANOSECONDS
    watches = TtlWatches(
        lambda: MetadataClient(context.client.config),
        ServedKinds(context.client, keep=0.0).read,
        ask_for_myself(context.client),
        due,
        max(seconds, _LEAST_INTERVAL),
    )
    deletions = TtlDeletions(PolicyWrites(context.client, context.names), due, watches.find)
    watches.listen(deletions.loop.wake)
    return [watches.loop, deletions.loop]


class ProtectedObjects:
    """What policies must leave alone: by the resource filters, and by a label if a flag says so."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._settings: Settings | None = None
        self._is_filtered: IsProtected = lambda _: False

    def __call__(self, request: Request) -> bool:
        settings = self._context.settings.current
        if settings is not self._settings:
            self._is_filtered = build_filter(settings)
            self._settings = settings
        if self._is_filtered(request):
            return True
        if not self._context.flags.protect_managed_resources:
            return False
        labels = request.resource["metadata"].get("labels") or {}
        return bool(labels.get(_MANAGED_BY) == _MANAGER)


def _list_exceptions(context: ControllerContext) -> Iterator[PolicyRecord]:
    """Exceptions from policies that delete; the others are not asked about what is deleted."""
    return context.store.exceptions.list_all(_FAMILIES)


_FAMILIES = {kind.family for kind in registry().with_role(Role.DELETION) if kind.is_listed}
