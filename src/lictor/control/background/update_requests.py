"""Works off UpdateRequests: equal ones together, several at a time, failed ones again later."""

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from lictor.cluster.cache import Cache
from lictor.cluster.client import Client
from lictor.cluster.resource import UPDATE_REQUEST
from lictor.cluster.update_requests import (
    StoredUpdate,
    Update,
    UpdateType,
    read_update_request,
)
from lictor.cluster.work_queue import WorkQueue
from lictor.errors import ApiError, LictorError, NotFoundError, NotYetError

log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, ...]

_SHORT_PAUSE = 0.25
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
# An update that nobody could do for so long is told once more, and taken away: a queue that
# is full of such stops all others.
_LIFETIME = 3600.0


class UpdateHandler(Protocol):
    """Does what an update asks for; raises where that did not work.

    NotYetError: it is too early. What is too early for too long is asked for as late.
    """

    async def __call__(self, update: Update, *, is_late: bool) -> None: ...


class UpdateRequestQueue:
    """Groups UpdateRequests that ask for the same, and works off each group."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        handlers: Mapping[UpdateType, UpdateHandler],
        *,
        workers: int,
    ) -> None:
        self.cache = cache
        self._client = client
        self._handlers = handlers
        self._queue: WorkQueue[_Key] = WorkQueue(
            "update-requests",
            self._work,
            workers=workers,
            pauses=(_FIRST_PAUSE, _LONGEST_PAUSE),
        )
        self._groups: dict[_Key, list[StoredUpdate]] = {}
        # The version of the latest request of each group that was queued.
        self._queued: dict[_Key, int] = {}
        # What came too early: since when.
        self._early: dict[_Key, float] = {}
        self._read: dict[str, StoredUpdate | None] = {}
        self._done: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled; what is under way is left to the next leader."""
        try:
            await self._queue.run()
        finally:
            self._queued.clear()

    async def reconcile(self) -> None:
        """Queue what is new; a newer request does not wait for the retry of an older one."""
        groups = self._groups = self._collect()
        self._queue.keep(set(groups))
        self._queued = {key: kept for key, kept in self._queued.items() if key in groups}
        self._early = {key: since for key, since in self._early.items() if key in groups}
        for key, stored in groups.items():
            latest = max(each.version for each in stored)
            if latest > self._queued.get(key, -1):
                self._queued[key] = latest
                self._queue.add(key)

    def _collect(self) -> dict[_Key, list[StoredUpdate]]:
        bodies = {str(body["metadata"].get("uid")): body for body in self.cache.list()}
        # What an update asks for never changes: each is read once.
        self._read = {
            uid: self._read[uid] if uid in self._read else read_update_request(body)
            for uid, body in bodies.items()
        }
        self._done &= bodies.keys()
        groups: dict[_Key, list[StoredUpdate]] = {}
        for stored in self._read.values():
            if stored is not None and stored.uid not in self._done:
                groups.setdefault(key_of(stored), []).append(stored)
        return groups

    async def _work(self, key: _Key) -> bool | float:
        stored = [each for each in self._groups.get(key, ()) if each.uid not in self._done]
        if not stored:
            return True
        # The latest of equal ones: it knows what the others know.
        update = max(stored, key=lambda each: each.version).update
        try:
            await self._handle(key, update)
        except NotYetError:
            return _SHORT_PAUSE
        except (LictorError, TimeoutError) as error:
            return await self._fail(stored, str(error))
        except Exception as error:
            log.exception("update failed", extra={"policy": update.policy})
            return await self._fail(stored, f"{type(error).__name__}: {error}")
        return await self._remove(stored)

    async def _handle(self, key: _Key, update: Update) -> None:
        handler = self._handlers.get(update.type)
        if handler is None:
            return
        since = self._early.get(key)
        try:
            await handler(update, is_late=False)
        except NotYetError as error:
            now = time.monotonic()
            if now - self._early.setdefault(key, now) < error.patience:
                raise
            await handler(update, is_late=True)
        if since is not None:
            self._early.pop(key, None)

    async def _remove(self, stored: Iterable[StoredUpdate]) -> bool:
        """Delete requests that are done; False where one is still there."""
        is_removed = True
        for each in stored:
            self._done.add(each.uid)
            try:
                await self._client.delete(
                    UPDATE_REQUEST,
                    each.name,
                    self.cache.namespace,
                    preconditions={"uid": each.uid},
                )
            except ApiError as error:
                self._done.discard(each.uid)
                is_removed = False
                log.warning("update not removed", extra={"why": str(error)[:200]})
        return is_removed

    async def _fail(self, stored: list[StoredUpdate], why: str) -> bool:
        """Record why an update failed, for another attempt; give up one that is too old."""
        facts = {"policy": stored[-1].update.policy, "why": why[:300]}
        if _is_old(stored):
            log.error("update given up", extra=facts)
            return await self._remove(stored)
        log.warning("update failed", extra=facts)
        status = {"status": {"state": "Failed", "message": why[:1000]}}
        for each in stored:
            try:
                await self._client.patch(
                    UPDATE_REQUEST,
                    each.name,
                    status,
                    namespace=self.cache.namespace,
                    subresource="status",
                )
            except NotFoundError:
                continue
            except ApiError as error:
                log.warning("status not written", extra={"why": str(error)[:200]})
        return False


def _is_old(stored: Iterable[StoredUpdate]) -> bool:
    now = datetime.now(UTC)
    try:
        ages = [now - datetime.fromisoformat(each.created) for each in stored]
    except ValueError:
        return False
    return all(age.total_seconds() > _LIFETIME for age in ages)


def key_of(stored: StoredUpdate) -> tuple[str, ...]:
    """What updates have in common of which the last one stands for all."""
    update = stored.update
    admission = update.admission or {}
    operation = str(admission.get("operation") or "")
    trigger = update.trigger
    place = (trigger.uid or f"{trigger.namespace}/{trigger.name}", trigger.kind)
    # What the request said, and nothing else, tells what happened: each one counts.
    alone = stored.uid if operation == "DELETE" or admission.get("subResource") else ""
    kind = "delete" if update.delete_downstream else operation
    return (update.type, update.policy, ",".join(update.rules), *place, kind, alone)
