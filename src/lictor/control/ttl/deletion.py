"""Deletes objects when their time to live is over."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from lictor.cluster.work_queue import DueQueue
from lictor.control.cleanup.removal import count_expired, count_unexpired
from lictor.control.loop import ReconcileLoop
from lictor.control.policy_writes import PolicyWrites
from lictor.control.ttl.watch import PROPAGATION, ExpiringObject, find_due
from lictor.errors import ApiError, ConflictError, UnreachableError
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_AT_ONCE = 8
_INTERVAL = 60.0
_FIRST_PAUSE = 2.0
# The object has changed a moment ago, and the news of it is on its way.
_CONFLICT_PAUSE = 0.2
_LONGEST_PAUSE = 300.0


class TtlDeletions:
    """Deletes what is due; `find` returns an object as it is now."""

    def __init__(
        self,
        writes: PolicyWrites,
        due: DueQueue[ExpiringObject],
        find: Callable[[ExpiringObject], JsonObject | None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._writes = writes
        self._due = due
        self._find = find
        self._now = now
        self.loop = ReconcileLoop("ttl-controller", self.reconcile, interval=_INTERVAL)
        # How long to wait before the next attempt, for objects that could not be deleted.
        self._pauses: dict[ExpiringObject, float] = {}

    async def reconcile(self) -> None:
        """Delete all that is due, and set the clock for the next."""
        unreachable: UnreachableError | None = None
        while unreachable is None and (due := self._due.take(self._now().timestamp(), _AT_ONCE)):
            answers = await asyncio.gather(*map(self._expire, due))
            unreachable = next((each for each in answers if each is not None), None)
        self._pauses = {key: kept for key, kept in self._pauses.items() if key in self._due}
        self._set_timer()
        if unreachable is not None:
            raise unreachable

    async def _expire(self, expiring: ExpiringObject) -> UnreachableError | None:
        item = self._find(expiring)
        due = find_due(item) if item is not None else None
        if item is None or due is None or due > self._now():
            # Gone, going, or given more time; in that case the change of it was noted.
            self._pauses.pop(expiring, None)
            return None
        try:
            await self._delete(expiring, item)
        except ConflictError:
            # Perhaps its label says something else by now, or another object has its name.
            self._postpone(expiring, _CONFLICT_PAUSE)
        except UnreachableError as error:
            self._due.put(expiring, due.timestamp())
            return error
        except ApiError as error:
            count_unexpired(expiring.resource, expiring.namespace)
            self._complain(expiring, error)
            self._postpone(expiring, _FIRST_PAUSE)
        return None

    async def _delete(self, expiring: ExpiringObject, item: JsonObject) -> None:
        metadata = item["metadata"]
        wanted = (metadata.get("annotations") or {}).get(PROPAGATION)
        if await self._writes.delete(
            expiring.resource,
            expiring.name,
            expiring.namespace,
            own="",  # a label of the object itself asks for it, and no policy
            propagation=wanted if wanted in _PROPAGATIONS else "",
            preconditions={
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
        ):
            count_expired(expiring.resource, expiring.namespace)
            facts = {"resource": expiring.resource.plural, "namespace": expiring.namespace}
            log.info("object expired", extra={**facts, "object": expiring.name})
        self._pauses.pop(expiring, None)

    def _postpone(self, expiring: ExpiringObject, first: float) -> None:
        pause = min(self._pauses.get(expiring, first / 2) * 2, _LONGEST_PAUSE)
        self._pauses[expiring] = pause
        self._due.put(expiring, self._now().timestamp() + pause)

    def _complain(self, expiring: ExpiringObject, error: ApiError) -> None:
        if expiring not in self._pauses:
            facts = {"resource": expiring.resource.plural, "namespace": expiring.namespace}
            why = str(error)[:200]
            log.warning("object not deleted", extra={**facts, "object": expiring.name, "why": why})

    def _set_timer(self) -> None:
        due = self._due.next_due
        if due is not None:
            seconds = max(due - self._now().timestamp(), 0.0)
            # The clock may be set: the loop looks again at its interval at the latest.
            self.loop.wake_later(min(seconds, _INTERVAL) + 0.01)
