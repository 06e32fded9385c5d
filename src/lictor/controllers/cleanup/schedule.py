"""Runs cleanup and deleting policies on their schedules, and writes their status."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from lictor.controllers.cleanup.policies import (
    CLEANUP_KINDS,
    ask_for_myself,
    check_permissions,
    compile_record,
    find_targets,
    read_cleanup,
)
from lictor.controllers.cleanup.removal import refer_to
from lictor.controllers.cleanup.run import (
    READY,
    CleanupRun,
    StatusCondition,
    build_status_patch,
    is_dry,
    read_status,
    read_time,
)
from lictor.controllers.cleanup.sweep import IsProtected, SweepContext, identify_cleanup
from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.loop import ReconcileLoop
from lictor.core.errors import ApiError, CompileError, ConflictError, LictorError, PolicyError
from lictor.core.evaluations import EVALUATIONS, QUARANTINED
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.schedule import NextRun
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.request import Request
from lictor.core.raw import JsonObject
from lictor.core.report import events
from lictor.core.report.events import Event, EventReason, EventSource
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.discovery import ServedKinds
from lictor.kubernetes.rbac import AccessCheck
from lictor.kubernetes.request_filter import build_filter
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.settings import Settings
from lictor.kubernetes.work_queue import cancel_all
from lictor.lookups.service_calls import read_http_limits
from lictor.policies.trials import find_namespace, find_reason

log = logging.getLogger(__name__)

# Concurrent runs: a long one does not delay the others. One slot is reserved for cluster-wide
# policies, and no namespace has more than one.
_RUNS = 3
_INTERVAL = 60.0
# How long a check is valid: roles and custom resource definitions change without notice.
_GOOD_FOR = 900.0
_BAD_FOR = 55.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0


class _Examination(msgspec.Struct, frozen=True):
    """Whether a policy can be used, and when it runs next after a given time."""

    generation: int
    until: float
    problems: tuple[str, ...] = ()
    next_run: NextRun | None = None


class _Failure(msgspec.Struct, frozen=True):
    """A run that must be restarted, and not before this moment."""

    pause: float
    until: datetime


class CleanupScheduler:
    """All cleanup policies and their running runs."""

    def __init__(
        self,
        caches: Sequence[Cache],
        context: SweepContext,
        allows: AccessCheck,
        emit: EmitEvent,
        now: Callable[[], datetime],
    ) -> None:
        self._caches = tuple(caches)
        self._context = context
        self._allows = allows
        self._emit = emit
        self._now = now
        self.loop = ReconcileLoop(
            "cleanup-controller",
            self.reconcile,
            interval=_INTERVAL,
            caches=self._caches,
            on_stop=self.stop,
        )
        self._examined: dict[str, _Examination] = {}
        self._told: dict[str, tuple[str, ...]] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        # The namespaces of those.
        self._running: dict[str, str] = {}
        self._failures: dict[str, _Failure] = {}

    async def reconcile(self) -> None:
        """Check every policy, start the runs that are due, and set the timer for the next."""
        live: set[str] = set()
        moments: list[datetime] = []
        errors: list[ApiError] = []
        found = [(cache, document) for cache in self._caches for document in cache.list()]
        # Cluster-wide ones first: others may take long to be tried.
        for cache, document in sorted(found, key=lambda each: bool(find_namespace(each[1]))):
            if document["metadata"].get("deletionTimestamp"):
                continue
            live.add(document["metadata"]["uid"])
            try:
                moments += await self._check_policy(cache, document)
            except ApiError as error:
                # Raised at the end: one policy does not delay the others.
                errors.append(error)
        self._forget(live)
        self._set_timer(moments)
        if errors:
            raise errors[0]

    async def stop(self) -> None:
        """Stop all runs; the next leader starts them again."""
        await cancel_all(*self._runs.values())

    async def _check_policy(self, cache: Cache, document: JsonObject) -> tuple[datetime, ...]:
        """When this policy must be checked again; empty if only its change matters."""
        uid = document["metadata"]["uid"]
        examination = await self._examine(document)
        if uid in self._runs:
            # The end of the run wakes the loop. Until then only the run writes the status.
            return ()
        document = await self._show(cache.resource, document, examination.problems)
        if examination.next_run is None:
            return ()
        due = _find_due(document, examination.next_run)
        failure = self._failures.get(uid)
        if failure is not None:
            due = max(due, failure.until)
        if due > self._now():
            return (due,)
        if self._has_room(find_namespace(document)):
            self._start(cache, document)
        return ()

    def _has_room(self, namespace: str) -> bool:
        """Whether a policy of this namespace (empty for cluster-wide ones) may run now."""
        if not namespace:
            return len(self._runs) < _RUNS
        others = [each for each in self._running.values() if each]
        return namespace not in others and len(others) < _RUNS - 1 and len(self._runs) < _RUNS

    # --- can it be used?

    async def _examine(self, document: JsonObject) -> _Examination:
        metadata = document["metadata"]
        known = self._examined.get(metadata["uid"])
        clock = asyncio.get_running_loop().time()
        generation = int(metadata.get("generation") or 0)
        if EVALUATIONS.holds(identify_cleanup(metadata["uid"], generation)):
            return _Examination(generation, clock, (QUARANTINED,))
        if known is not None and known.generation == generation and clock < known.until:
            return known
        problems, next_run = await self._evaluate(document)
        until = clock + (_BAD_FOR if problems else _GOOD_FOR)
        made = self._examined[metadata["uid"]] = _Examination(generation, until, problems, next_run)
        return made

    async def _evaluate(self, document: JsonObject) -> tuple[tuple[str, ...], NextRun | None]:
        context = self._context
        reason = await find_reason(document)
        if reason:
            return (reason,), None
        try:
            record = read_cleanup(document)
            program = await asyncio.to_thread(
                compile_record,
                record,
                context.lookups,
                names=context.names(),
                http_limits=context.http_limits,
            )
            program.next_run(self._now())
        except PolicyError as error:
            return (str(error),), None
        served = await context.served()
        missing = find_targets(record, served).problems
        refused = await check_permissions(record, served, self._allows)
        return (*missing, *refused), program.next_run

    async def _show(
        self, kind: Resource, document: JsonObject, problems: tuple[str, ...]
    ) -> JsonObject:
        """Write the readiness to the status; returns the updated document."""
        self._announce(document, problems)
        ready = StatusCondition(READY, holds=True, reason="Succeeded", message="Ready")
        if problems:
            ready = StatusCondition(
                READY, holds=False, reason="Failed", message="; ".join(problems)
            )
        metadata = document["metadata"]
        if read_status(document).contains(ready, int(metadata.get("generation") or 0)):
            return document
        return await self._context.client.patch(
            kind,
            metadata["name"],
            build_status_patch(document, [ready], self._now()),
            namespace=metadata.get("namespace") or "",
            subresource="status",
        )

    def _announce(self, document: JsonObject, problems: tuple[str, ...]) -> None:
        uid = document["metadata"]["uid"]
        if self._told.get(uid, ()) == problems:
            return
        self._told[uid] = problems
        about = refer_to(document)
        for problem in problems:
            log.warning("policy cannot be used", extra={"policy": about.name, "why": problem})
            none = events.EventAction.NONE
            self._emit(Event(EventReason.ERROR, none, problem, about, source=EventSource.CLEANUP))

    # --- runs

    def _start(self, cache: Cache, document: JsonObject) -> None:
        uid = document["metadata"]["uid"]
        run = CleanupRun(
            cache.resource,
            document,
            self._context,
            emit=self._emit,
            now=self._now,
            is_wanted=lambda: _is_same(document, cache),
        )
        self._running[uid] = find_namespace(document)
        self._runs[uid] = asyncio.create_task(self._finish(uid, run))

    async def _finish(self, uid: str, run: CleanupRun) -> None:
        try:
            outcome = await run.execute()
        except ConflictError:
            # Another leader was faster, or the policy was just edited: check again.
            log.debug("run not begun", extra={"uid": uid})
        except (LictorError, TimeoutError) as error:
            self._postpone(uid, error)
        except Exception as error:
            log.exception("run failed")
            self._postpone(uid, error)
        else:
            self._failures.pop(uid, None)
            if outcome is not None:
                facts = {"uid": uid, "deleted": outcome.gone, "failed": outcome.failed}
                log.info("run ended", extra=facts)
        finally:
            self._runs.pop(uid, None)
            self._running.pop(uid, None)
            self.loop.wake()

    def _postpone(self, uid: str, error: Exception) -> None:
        known = self._failures.get(uid)
        pause = min(known.pause * 2, _LONGEST_PAUSE) if known is not None else _FIRST_PAUSE
        until = datetime.fromtimestamp(self._now().timestamp() + pause, UTC)
        self._failures[uid] = _Failure(pause, until)
        log.warning("run postponed", extra={"uid": uid, "seconds": pause, "why": str(error)[:200]})

    def _forget(self, live: set[str]) -> None:
        self._examined = {uid: kept for uid, kept in self._examined.items() if uid in live}
        self._told = {uid: kept for uid, kept in self._told.items() if uid in live}
        self._failures = {uid: kept for uid, kept in self._failures.items() if uid in live}

    def _set_timer(self, moments: Sequence[datetime]) -> None:
        if moments:
            seconds = max((min(moments) - self._now()).total_seconds(), 0.0)
            # The clock may be changed: the loop checks again at its interval at the latest.
            self.loop.wake_later(min(seconds, _INTERVAL) + 0.01)


def _find_due(document: JsonObject, next_run: NextRun) -> datetime:
    """The first scheduled time after the last run, or after the policy's creation.

    Missed runs are made up for once.
    """
    status = read_status(document)
    created = read_time(document["metadata"].get("creationTimestamp"))
    begin = status.last_execution or created or datetime.now(UTC)
    if status.is_executing:
        return begin
    with suppress(CompileError):
        return next_run(begin)
    return datetime.max.replace(tzinfo=UTC)


def _is_same(document: JsonObject, cache: Cache) -> bool:
    """Whether the policy is unchanged since its run started."""
    metadata = document["metadata"]
    current = cache.get(metadata["name"], metadata.get("namespace") or "")
    return (
        current is not None
        and current["metadata"]["uid"] == metadata["uid"]
        and current["metadata"].get("generation") == metadata.get("generation")
        and is_dry(current) == is_dry(document)
    )


# --- how they are built

_MANAGED_BY = "app.kubernetes.io/managed-by"
_MANAGER = "kyverno"

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


class ProtectedObjects:
    """Objects that policies must not delete: by resource filters, and by a label if enabled."""

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
    """Exceptions from deleting policies; others do not apply to deletions."""
    return context.store.exceptions.list_all(_FAMILIES)


_FAMILIES = {kind.family for kind in registry().with_role(Role.DELETION) if kind.is_listed}
